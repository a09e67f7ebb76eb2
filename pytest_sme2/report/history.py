"""The history: one small record per case and run, kept for years. What changed is found elsewhere.

Each run writes one file of JSON lines and never touches another. So branches and machines merge by
having all files in one folder, and a diff shows what came. A run takes a few kilobytes, which text
holds as well as a binary format would.
"""

from __future__ import annotations

import functools
import json
import math
import os
import re
import statistics
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from pytest_sme2.errors import RunError, Sme2Error, UsageError
from pytest_sme2.results import Arm, Estimate
from pytest_sme2.session.run_directory import CaseRecord
from pytest_sme2.system.files import decode, encode, safe_name, write_text
from pytest_sme2.system.processes import git
from pytest_sme2.system.reading import json_value, read_bytes
from pytest_sme2.timing.stats import centre_interval

# GitHub Actions, GitLab CI.
_VARIABLES = ("GITHUB_SHA", "CI_COMMIT_SHA")
_DIGITS = 12
# A report does not wait for long.
_SECONDS = 10.0


@functools.cache
def project_commit() -> str | None:
    """Its first digits, with a ``+`` where files are changed; None where there is no commit."""
    for name in _VARIABLES:
        value = os.environ.get(name, "")
        if re.fullmatch("[0-9a-f]{40,64}", value):
            return value[:_DIGITS]
    commit = _git("rev-parse", "HEAD")
    if commit is None or not re.fullmatch("[0-9a-f]{40,64}", commit):
        return None
    changed = _git("status", "--porcelain", "--untracked-files=no")
    return commit[:_DIGITS] + ("+" if changed else "")


def _git(*words: str) -> str | None:
    try:
        return git(Path(), *words, seconds=_SECONDS).strip()
    except RunError:
        return None


SCHEMA = 1
SUFFIX = ".jsonl"
_LARGEST = 1e18
_REMEDY = "Take the file out of the folder, or get it again from where it came."

Interval = tuple[float, float]


@dataclass(frozen=True)
class HistoryRecord:
    """One case of one run. Figures that a device cannot give are None or missing."""

    schema: int
    case: str
    device: str
    recorded: str
    """When, as ISO 8601 in UTC."""
    session: str
    commit: str | None
    """Of the project; with a ``+`` where files were changed."""
    threads: int = 1
    runner: str = ""
    """Which kind: ``wheel``, ``source`` or ``pair``."""
    conditions: Mapping[str, str] = field(default_factory=dict)
    """What else may change the speed of the machine: kernel, governor, clock, temperature."""
    versions: Mapping[str, str] = field(default_factory=dict)
    latency_ms: Mapping[Arm, float] = field(default_factory=dict)
    """Never of an emulator."""
    latency_interval_ms: Mapping[Arm, Interval] = field(default_factory=dict)
    """At 95 %; missing where there were too few processes."""
    yardstick_ms: float | None = None
    """What a program that never changes took meanwhile."""
    speedup: float | None = None
    speedup_interval: Interval | None = None
    best_speedup: float | None = None
    """The best with SME2 against the best without, over several numbers of threads."""
    best_speedup_interval: Interval | None = None
    best_threads: Mapping[Arm, int] = field(default_factory=dict)
    instructions: Mapping[Arm, int] = field(default_factory=dict)
    sme2_operators: int | None = None
    matrix_operators: int | None = None
    peak_bytes: Mapping[Arm, int] = field(default_factory=dict)
    pte_bytes: int | None = None
    pte_sha256: str = ""


