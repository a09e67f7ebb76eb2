"""``sme2 merge``: the runs of several machines as one: one report, one JUnit, one exit code."""

from __future__ import annotations

import argparse
import json
import sys
from collections import Counter
from pathlib import Path

from pytest_sme2.cli.merging import Merged, merge
from pytest_sme2.errors import plain
from pytest_sme2.report.comment import comment_text
from pytest_sme2.report.history import write_history
from pytest_sme2.report.junit import junit_text
from pytest_sme2.report.terminal import run_lines
from pytest_sme2.session.settings import parse_report
from pytest_sme2.system.files import write_text
from pytest_sme2.system.wording import count

EXAMPLE = "sme2 merge shard-1 shard-2 --out merged --junit junit.xml"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "run_dir", type=Path, nargs="+", metavar="RUN_DIR", help="the run directory of one shard"
    )
    parser.add_argument(
        "--out", type=Path, required=True, metavar="DIR", help="the new run directory"
    )
    parser.add_argument("--html", metavar="FILE", help="write the HTML report to this file")
    parser.add_argument("--junit", type=Path, metavar="FILE", help="write one JUnit file")
    parser.add_argument(
        "--history", type=Path, metavar="DIR", help="add one record per case to this history"
    )
    parser.add_argument(
        "--comment", type=Path, metavar="FILE", help="write a comment for a pull request"
    )
    parser.add_argument(
        "--baseline-dir",
        type=Path,
        default=Path("baselines"),
        metavar="DIR",
        help="the folder of baselines, for the HTML report (default: baselines)",
    )
    parser.add_argument("--json", action="store_true", help="print JSON")


def run(arguments: argparse.Namespace) -> int:
    html = None if arguments.html is None else parse_report(arguments.html)
    merged = merge(arguments.run_dir, arguments.out)
    records = [record for _, record in merged.cases]
    if html is not None:
        from pytest_sme2.report.html import write_html

        write_html(html, merged.cases, arguments.baseline_dir)
    if arguments.junit is not None:
        write_text(arguments.junit, junit_text(merged.tests))
    if arguments.history is not None:
        write_history(arguments.history, records)
    if arguments.comment is not None:
        write_text(arguments.comment, comment_text(records))
    if arguments.json:
        print(json.dumps(_document(merged), indent=2))
    else:
        print("\n".join(map(plain, run_lines(records))))
        print(_counts(merged, len(arguments.run_dir)))
    for problem in merged.problems:
        print(f"sme2: {plain(problem)}", file=sys.stderr)
    return int(merged.failed)


def _counts(merged: Merged, shards: int) -> str:
    outcomes = Counter(test.outcome for test in merged.tests.values())
    told = ", ".join(f"{number} {outcome}" for outcome, number in sorted(outcomes.items()))
    return (
        f"{count(shards, 'shard')}, {count(len(merged.cases), 'case')}, "
        f"{count(len(merged.tests), 'test')}: {told}"
    )


def _document(merged: Merged) -> dict[str, object]:
    return {
        "cases": [record.id for _, record in merged.cases],
        "tests": {name: test.outcome for name, test in merged.tests.items()},
        "problems": list(merged.problems),
        "failed": merged.failed,
    }
