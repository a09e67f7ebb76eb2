"""``sme2 report compare``: two ETDumps side by side, before and after, or SME2 off and on."""

from __future__ import annotations

import argparse

from pytest_sme2.cli.options import Arguments
from pytest_sme2.profile.compare import compare
from pytest_sme2.report.terminal import comparison_text
from pytest_sme2.report.text import json_text, printable
from pytest_sme2.report.writing import comparison_summary
from pytest_sme2.session.analysis import analyze_file, the_etdump
from pytest_sme2.system.wording import count

EXAMPLE = "sme2 report compare toy_sme2_off.etdump toy_sme2_on.etdump"
ARGUMENTS: Arguments = {
    "before ETDUMP": "an ETDump, or a folder with one",
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
    before, after = (analyze_file(the_etdump(path)) for path in (arguments.before, arguments.after))
    timed = before.timed and after.timed and not arguments.emulated
    sides = before.profile, after.profile
    if arguments.json:
        comparison = compare(*sides, names=tuple(arguments.names))
        print(json_text(comparison_summary(comparison, timed=timed)))
        return 0
    for name, analysis in zip(arguments.names, (before, after), strict=True):
        runs = count(analysis.profile.runs, "run")
        print(f"{printable(name)}: {printable(str(analysis.path))}, {runs}")
    print()
    print(comparison_text(*sides, arguments.names, timed=timed))
    return 0
