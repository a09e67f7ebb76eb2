"""Samples that are collected a little at a time and reported on: their file, and the two commands.

One sample a line, in JSON. A collection that was killed goes on where it was.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from pytest_sme2.errors import Sme2Error

SCHEMA = 2

Command = Callable[[argparse.Namespace], int]


def read_records(path: Path) -> list[dict[str, Any]]:
    """All whole lines; a last one that was cut off by a kill is left out."""
    records: list[dict[str, Any]] = []
    if not path.exists():
        return records
    for number, line in enumerate(path.read_text().splitlines(), start=1):
        try:
            entry = json.loads(line)
        except json.JSONDecodeError:
            print(f"{path}:{number}: cut off, left out", file=sys.stderr)
            continue
        if entry.get("schema") != SCHEMA:
            raise SystemExit(f"{path}:{number}: another schema; collect into a new file")
        records.append(entry)
    return records


def append_record(path: Path, entry: Mapping[str, Any]) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    cut_off = path.exists() and path.stat().st_size and not path.read_bytes().endswith(b"\n")
    with path.open("a") as file:
        # A line that a kill cut off stays a line of its own.
        file.write(("\n" if cut_off else "") + json.dumps(entry, separators=(",", ":")) + "\n")
        file.flush()
        os.fsync(file.fileno())


class CommandLine:
    """``collect`` and ``report``. A benchmark adds its own options to ``collecting``."""

    def __init__(
        self, name: str, description: str | None, collect: Command, report: Command
    ) -> None:
        self.name = name
        self.parser = argparse.ArgumentParser(
            description=description, formatter_class=argparse.RawDescriptionHelpFormatter
        )
        commands = self.parser.add_subparsers(dest="command", required=True)
        self.collecting = commands.add_parser("collect", help="measure and append what was found")
        self.collecting.add_argument(
            "--minutes", type=float, required=True, help="how long to go on"
        )
        self.collecting.set_defaults(run=collect)
        self.reporting = commands.add_parser("report", help="decide from what was collected")
        self.reporting.add_argument("--json", type=Path, metavar="FILE", help="for machines")
        self.reporting.set_defaults(run=report)

    def add_place(self, option: str, default: str, what: str) -> None:
        """Where the samples are, for both commands."""
        for command in (self.collecting, self.reporting):
            command.add_argument(
                option, type=Path, default=Path(default), help=f"{what}; default %(default)s"
            )

    def run(self, argv: Sequence[str] | None) -> int:
        arguments = self.parser.parse_args(argv)
        try:
            code: int = arguments.run(arguments)
        except Sme2Error as error:
            print(f"{self.name}: {error}", file=sys.stderr)
            return error.exit_code
        return code
