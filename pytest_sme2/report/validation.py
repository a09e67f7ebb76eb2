"""Whether a run directory is whole: its files are there, hold what they must, and can be read."""

from __future__ import annotations

import csv
import math
import os
import statistics
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pytest_sme2.errors import EtdumpError, Sme2Error, UsageError
from pytest_sme2.profile.build import build_profile
from pytest_sme2.report.csv_files import CATEGORY_COLUMNS, OPERATOR_COLUMNS, TIMELINE_COLUMNS
from pytest_sme2.session.analysis import SUFFIX
from pytest_sme2.session.run_directory import MANIFEST, METRICS, find_records, read_record
from pytest_sme2.system.files import file_sha256, inside
from pytest_sme2.system.reading import read_json, read_members
from pytest_sme2.system.wording import count
from pytest_sme2.trace.etdump import read_etdump

# By the end of the file's name, the keys it must have.
_JSON_KEYS = {
    METRICS: ("schema", "id", "measured", "checks", "etdumps"),
    MANIFEST: ("schema", "case", "model", "variant", "program", "device", "versions",
               "experiments"),
    "analysis_summary.json": ("schema", "timed", "experiments", "pairs"),
    "_pipeline_summary.json": ("schema", "case", "model", "variant", "device", "timed", "arms"),
    "_robust_stats.json": ("unit", "runs", "end_to_end", "operators"),
}  # fmt: skip
_CSV_COLUMNS = {
    "_all_runs_timeline.csv": TIMELINE_COLUMNS,
    "_run0_timeline.csv": TIMELINE_COLUMNS,
    "_operator_stats.csv": OPERATOR_COLUMNS,
    "_category_summary.csv": CATEGORY_COLUMNS,
}
_OF_A_CASE = (MANIFEST, "analysis_summary.json", "_pipeline_summary.json", "_pipeline_summary.md")
_OF_AN_EXPERIMENT = ("_robust_stats.json", *_CSV_COLUMNS, ".log")


@dataclass(frozen=True)
class FileCheck:
    """One file, and what is wrong with it; nothing where it is fine."""

    path: Path
    problem: str = ""


def validate_run(root: Path) -> list[FileCheck]:
    """Every file that was looked at, in order."""
    if not root.is_dir():
        raise UsageError(f"{str(root)!r} is not a folder. Give a run directory.")
    findings: list[FileCheck] = []
    cases = list(find_records(root))
    if not cases:
        findings.append(FileCheck(root / METRICS, "is missing: no case was recorded here"))
    for folder in cases:
        findings += _case(folder)
    # Not Path.resolve, which fails for a link to itself.
    checked = {os.path.realpath(finding.path) for finding in findings}
    findings += [
        FileCheck(dump, _dump_problem(dump))
        for dump in sorted(root.rglob(f"*{SUFFIX}"))
        if os.path.realpath(dump) not in checked
    ]
    return findings


def _case(folder: Path) -> Iterator[FileCheck]:
    path = folder / METRICS
    document = read_members(path)
    if "results" in document and "measured" not in document:
        yield from _kit_run(folder, document["results"])
        return
    problem = _json_problem(path, _JSON_KEYS[METRICS])
    if problem:
        yield FileCheck(path, problem)
        return
    said = ""
    try:
        etdumps = list(read_record(folder).etdumps.values())
    except Sme2Error as error:
        # The dumps it names, although it cannot be used as a whole.
        named = document["etdumps"].values() if isinstance(document["etdumps"], dict) else ()
        etdumps = [name for name in named if isinstance(name, str)]
        # A damaged dump is named below, once.
        if not (isinstance(error, EtdumpError) and etdumps):
            said = str(error).removeprefix(f"{path} ")
    yield FileCheck(path, said)
    for ending in _OF_A_CASE:
        yield from _ending(folder, ending)
    for name in etdumps:
        try:
            dump = inside(folder, name)
        except ValueError as error:
            if not said:
                yield FileCheck(path, f"is damaged: {error}")
            continue
        yield FileCheck(dump, _dump_problem(dump) or _changed(folder, name))
        for ending in _OF_AN_EXPERIMENT:
            yield from _ending(dump.parent, ending)


