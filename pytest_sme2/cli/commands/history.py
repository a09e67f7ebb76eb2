"""``sme2 history``: what changed over many runs, step by step."""

from __future__ import annotations

import argparse
import fnmatch
import json
from pathlib import Path

from pytest_sme2.errors import UsageError

EXAMPLE = "sme2 history history --case 'toy_cnn*' --html history.html"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "folder",
        type=Path,
        metavar="DIR",
        help="the folder that pytest --sme2-history DIR writes to",
    )
    parser.add_argument("--case", metavar="PATTERN", help="only these cases, as in 'toy_cnn*'")
    parser.add_argument("--device", metavar="PATTERN", help="only these devices")
    parser.add_argument("--html", metavar="FILE", help="write a page with charts to this file")
    parser.add_argument("--json", action="store_true", help="print the records, one per line")


def run(arguments: argparse.Namespace) -> int:
    from pytest_sme2.report.history import read_history
    from pytest_sme2.report.history_page import history_page
    from pytest_sme2.report.history_series import all_series
    from pytest_sme2.report.history_text import history_lines
    from pytest_sme2.session.settings import parse_report
    from pytest_sme2.system.files import encode, write_text

    html = None if arguments.html is None else parse_report(arguments.html)
    records = [
        record
        for record in read_history(arguments.folder)
        if fnmatch.fnmatchcase(record.case, arguments.case or "*")
        and fnmatch.fnmatchcase(record.device, arguments.device or "*")
    ]
    if not records:
        raise UsageError(f"{arguments.folder} has no record of such a case.")
    if arguments.json:
        print("\n".join(json.dumps(encode(record), sort_keys=True) for record in records))
        if html is None:
            return 0
    series = all_series(records)
    if html is not None:
        write_text(html, history_page(series))
    if not arguments.json:
        print("\n".join(history_lines(series)))
    return 0
