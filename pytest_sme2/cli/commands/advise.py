"""``sme2 advise``: which variant uses SME2 best, and what keeps the others from it."""

from __future__ import annotations

import argparse
import dataclasses
import json
import sys
from collections.abc import Iterator
from pathlib import Path

from pytest_sme2.cli.commands.models import add_folder_argument, model_folders
from pytest_sme2.errors import Sme2Error, UsageError
from pytest_sme2.export.variant import parse_variants
from pytest_sme2.profile.advice import Advice, Obstacle, VariantAdvice, advise
from pytest_sme2.report.text import bullet, clipped, count, percent, printable
from pytest_sme2.results import Arm, Profile
from pytest_sme2.session.settings import Settings
from pytest_sme2.system.terminal import clear_line, terminal_line
from pytest_sme2.targets.settings import DEVICES, parse_device

EXAMPLE = "sme2 advise toy_cnn --device emulated"
# Not the run directory: half a pair must not take the place of what a whole run left there.
OUT = Path("sme2-advice")
TOP = 5
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
    advice = advise(arguments.model, profiles, timed=timed)
    if arguments.json:
        print(json.dumps({**dataclasses.asdict(advice), "problems": problems}, indent=2))
    else:
        print("\n".join(_lines(advice)))
        for variant, problem in problems.items():
            print(bullet(f"{variant} could not be run: {problem}"))
    return 0 if profiles else 1


def _earlier(folder: Path, model: str) -> tuple[dict[str, Profile], bool]:
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
    profiles = {entry.variant: entry.profiles[Arm.ON] for entry in measured}
    return profiles, not any(entry.emulated for entry in measured)


def _now(
    arguments: argparse.Namespace, problems: dict[str, str]
) -> tuple[dict[str, Profile], bool]:
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
    profiles = {}
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
                profiles[str(case.variant)] = session.profile(case, Arm.ON)
            except Sme2Error as error:
                problems[str(case.variant)] = str(error).splitlines()[0]
    finally:
        clear_line(sys.stderr)
        session.close()
    return profiles, timed


def _lines(advice: Advice) -> Iterator[str]:
    if not advice.variants:
        return
    yield _ROW.format("variant", "on SME2", "coverage", "transposes", "portable", "operators")
    for entry in advice.variants:
        coverage = "-" if entry.coverage is None else f"{entry.coverage:.0%}"
        yield _ROW.format(
            clipped(entry.variant, 21),
            f"{entry.sme2_operators}/{entry.matrix_operators}",
            coverage,
            sum(item.count for item in entry.layout_changes),
            sum(item.count for item in entry.portable),
            entry.operators,
        )
    yield ""
    if not advice.timed:
        yield bullet(
            "The CPU was emulated, so what an operator costs in time is not known: counts give "
            "the order. Run it on a device to order by time."
        )
    best = advice.best
    if best:
        names = " and ".join(entry.variant for entry in best)
        yield bullet(f"{names}: best SME2 coverage ({best[0].coverage:.0%} of matrix operators).")
    for entry in advice.variants:
        yield from _variant_lines(entry)


def _variant_lines(entry: VariantAdvice) -> Iterator[str]:
    yield ""
    yield printable(entry.variant)
    if entry.coverage is None:
        yield bullet("there are no matrix operators: SME2 has nothing to run here")
    elif not entry.missed and not entry.unproven:
        yield bullet("every matrix operator runs on an SME2 kernel")
    yield from _section("not on SME2", entry.missed)
    if entry.unproven:
        yield bullet(
            f"unproven: {count(entry.unproven, 'matrix operator')} on packed QP8 kernels, whose "
            "name SME2 and NEON kernels share; --device emulated can tell"
        )
    if entry.depthwise is not None:
        yield from _section("not matrix work", (entry.depthwise,))
    yield from _section("transposes that could go", entry.layout_changes)
    yield from _section("outside of the delegate", entry.portable)


def _section(title: str, obstacles: tuple[Obstacle, ...]) -> Iterator[str]:
    """One sentence a remedy, the costliest first, with what it is for."""
    by_remedy: dict[str, list[Obstacle]] = {}
    for item in obstacles:
        by_remedy.setdefault(item.remedy, []).append(item)
    for remedy, items in by_remedy.items():
        named = ", ".join(_named(item) for item in items[:TOP])
        left = sum(item.count for item in items[TOP:])
        yield bullet(f"{title}: {named}{f' and {left} more' if left else ''}: {remedy}")


def _named(item: Obstacle) -> str:
    cost = "" if item.share is None else f", {percent(item.share)} of the time"
    shapes = f" ({item.shapes})" if item.shapes else ""
    return f"{item.count} {item.what}{cost}{shapes}"
