"""``sme2 report compare``: two ETDumps side by side, before and after, or SME2 off and on; or what
ExecuTorch's runner of language models printed twice.
"""

from __future__ import annotations

import argparse

from pytest_sme2.cli.generations import compare_observed, observed_lines
from pytest_sme2.cli.options import Arguments, show
from pytest_sme2.profile.compare import compare
from pytest_sme2.report.csv_files import comparison_summary
from pytest_sme2.report.terminal import comparison_text
from pytest_sme2.report.text import json_text, printable
from pytest_sme2.runners.stock import UNTOLD, read_observed
from pytest_sme2.session.analysis import analyze_file, the_etdump
from pytest_sme2.system.wording import count
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
}


def run(arguments: argparse.Namespace) -> int:
    observed = [read_observed(path) for path in (arguments.before, arguments.after)]
    if all(observed):
        speedups = compare_observed(*observed)
        lines = observed_lines(dict(zip(arguments.names, observed, strict=True)))
        lines += [
            f"{phase}: {printable(arguments.names[1])} is {estimate_text(speedup)} as fast"
            for phase, speedup in speedups.items()
        ]
        lines.append(UNTOLD)
        found = {phase: vars(one) for phase, one in speedups.items()}
        return show(arguments, {"speedups": found}, lines)
    before, after = (analyze_file(the_etdump(path)) for path in (arguments.before, arguments.after))
    timed = before.timed and after.timed and not arguments.emulated
    comparison = compare(before.profile, after.profile, names=tuple(arguments.names))
    if arguments.json:
        print(json_text(comparison_summary(comparison, timed=timed)))
        return 0
    for name, analysis in zip(arguments.names, (before, after), strict=True):
        runs = count(analysis.profile.runs, "run")
        print(f"{printable(name)}: {printable(str(analysis.path))}, {runs}")
    print()
    print(comparison_text(comparison, timed=timed))
    return 0
