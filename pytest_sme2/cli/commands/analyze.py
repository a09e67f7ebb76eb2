"""``sme2 report analyze``: where the time of an ETDump, or of a whole run directory, goes."""

from __future__ import annotations

import argparse
import sys
from dataclasses import replace
from pathlib import Path

from pytest_sme2.cli.options import Arguments
from pytest_sme2.errors import UsageError
from pytest_sme2.profile.coverage import check_pair
from pytest_sme2.report.terminal import comparison_text, profile_text
from pytest_sme2.report.text import WIDTH, bullet, json_text
from pytest_sme2.report.writing import run_summary, write_experiment, write_summary
from pytest_sme2.session.analysis import Analysis, analyze_file, analyze_folder, on_off_pairs

EXAMPLE = "sme2 report analyze out_toy/runs/mac"
ARGUMENTS: Arguments = {
    "path RUN_DIR|FILE.etdump": "a run directory or an ETDump",
    "--out DIR": (
        "the folder for the CSV and JSON files (default: beside each ETDump of a run "
        "directory; none for a single file)"
    ),
    "--etrecord FILE": "the program's ETRecord, for ATen operators and modules",
    "--program FILE": (
        "the program that ran, for the shapes of its matrix operators; a run "
        "directory already has them"
    ),
    "--emulated": "it ran on an emulator, so its times mean nothing (known of a run directory)",
}


def run(arguments: argparse.Namespace) -> int:
    path: Path = arguments.path
    problems: list[str] = []
    etrecord, program, out = arguments.etrecord, arguments.program, arguments.out
    if path.is_dir():
        if etrecord is not None or program is not None:
            option = "--program" if etrecord is None else "--etrecord"
            raise UsageError(f"{option} belongs to one ETDump. Give the file, not the directory.")
        analyses = analyze_folder(path, problems)
        out = out or path
    elif path.is_file():
        analyses = [analyze_file(path, etrecord=etrecord, program=program)]
    else:
        raise UsageError(f"{str(path)!r} does not exist. Give an ETDump or a run directory.")
    if arguments.emulated:
        analyses = [replace(analysis, timed=False) for analysis in analyses]
    if out is not None:
        for analysis in analyses:
            # In a run directory, each beside its ETDump.
            place = analysis.path.parent.relative_to(path) if path.is_dir() else Path()
            write_experiment(analysis, out / place)
        write_summary(analyses, out)
    print(json_text(run_summary(analyses)) if arguments.json else _text(analyses))
    for problem in problems:
        print(f"sme2: {problem}", file=sys.stderr)
    return 1 if problems else 0


def _text(analyses: list[Analysis]) -> str:
    parts = []
    for analysis in analyses:
        timed = analysis.timed
        parts.append(profile_text(analysis.name, analysis.profile, timed=timed))
        parts.extend(
            profile_text(f"{analysis.name}, method {number}", other, timed=timed)
            for number, other in enumerate(analysis.others, start=2)
        )
    for on, off in on_off_pairs(analyses):
        evidence = check_pair(on.profile, off.profile)
        parts.append(
            f"{off.name} against {on.name}\n"
            + bullet(f"evidence: {evidence.message}")
            + "\n\n"
            + comparison_text(off.profile, on.profile, timed=on.timed and off.timed)
        )
    return f"\n\n{'-' * WIDTH}\n".join(parts)
