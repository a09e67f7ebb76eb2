"""``sme2 bisect``: which commit made a case worse, by exact figures of the emulator."""

from __future__ import annotations

import argparse
import json
import shlex
import sys
from pathlib import Path

from pytest_sme2.bisect.bisecting import Bisecting, Culprit, Outcome
from pytest_sme2.bisect.commits import WorkTree, commits_between, repository_of
from pytest_sme2.bisect.figures import FIGURES, NAMES
from pytest_sme2.errors import UsageError, plain
from pytest_sme2.export.variant import PRECISIONS, parse_variant
from pytest_sme2.results import Arm, CaseResult
from pytest_sme2.session.settings import Settings
from pytest_sme2.system.terminal import clear_line, terminal_line
from pytest_sme2.system.wording import count
from pytest_sme2.verdict.structure import difference_lines

EXAMPLE = "sme2 bisect toy_cnn --good v1.0 --bad HEAD"
_SHOWN = 12


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("model", metavar="MODEL", help="a model of this repository")
    parser.add_argument("--good", required=True, metavar="COMMIT", help="a commit that was fine")
    parser.add_argument(
        "--bad", default="HEAD", metavar="COMMIT", help="a commit that is worse (default: HEAD)"
    )
    parser.add_argument(
        "--variant",
        default="fp32",
        help=f"{', '.join(PRECISIONS)}; with an input size as in fp16@256 (default: fp32)",
    )
    parser.add_argument(
        "--figure",
        choices=NAMES,
        help="what got worse (default: the first that did): "
        + "; ".join(f"{figure.name}, the {figure.what}" for figure in FIGURES),
    )
    parser.add_argument(
        "--models-folder",
        type=Path,
        default=Path("models"),
        metavar="DIR",
        help="the folder of models, inside the repository (default: models)",
    )
    parser.add_argument(
        "--out",
        type=Path,
        default=Path("sme2-bisect"),
        metavar="DIR",
        help="where each commit's figures are kept: the same command goes on where it was broken "
        "off (default: sme2-bisect)",
    )
    parser.add_argument("--qemu", type=Path, metavar="FILE", help="the emulator to use")
    parser.add_argument("--json", action="store_true", help="print JSON")


def run(arguments: argparse.Namespace) -> int:
    repository = repository_of(Path.cwd())
    folder = (Path.cwd() / arguments.models_folder).resolve()
    if not folder.is_relative_to(repository.resolve()):
        raise UsageError(
            f"{str(arguments.models_folder)!r} is not in this repository, so its commits do not "
            "change it. Name a folder inside of it."
        )
    settings = Settings(
        device="emulated",
        models=(arguments.model,),
        variants=(parse_variant(arguments.variant),),
        model_folders=(folder.relative_to(repository.resolve()),),
        qemu=arguments.qemu,
    )
    commits = commits_between(repository, arguments.good, arguments.bad)
    try:
        with WorkTree(repository, commits[0]) as tree:
            say = terminal_line(sys.stderr)
            found = Bisecting(tree, commits, settings, arguments.out.resolve(), say).run(
                arguments.figure
            )
    finally:
        clear_line(sys.stderr)
    if arguments.json:
        print(json.dumps(_document(found), indent=2))
    else:
        case = f"{arguments.model}-{arguments.variant}"
        print("\n".join(map(plain, _lines(found, case, arguments))))
    return 0 if found.culprit is None else 1


def _lines(found: Outcome, case: str, arguments: argparse.Namespace) -> list[str]:
    culprit = found.culprit
    if culprit is None:
        what = arguments.figure or ", ".join(NAMES)
        return [f"{case}: nothing is worse at {arguments.bad} than at {arguments.good} ({what})."]
    figure, border = culprit.figure, culprit.border
    commit = found.commits[border.first_bad]
    lines = [
        f"{commit.short} made {case} worse: {figure.what} {_change(culprit)}",
        f"  {commit.subject}",
    ]
    if border.doubtful:
        lines.append(
            f"  {count(border.doubtful, 'commit')} before it could not be measured: it may be one "
            "of them."
        )
    changes = _differences(culprit.before, culprit.now)
    lines += [f"    {line}" for line in changes[:_SHOWN]]
    if len(changes) > _SHOWN:
        lines.append(f"    and {len(changes) - _SHOWN} more")
    measured = f"{count(len(found.probes), 'commit')} of {len(found.commits)} measured:"
    lines += ["", measured, *_table(found, culprit), ""]
    shown = ["sme2", "run", arguments.model, "--variant", arguments.variant, "--device", "emulated"]
    lines += [
        f"See the change: git show {commit.short}",
        f"See it run: git checkout {commit.short} && {shlex.join(shown)}",
    ]
    return lines


def _change(culprit: Culprit) -> str:
    old, new = (culprit.figure.value(side) or 0.0 for side in (culprit.before, culprit.now))
    percent = f" ({(new / old - 1) * 100:+.2f} %)" if old else ""
    return f"{old:,.0f} -> {new:,.0f}{percent}"


def _differences(old: CaseResult, new: CaseResult) -> tuple[str, ...]:
    before, now = (case.structures.get(Arm.ON) for case in (old, new))
    return () if before is None or now is None else difference_lines(before, now)


def _table(found: Outcome, culprit: Culprit) -> list[str]:
    lines = []
    for number, probe in sorted(found.probes.items()):
        if probe.measured is None:
            value, side = "-", f"cannot be measured: {probe.problem.splitlines()[0]}"
        else:
            here = culprit.figure.value(probe.measured)
            value = "-" if here is None else f"{here:,.0f}"
            side = "bad" if number >= culprit.border.first_bad else "good"
        lines.append(f"  {probe.commit.short}  {value:>15}  {side:4}  {probe.commit.subject}")
    return lines


def _document(found: Outcome) -> dict[str, object]:
    culprit = found.culprit
    return {
        "commits": len(found.commits),
        "figure": culprit and culprit.figure.name,
        "first_bad": culprit and found.commits[culprit.border.first_bad].digest,
        "last_good": culprit and found.commits[culprit.border.last_good].digest,
        "probes": [
            {
                "commit": probe.commit.digest,
                "problem": probe.problem or None,
                "figures": {
                    figure.name: None if probe.measured is None else figure.value(probe.measured)
                    for figure in FIGURES
                },
            }
            for _, probe in sorted(found.probes.items())
        ],
    }
