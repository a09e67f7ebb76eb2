"""``sme2 bisect``: which commit, or which version of a package, made a case worse."""

from __future__ import annotations

import argparse
import shlex
from pathlib import Path
from typing import cast

from pytest_sme2.bisect.bisecting import EMULATED, FIGURES, LATENCY, Bisecting, Probe, is_slower
from pytest_sme2.bisect.row import EXECUTORCH, PACKAGES, Border, open_row
from pytest_sme2.cli.commands.models import DEFAULT_FOLDER
from pytest_sme2.cli.options import VARIANT, Arguments, chosen, progress, shared, show
from pytest_sme2.errors import UsageError, plain
from pytest_sme2.export.variant import parse_variant
from pytest_sme2.results import CaseResult, Check
from pytest_sme2.session.cases import Case
from pytest_sme2.session.options import DEVICE
from pytest_sme2.session.reproduce import run_command
from pytest_sme2.session.session import Session
from pytest_sme2.session.settings import Settings
from pytest_sme2.system.files import is_program
from pytest_sme2.system.wording import count
from pytest_sme2.verdict.judging import reference_of
from pytest_sme2.verdict.structure import difference_lines

EXAMPLE = "sme2 bisect toy_cnn --good v1.0 --bad HEAD"
ARGUMENTS: Arguments = {
    "model MODEL": "a model; for versions of executorch also a .pte file, which is run as it is",
    "--good REF!": (
        f"what was fine: a commit, or a version as in executorch==1.5.0 ({', '.join(PACKAGES)})"
    ),
    "--bad REF": "what is worse (default: HEAD, or the installed version)",
    "--versions LIST": "the versions between the two, as in 1.5.0,1.5.1 (default: pip is asked)",
    "--keep-runner": (
        f"for versions of {EXECUTORCH}: only the export changes, and the runner stays that of "
        "the installed version"
    ),
    **VARIANT,
    "--models-folder DIR": (
        "the folder of models; for commits, inside the repository (default: models)",
        DEFAULT_FOLDER,
    ),
    "--out DIR": (
        "where the figures of each commit or version are kept: the same command goes on "
        "where it was broken off (default: sme2-bisect)",
        Path("sme2-bisect"),
    ),
    f"--figure {{{','.join((*FIGURES, LATENCY))}}}": (
        "what got worse (default: latency on a device that measures time, else the first that did):"
        f" {'; '.join(f'{name}, the {figure.what}' for name, figure in FIGURES.items())}; latency, "
        "in pairs with the good one"
    ),
    **shared(
        *DEVICE,
        "budget",
        device=EMULATED,
        more=" Here it is for the pairs of one comparison, four times as much where they do not "
        "decide.",
    ),
}


def run(arguments: argparse.Namespace) -> int:
    program = is_program(arguments.model)
    settings = Settings(
        **chosen(arguments, device=EMULATED),
        models=(arguments.model,),
        variants=() if program else (parse_variant(arguments.variant),),
        model_folders=(arguments.models_folder,),
    )
    # What to search by; None: the first exact figure that is worse.
    timed = not Session(settings).emulated
    asked = arguments.figure or (LATENCY if timed else None)
    if asked == LATENCY and not timed:
        raise UsageError(
            "An emulator's time says nothing about latency. Name a device, as in --device linux, "
            "or search by another figure."
        )
    ends = arguments.good, arguments.bad
    versions, keep_runner = arguments.versions, arguments.keep_runner
    with progress() as say, open_row(*ends, settings, versions, keep_runner, say) as row:
        search = Bisecting(row, arguments.out.resolve(), say)
        border = search.by_latency() if asked == LATENCY else search.by_figure(asked)
        name = arguments.model if program else f"{arguments.model}-{arguments.variant}"
        command = shlex.join(["sme2", "run", arguments.model, "--device", settings.device])
        if not program:
            case = Case(arguments.model, settings.variants[0])
            command = run_command(case, settings, settings.device)
        told = lines(search, border, name, asked, command)
    show(arguments, document(search, border), map(plain, told))
    return 0 if border is None else 1


_SHOWN = 12