def history_record(record: CaseRecord, commit: str | None = None) -> HistoryRecord:
    measured = record.measured
    structure = measured.structures.get(Arm.ON)
    medians = {} if measured.emulated else measured.medians_ns or {}
    timed = {arm: values for arm, values in medians.items() if values}
    intervals = {arm: _milliseconds(centre_interval(values)) for arm, values in timed.items()}
    yardstick, speedup, frontier = measured.yardstick_ns, measured.speedup, measured.frontier
    if frontier is not None and frontier.alone:
        frontier = None  # there is no SME2 to compare
    best = [] if frontier is None else [frontier.cells[index] for index in frontier.best]
    return HistoryRecord(
        schema=SCHEMA,
        case=record.id,
        device=measured.fingerprint.key,
        recorded=measured.recorded,
        session=measured.session,
        commit=commit,
        threads=measured.threads,
        runner=measured.runner,
        conditions=measured.conditions,
        versions=measured.versions,
        latency_ms={arm: _rounded(statistics.median(values)) for arm, values in timed.items()},
        latency_interval_ms={
            arm: interval for arm, interval in intervals.items() if interval is not None
        },
        yardstick_ms=None if yardstick is None else _rounded(yardstick),
        speedup=None if speedup is None else round(speedup.value, 4),
        speedup_interval=_bounds(speedup),
        best_speedup=None if frontier is None else round(frontier.speedup.value, 4),
        best_speedup_interval=None if frontier is None else _bounds(frontier.speedup),
        best_threads={cell.arm: cell.threads for cell in best},
        instructions={arm: cost.total.instructions for arm, cost in measured.costs.items()},
        sme2_operators=None if structure is None else structure.sme2,
        matrix_operators=None if structure is None else structure.matrix,
        peak_bytes=measured.peak_bytes or {},
        pte_bytes=measured.pte_bytes,
        pte_sha256=measured.pte_sha256,
    )


def _bounds(speedup: Estimate | None) -> Interval | None:
    # Of too few pairs, the interval has no upper end.
    if speedup is None or not math.isfinite(speedup.high):
        return None
    return round(speedup.low, 4), round(speedup.high, 4)


def _rounded(nanoseconds: float) -> float:
    return round(nanoseconds / 1e6, 6)


def _milliseconds(interval: Interval | None) -> Interval | None:
    return None if interval is None else (_rounded(interval[0]), _rounded(interval[1]))


def write_history(
    folder: Path, records: Sequence[CaseRecord], commit: str | None = None
) -> Path | None:
    """Add this run; its file is complete or not there. None where it has no figures.

    What could not be exported has none to compare with later ones. ``commit`` is that of a run
    that was made elsewhere.
    """
    made = [record for record in records if record.measured.structures]
    if not made:
        return None
    commit = commit or project_commit()
    lines = [json.dumps(encode(history_record(record, commit)), sort_keys=True) for record in made]
    path = folder / f"{safe_name(made[0].measured.session)}{SUFFIX}"
    write_text(path, "".join(f"{line}\n" for line in lines))
    return path


def read_history(folder: Path) -> list[HistoryRecord]:
    """All records below a folder, the oldest first. Any damage is an error with its place."""
    if not folder.is_dir():
        raise UsageError(f"There is no folder {str(folder)!r}. Make one with --sme2-history.")
    found = [record for path in sorted(folder.rglob(f"*{SUFFIX}")) for record in _records_of(path)]
    return sorted(found, key=lambda record: (record.recorded, record.session, record.case))


def _records_of(path: Path) -> Iterator[HistoryRecord]:
    for number, line in enumerate(read_bytes(path, remedy=_REMEDY).splitlines(), start=1):
        where = f"{path}:{number}"
        document = json_value(line, where, remedy=_REMEDY, finite=True)
        schema = document.get("schema") if isinstance(document, dict) else None
        if schema is not None and schema != SCHEMA:
            raise Sme2Error(f"{where} has schema {schema!r}, this version reads {SCHEMA}.")
        if any(not abs(number) < _LARGEST for number in _numbers(document)):
            raise Sme2Error(f"{where} is damaged: it has a number that no figure has. {_REMEDY}")
        yield decode(document, HistoryRecord, Path(where), remedy=_REMEDY)


def _numbers(value: object) -> Iterator[float]:
    """All of a JSON value."""
    if isinstance(value, dict | list):
        for entry in value.values() if isinstance(value, dict) else value:
            yield from _numbers(entry)
    elif isinstance(value, int | float):
        yield value
