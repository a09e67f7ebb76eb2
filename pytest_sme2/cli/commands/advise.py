"""``sme2 advise``: which variant uses SME2 best, and what keeps the others from it."""

from __future__ import annotations

import argparse
import dataclasses
import json
import sys
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from pytest_sme2.cli.commands.models import add_folder_argument, model_folders
from pytest_sme2.errors import Sme2Error, UsageError
from pytest_sme2.export.variant import parse_variants
from pytest_sme2.profile.findings import find
from pytest_sme2.report.findings import sentences
from pytest_sme2.report.text import bullet, clipped, printable
from pytest_sme2.results import Arm, Finding, InferenceCost, Profile, Topic
from pytest_sme2.session.settings import Settings
from pytest_sme2.system.terminal import clear_line, terminal_line
from pytest_sme2.targets.settings import DEVICES, parse_device

EXAMPLE = "sme2 advise toy_cnn --device emulated"
# Not the run directory: half a pair must not take the place of what a whole run left there.
OUT = Path("sme2-advice")
_ROW = "{:<22}{:>12}{:>11}{:>11}{:>10}{:>11}"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("model", metavar="MODEL", help="the model; `sme2 models` lists them")
    parser.add_argument(
        "--variants", metavar="LIST", help="for example fp32,fp16@256 (default: the model's own)"
    )
    parser.add_argument("--device", default="auto", help=f"{', '.join(DEVICES)} (default: auto)")
    parser.add_argument(
        "--run",
        dest="earlier",
        type=Path,
        metavar="DIR",
        help="use the results of an earlier run, and run nothing",
    )
    parser.add_argument("--qemu", type=Path, metavar="FILE", help="the emulator")
    parser.add_argument(
        "--out",
        type=Path,
        default=OUT,
        metavar="DIR",
        help=f"the run directory (default: {OUT})",
    )
    parser.add_argument("--json", action="store_true", help="print JSON")
    add_folder_argument(parser)


def run(arguments: argparse.Namespace) -> int:
    problems: dict[str, str] = {}
    if arguments.earlier is not None:
        profiles, timed = _earlier(arguments.earlier, arguments.model)
    else:
        profiles, timed = _now(arguments, problems)
    best_first = sorted(profiles.items(), key=lambda item: -(item[1][0].coverage.operators or 0.0))
    variants = {
        name: (profile, find(profile, timed=timed, counted=cost))
        for name, (profile, cost) in best_first
    }
    if arguments.json:
        document = _document(arguments.model, variants, timed)
        print(json.dumps({**document, "problems": problems}, indent=2))
    else:
        print("\n".join(_lines(variants, timed)))
        for variant, problem in problems.items():
            print(bullet(f"{variant} could not be run: {problem}"))
    return 0 if profiles else 1


_Profiles = dict[str, tuple[Profile, InferenceCost | None]]


def _earlier(folder: Path, model: str) -> tuple[_Profiles, bool]:
    from pytest_sme2.session.run_directory import find_records, read_record

    if not folder.is_dir():
        raise UsageError(f"{str(folder)!r} is not a run directory. Name one with --run.")
    records = [read_record(found) for found in find_records(folder)]
    measured = [
        record.measured
        for record in records
        if record.measured.model == model and Arm.ON in record.measured.profiles
    ]
    if not measured:
        held = ", ".join(sorted({record.measured.model for record in records})) or "none"
        raise UsageError(
            f"{str(folder)!r} holds no run of {model!r} with SME2 on. It holds: {held}."
        )
    profiles = {
        entry.variant: (entry.profiles[Arm.ON], entry.costs.get(Arm.ON)) for entry in measured
    }
    return profiles, not any(entry.emulated for entry in measured)


def _now(arguments: argparse.Namespace, problems: dict[str, str]) -> tuple[_Profiles, bool]:
    """The on arm's profiles; a variant that fails takes no other with it."""
    from pytest_sme2.session.session import Session

    session = Session(
        Settings(
            device=parse_device(arguments.device),
            models=(arguments.model,),
            variants=parse_variants(arguments.variants or ""),
            model_folders=model_folders(arguments),
            out=arguments.out,
            qemu=arguments.qemu,
        ),
        terminal_line(sys.stderr),
    )
    profiles: _Profiles = {}
    try:
        cases = session.cases()
        if not cases:
            raise UsageError(
                f"No variant of {arguments.model!r} is run on this device unless it is named: "
                "give --variants."
            )
        session.bench.require_sme2()
        timed = session.bench.timed
        for case in cases:
            try:
                cost = session.cost(case, Arm.ON)
                profiles[str(case.variant)] = (
                    session.profile(case, Arm.ON),
                    None if isinstance(cost, str) else cost,
                )
            except Sme2Error as error:
                problems[str(case.variant)] = str(error).splitlines()[0]
    finally:
        clear_line(sys.stderr)
        session.close()
    return profiles, timed


# --- what is printed ------------------------------------------------------------------------------


_Variants = Mapping[str, tuple[Profile, Sequence[Finding]]]


def _document(model: str, variants: _Variants, timed: bool) -> dict[str, Any]:
    return {
        "model": model,
        "timed": timed,
        "variants": [
            {
                "variant": variant,
                "matrix_operators": profile.coverage.matrix_operators,
                "sme2_operators": profile.coverage.sme2_operators,
                "operators": len(profile.operators),
                "findings": [dataclasses.asdict(finding) for finding in findings],
            }
            for variant, (profile, findings) in variants.items()
        ],
    }


def _lines(variants: _Variants, timed: bool) -> Iterator[str]:
    if not variants:
        return
    yield _ROW.format("variant", "on SME2", "coverage", "transposes", "portable", "operators")
    for variant, (profile, findings) in variants.items():
        coverage = profile.coverage
        yield _ROW.format(
            clipped(variant, 21),
            f"{coverage.sme2_operators}/{coverage.matrix_operators}",
            "-" if coverage.operators is None else f"{coverage.operators:.0%}",
            _number(findings, Topic.LAYOUT),
            _number(findings, Topic.PORTABLE),
            len(profile.operators),
        )
    yield ""
    if not timed:
        yield bullet(
            "The CPU was emulated, so what an operator costs in time is not known: executed "
            "instructions give the order, or counts of operators where nothing was counted. Run it "
            "on a device to order by time."
        )
    known = {
        variant: profile.coverage.operators
        for variant, (profile, _) in variants.items()
        if profile.coverage.operators is not None
    }
    if known:
        top = max(known.values())
        names = " and ".join(variant for variant, share in known.items() if share == top)
        yield bullet(f"{names}: best SME2 coverage ({top:.0%} of matrix operators).")
    for variant, (_, findings) in variants.items():
        yield ""
        yield printable(variant)
        yield from map(bullet, sentences(findings))


def _number(findings: Sequence[Finding], topic: Topic) -> int:
    return sum(finding.cost.operators for finding in findings if finding.topic is topic)