def lines(
    search: Bisecting, border: Border | None, case: str, asked: str | None, run: str
) -> list[str]:
    """A sentence, a table and the commands that show it; ``run`` is what runs the case."""
    row, probes = search.row, search.probes
    table = [f"{count(len(probes), row.noun)} of {len(row.changes)} measured:"]
    rows = [_cells(number, probes[number], border) for number in sorted(probes)]
    widths = [max(len(cells[column]) for cells in rows) for column in range(3)]
    table += [
        f"  {name:{widths[0]}}  {value:>{widths[1]}}  {side:{widths[2]}}  {subject}".rstrip()
        for name, value, side, subject in rows
    ]
    if border is None:
        what = asked or ", ".join(FIGURES)
        good, bad = row.changes[0].short, row.changes[-1].short
        return [f"{case}: nothing is worse at {bad} than at {good} ({what}).", "", *table]
    change = row.changes[border.first_bad]
    what = f"{change.short} made {case} worse"
    if row.backwards:
        fine = row.changes[border.last_good].short
        what = f"{case} is worse up to {change.short}, and fine from {fine} on"
    before, here = (probes[number] for number in (border.last_good, border.first_bad))
    old, new = (cast(CaseResult, probe.measured) for probe in (before, here))
    told = [f"{what}: {_change(border.figure, here.latency, old, new)}"]
    if change.subject:
        told.append(f"  {change.subject}")
    if border.doubtful:
        doubtful = count(border.doubtful, row.noun)
        told.append(f"  {doubtful} between could not be judged: it may be one of them.")
    told += _causes(old, new)
    return [*told, "", *table, "", *row.commands(border, run)]


def _change(name: str, check: Check | None, before: CaseResult, here: CaseResult) -> str:
    if check is not None:
        # In pairs with the good end, whichever change comes before this one.
        old, new = ((value or 0.0) / 1e6 for value in (check.old, check.new))
        growth = f"{_growth(check)}, against {reference_of(check.metric)}"
        return f"latency with SME2 {here.arm} {old:.3f} ms -> {new:.3f} ms ({growth})"
    figure = FIGURES[name]
    old, new = (figure.value(side) or 0.0 for side in (before, here))
    percent = f" ({(new / old - 1) * 100:+.2f} %)" if old else ""
    return f"{figure.what} {old:,.0f} -> {new:,.0f}{percent}"


def _growth(check: Check) -> str:
    """How much slower, as surely as the pairs say it."""
    if check.old is None or check.new is None:
        return "the same"
    if check.interval is None:
        return f"{(check.new / check.old - 1) * 100:+.1f} %"
    low, high = ((end - 1) * 100 for end in check.interval)
    return f"{low:+.1f} % to {high:+.1f} %"


def _causes(old: CaseResult, new: CaseResult) -> list[str]:
    """What else differs between the last good one and the first bad one."""
    program, runtime = old.pte_sha256 != new.pte_sha256, old.runtime != new.runtime
    told = []
    if runtime:
        told.append(f"  The runtime changed; the program {'did, too' if program else 'did not'}.")
    before, now = (case.structures.get(new.arm) for case in (old, new))
    changes = () if before is None or now is None else difference_lines(before, now)
    told += [f"    {line}" for line in changes[:_SHOWN]]
    if len(changes) > _SHOWN:
        told.append(f"    and {len(changes) - _SHOWN} more")
    return told


def _cells(number: int, probe: Probe, border: Border | None) -> tuple[str, str, str, str]:
    change = probe.change
    if probe.measured is None:
        return change.short, "-", "skip", f"cannot be measured: {probe.problem.splitlines()[0]}"
    if probe.latency is not None:
        slower = is_slower(probe.latency)
        side = "skip" if slower is None else "bad" if slower else "good"
        reason = f"cannot tell: {probe.latency.message}" if slower is None else change.subject
        return change.short, _growth(probe.latency), side, reason
    # The figure that was searched by, else the one that is looked at first.
    figure = FIGURES.get(next(iter(FIGURES)) if border is None else border.figure)
    value = None if figure is None else figure.value(probe.measured)
    bad = border is not None and number >= border.first_bad
    told = "-" if value is None else f"{value:,.0f}"
    return change.short, told, "bad" if bad else "good", change.subject


def document(search: Bisecting, border: Border | None) -> dict[str, object]:
    row, probes = search.row, search.probes
    return {
        "kind": row.noun,
        "changes": len(row.changes),
        "figure": border and border.figure,
        "first_bad": border and row.changes[border.first_bad].key,
        "last_good": border and row.changes[border.last_good].key,
        "doubtful": border and border.doubtful,
        "probes": [_probe_document(probes[number]) for number in sorted(probes)],
    }


def _probe_document(probe: Probe) -> dict[str, object]:
    figures: dict[str, object] = {
        name: None if probe.measured is None else figure.value(probe.measured)
        for name, figure in FIGURES.items()
    }
    check = probe.latency
    if check is not None:
        figures[LATENCY] = {
            "good_ns": check.old,
            "here_ns": check.new,
            "interval": check.interval,
            "verdict": str(check.verdict),
        }
    return {"change": probe.change.key, "problem": probe.problem or None, "figures": figures}
