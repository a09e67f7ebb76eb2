"""``sme2 compare``: two ETDumps side by side, before and after, or SME2 off and on."""

from __future__ import annotations

import argparse
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

from pytest_sme2.profile.categories import parse_rules
from pytest_sme2.profile.compare import compare
from pytest_sme2.profile.coverage import sme2_states
from pytest_sme2.report.csv_files import comparison_summary, json_text
from pytest_sme2.report.tables import comparison_text
from pytest_sme2.report.text import bullet, count, printable
from pytest_sme2.results import Comparison, Profile
from pytest_sme2.session.analysis import analyze_file, the_etdump

EXAMPLE = "sme2 compare toy_sme2_off.etdump toy_sme2_on.etdump"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("before", type=Path, metavar="A", help="an ETDump, or a folder with one")
    parser.add_argument("after", type=Path, metavar="B", help="the ETDump to compare with it")
    parser.add_argument("--json", action="store_true", help="print JSON")
    parser.add_argument(
        "--names",
        nargs=2,
        default=("A", "B"),
        metavar=("A", "B"),
        help="names of the two (default: A B)",
    )
    parser.add_argument(
        "--emulated",
        action="store_true",
        help="they ran on an emulator, so their times mean nothing (known of a run directory)",
    )
    parser.add_argument(
        "--rule",
        action="append",
        default=[],
        metavar="'PATTERN = CATEGORY kind'",
        help="a category for your own operators; may be repeated",
    )


def run(arguments: argparse.Namespace) -> int:
    rules = parse_rules(arguments.rule)
    before, after = (
        analyze_file(the_etdump(path), rules=rules) for path in (arguments.before, arguments.after)
    )
    timed = before.timed and after.timed and not arguments.emulated
    comparison = compare(before.profile, after.profile, names=tuple(arguments.names))
    if arguments.json:
        moved, left = _moved(comparison, before.profile, after.profile)
        document = comparison_summary(comparison, timed=timed)
        print(json_text({**document, "moved_to_sme2": moved, "left_sme2": left}))
        return 0
    for name, analysis in zip(arguments.names, (before, after), strict=True):
        runs = count(analysis.profile.runs, "run")
        print(f"{printable(name)}: {printable(str(analysis.path))}, {runs}")
    print()
    print(comparison_text(comparison, timed=timed))
    for line in _sme2_lines(comparison, before.profile, after.profile):
        print(bullet(line))
    return 0


def _moved(comparison: Comparison, before: Profile, after: Profile) -> tuple[list[str], list[str]]:
    """The operators that moved to SME2 kernels, and those that left them, as 'A -> B'."""
    states = sme2_states(before), sme2_states(after)
    moved: list[str] = []
    left: list[str] = []
    for change in comparison.operators:
        if change.before is None or change.after is None:
            continue
        old, new = states[0][change.before.index], states[1][change.after.index]
        names = f"{change.before.operator.name} -> {change.after.operator.name}"
        if new is True and old is not True:
            moved.append(names)
        elif old is True and new is not True:
            left.append(names)
    return moved, left


def _sme2_lines(comparison: Comparison, before: Profile, after: Profile) -> Iterator[str]:
    matrix = after.coverage.matrix_operators
    for word, names in zip(("moved to", "left"), _moved(comparison, before, after), strict=True):
        if names:
            counted = Counter(names).most_common()
            shown = "; ".join(f"{many} x {name}" for name, many in counted)
            yield f"{len(names)} of {count(matrix, 'matrix operator')} {word} SME2: {shown}"
    if not before.coverage.sme2_operators and not after.coverage.sme2_operators:
        yield f"on neither side is one of {count(matrix, 'matrix operator')} on SME2"