def _kit_run(folder: Path, results: object) -> Iterator[FileCheck]:
    """What Arm's profiling kit wrote: what its own check asks for, and that figures are whole."""
    path = folder / METRICS
    entries = results if isinstance(results, list) else []
    metrics = [entry.get("metrics") if isinstance(entry, dict) else None for entry in entries]
    problems = [_kit_problem(each, f"results[{number}]") for number, each in enumerate(metrics)]
    yield FileCheck(
        path, "; ".join(filter(None, problems)) or ("" if problems else "has no result")
    )
    yield FileCheck(folder / MANIFEST, _json_problem(folder / MANIFEST, ("model", "results")))
    for each in metrics:
        name = each.get("etdump_rel", each.get("etdump")) if isinstance(each, dict) else None
        if not isinstance(name, str):
            continue
        try:
            dump = inside(folder, name)
        except ValueError as error:
            yield FileCheck(path, f"is damaged: {error}")
            continue
        yield FileCheck(dump, _dump_problem(dump))


def _kit_problem(metrics: object, where: str) -> str:
    if not isinstance(metrics, dict):
        return f"{where} has no metrics"
    latency = metrics.get("latency_ms")
    if latency is None:
        return ""
    if not isinstance(latency, list) or not latency or not all(map(_is_time, latency)):
        return f"{where}.latency_ms is not a list of times above 0"
    figures = {"median": statistics.median(latency), "min": min(latency), "max": max(latency)}
    for name, expected in figures.items():
        said = metrics.get(f"{name}_ms", expected)
        if not isinstance(said, (int, float)) or not math.isclose(said, expected, rel_tol=1e-6):
            return f"{where}.{name}_ms is {said!r}, but latency_ms gives {expected:g}"
    return ""


def _is_time(value: object) -> bool:
    return isinstance(value, (int, float)) and value is not True and 0 < value < math.inf


def _ending(folder: Path, ending: str) -> Iterator[FileCheck]:
    """The files of a folder whose names end so; there must be one."""
    whole = ending in (MANIFEST, "analysis_summary.json")
    files = [folder / ending] if whole else sorted(folder.glob(f"*{ending}"))
    if not files:
        yield FileCheck(folder / f"*{ending}", "is missing")
    for file in files:
        if ending in _JSON_KEYS:
            yield FileCheck(file, _json_problem(file, _JSON_KEYS[ending]))
        elif ending in _CSV_COLUMNS:
            yield FileCheck(file, _csv_problem(file, _CSV_COLUMNS[ending]))
        else:
            yield FileCheck(file)


def _json_problem(path: Path, keys: Sequence[str]) -> str:
    if not path.exists():
        return "is missing"
    try:
        document: Any = read_json(path, remedy="")
    except Sme2Error as error:
        return str(error).removeprefix(f"{path} ").strip()
    if not isinstance(document, dict):
        return "is not an object"
    missing = [key for key in keys if key not in document]
    return f"lacks the keys {', '.join(missing)}" if missing else ""


def _csv_problem(path: Path, columns: tuple[str, ...]) -> str:
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


def _dump_problem(path: Path) -> str:
    if not path.is_file():
        return "is missing"
    try:
        columns = read_etdump(path)
        if not columns.runs:
            return "holds no inference"
        build_profile(columns)
    except (Sme2Error, OSError) as error:
        return str(error).removeprefix(f"{path}: ")
    return ""


def _changed(folder: Path, name: str) -> str:
    """Whether a dump has changed since the manifest was written."""
    experiments: Any = read_members(folder / MANIFEST).get("experiments")
    try:
        hashes = {entry["etdump"]: entry["sha256"] for entry in experiments.values()}
    except (KeyError, TypeError, AttributeError):
        return ""
    if name not in hashes:
        return f"is not in {MANIFEST}"
    found = file_sha256(folder / name)
    return "" if hashes[name] == found else f"is not the file that {MANIFEST} lists"
