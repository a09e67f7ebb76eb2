"""``sme2 report compare``: two ETDumps side by side, before and after, or SME2 off and on; or what
ExecuTorch's runner of language models printed twice.
"""

from __future__ import annotations

import argparse
import math
import statistics
from collections.abc import Sequence

from pytest_sme2.cli.options import RULES, Arguments
from pytest_sme2.profile.categories import parse_rules
from pytest_sme2.profile.compare import compare
from pytest_sme2.report.csv_files import comparison_summary, json_text
from pytest_sme2.report.tables import comparison_text, sme2_move_lines, sme2_moves
from pytest_sme2.report.text import printable
from pytest_sme2.results import PHASES, Estimate
from pytest_sme2.session.analysis import analyze_file, the_etdump
from pytest_sme2.system.wording import count
from pytest_sme2.timing.phases import estimate_of
from pytest_sme2.trace.observer import (
    UNTOLD,
    ObservedGeneration,
    read_observed,
)
from pytest_sme2.verdict.judging import estimate_text

EXAMPLE = "sme2 report compare toy_sme2_off.etdump toy_sme2_on.etdump"
ARGUMENTS: Arguments = {
    "before ETDUMP": "an ETDump, or a folder with one; or the output of llama_main",
    "after ETDUMP": "the ETDump to compare with it",
    "--emulated": "they ran on an emulator, so their times mean nothing (known of a run directory)",
    "--names": {
        "nargs": 2,
        "default": ("A", "B"),
        "metavar": ("A", "B"),
        "help": "names of the two (default: A B)",
    },
    **RULES,
}


def run(arguments: argparse.Namespace) -> int:
    rules = parse_rules(arguments.rule)
    observed = [read_observed(path) for path in (arguments.before, arguments.after)]
    if all(observed):
        return _compare_generations(arguments, *observed)
    before, after = (
        analyze_file(the_etdump(path), rules=rules) for path in (arguments.before, arguments.after)
    )
    timed = before.timed and after.timed and not arguments.emulated
    comparison = compare(before.profile, after.profile, names=tuple(arguments.names))
    if arguments.json:
        moved, left = sme2_moves(comparison, before.profile, after.profile)
        document = comparison_summary(comparison, timed=timed)
        print(json_text({**document, "moved_to_sme2": moved, "left_sme2": left}))
        return 0
    for name, analysis in zip(arguments.names, (before, after), strict=True):
        runs = count(analysis.profile.runs, "run")
        print(f"{printable(name)}: {printable(str(analysis.path))}, {runs}")
    print()
    moves = sme2_move_lines(comparison, before.profile, after.profile)
    print(comparison_text(comparison, timed=timed, more=moves))
    return 0


def _compare_generations(
    arguments: argparse.Namespace,
    before: list[ObservedGeneration],
    after: list[ObservedGeneration],
) -> int:
    speedups = compare_observed(before, after)
    if arguments.json:
        print(json_text({"speedups": {phase: vars(one) for phase, one in speedups.items()}}))
        return 0
    for name, found in zip(arguments.names, (before, after), strict=True):
        usual = {
            what: statistics.median(getattr(one, f"{what}_ms") for one in found)
            for what in ("load", "first_token", "prefill", "decode")
        }
        rates = [
            f"{phase} {1000 / time:,.1f} tokens/s"
            for phase in PHASES
            if (time := statistics.median(one.token_ms[phase] for one in found)) > 0
        ]
        times = f"load {usual['load']:g} ms, first token {usual['first_token']:g} ms"
        print(f"{printable(name)}: {count(len(found), 'generation')}, {', '.join([times, *rates])}")
    for phase, speedup in speedups.items():
        print(f"{phase}: {printable(arguments.names[1])} is {estimate_text(speedup)} as fast")
    print(UNTOLD)
    return 0


def compare_observed(
    before: Sequence[ObservedGeneration], after: Sequence[ObservedGeneration]
) -> dict[str, Estimate]:
    """How many times faster the second is in each phase, by token; runs are paired in order."""
    found = {}
    for phase in PHASES:
        pairs = [
            (one.token_ms[phase], other.token_ms[phase])
            for one, other in zip(before, after, strict=False)
        ]
        if pairs and min(min(pair) for pair in pairs) > 0:
            found[phase] = estimate_of([math.log(one / other) for one, other in pairs])
    return found
