"""Whether a run directory is whole: its files are there, hold what they must, and can be read.

What a case's files must hold is seen by making them again, elsewhere, from its record and ETDumps.
"""

from __future__ import annotations

import csv
import tempfile
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pytest_sme2.errors import Sme2Error, UsageError
from pytest_sme2.profile.build import build_profiles
from pytest_sme2.report.writing import write_case
from pytest_sme2.session.analysis import SUFFIX
from pytest_sme2.session.run_directory import MANIFEST, METRICS, find_records, read_record
from pytest_sme2.system.reading import read_json, read_members
from pytest_sme2.system.wording import count
from pytest_sme2.trace.etdump import read_etdump


@dataclass(frozen=True)
class FileCheck:
    """One file, and what is wrong with it; nothing where it is fine."""

    path: Path
    problem: str = ""


def validate_run(root: Path) -> list[FileCheck]:
    """Every file that was looked at, in order."""
    if not root.is_dir():
        raise UsageError(f"{str(root)!r} is not a folder. Give a run directory.")
    cases = list(find_records(root))
    findings = [check for folder in cases for check in _case(folder)]
    if not cases:
        findings.append(FileCheck(root / METRICS, "is missing: no case was recorded here"))
    dumps = sorted(root.rglob(f"*{SUFFIX}"))
    return [*findings, *(FileCheck(dump, _dump_problem(dump)) for dump in dumps)]


def _case(folder: Path) -> Iterator[FileCheck]:
    path = folder / METRICS
    with tempfile.TemporaryDirectory() as again:
        made = Path(again)
        try:
            record = read_record(folder)
            write_case(folder, record, into=made)
        except Sme2Error as error:
            yield FileCheck(path, str(error).removeprefix(f"{path} "))
            return
        yield FileCheck(path)
        for file in sorted(file for file in made.rglob("*") if file.is_file()):
            there = folder / file.relative_to(made)
            yield FileCheck(there, _unlike(there, file))
        yield from _exchanged(folder, read_members(made / MANIFEST))
    for dump in record.etdumps.values():
        logs = sorted((folder / dump).parent.glob("*.log"))
        yield from map(FileCheck, logs)
        if not logs:
            yield FileCheck((folder / dump).with_name("*.log"), "is missing")


def _unlike(there: Path, made: Path) -> str:
    """What is wrong with a file, beside the same one made again."""
    if not there.is_file():
        return "is missing"
    if made.suffix == ".json":
        return _json_problem(there, read_members(made))
    if made.suffix == ".csv":
        with made.open(encoding="utf-8", newline="") as stream:
            return _csv_problem(there, next(csv.reader(stream)))
    return ""


def _json_problem(path: Path, members: Mapping[str, Any]) -> str:
    try:
        document: Any = read_json(path, remedy="")
    except Sme2Error as error:
        return str(error).removeprefix(f"{path} ").strip()
    if not isinstance(document, dict):
        return "is not an object"
    missing = [name for name in members if name not in document]
    return f"lacks the keys {', '.join(missing)}" if missing else ""


def _csv_problem(path: Path, columns: list[str]) -> str:
    try:
        with path.open(encoding="utf-8", newline="") as stream:
            rows = csv.reader(stream)
            heading = next(rows, [])
            short = sum(len(row) != len(columns) for row in rows)
    except (OSError, ValueError, csv.Error) as error:
        return f"cannot be read: {error}"
    missing = [name for name in columns if name not in heading]
    if missing:
        return f"lacks the columns {', '.join(missing)}"
    return f"has {count(short, 'row')} of another length" if short else ""


def _exchanged(folder: Path, made: Mapping[str, Any]) -> Iterator[FileCheck]:
    """The dumps that have changed since the manifest was written."""
    listed: Any = read_members(folder / MANIFEST).get("experiments")
    for arm, entry in made["experiments"].items() if isinstance(listed, dict) else ():
        if arm not in listed:
            yield FileCheck(folder / entry["etdump"], f"is not in {MANIFEST}")
        elif listed[arm] != entry:
            yield FileCheck(folder / entry["etdump"], f"is not the file that {MANIFEST} lists")


def _dump_problem(path: Path) -> str:
    try:
        columns = read_etdump(path)
        if not columns.runs:
            return "holds no inference"
        build_profiles(columns)[0]
    except (Sme2Error, OSError) as error:
        return str(error).removeprefix(f"{path}: ")
    return ""
