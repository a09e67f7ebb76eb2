"""The history: the figures of each case and run, kept for years. What changed is found elsewhere.

They are in an SQLite file: Python brings it, writers wait for each other, a run is there whole or
not at all, and 120,000 records are read in seconds. To merge histories, all files go into one
folder.
"""

from __future__ import annotations

import contextlib
import functools
import json
import math
import sqlite3
import statistics
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, get_type_hints

from pytest_sme2.errors import Sme2Error, StorageError, UsageError
from pytest_sme2.report.versus_baseline import value_text
from pytest_sme2.results import Arm, CaseResult
from pytest_sme2.session.run_directory import CaseRecord
from pytest_sme2.system.files import decode
from pytest_sme2.system.reading import json_value
from pytest_sme2.timing.stats import centre_interval

FILE = "history.sqlite"
SCHEMA = 3
_LARGEST = 1e18
_REMEDY = "Take the file out of the folder, or get it again from where it came."
# For as long a writer may wait for others.
_PATIENCE_SECONDS = 60.0

Interval = tuple[float, float]
Value = tuple[float, float | None, float | None]
"""And its interval at 95 %, where there is one."""


@dataclass(frozen=True)
class Figure:
    """One kind of number in a record."""

    name: str
    unit: str = ""
    """``ms``, ``ratio``, ``bytes``, or empty for a count."""
    exact: bool = True
    """Whether the same program always gives the same, so that every change is real."""
    worse: int = 1
    """1 where more is worse, -1 where less is, 0 where neither is."""

    def format(self, value: float) -> str:
        return value_text(value, self.unit) if self.unit else f"{value:,.0f}"


YARDSTICK = "yardstick"


def _by_arm(name: str, unit: str = "", *, exact: bool = True) -> list[Figure]:
    return [Figure(f"{name} ({arm})", unit, exact) for arm in sorted(Arm)]


FIGURES: Mapping[str, Figure] = {
    figure.name: figure
    for figure in (
        *_by_arm("latency", "ms", exact=False),  # never of an emulator
        Figure("speedup", "ratio", exact=False, worse=-1),
        # Of earlier versions.
        Figure("best against best", "ratio", exact=False, worse=-1),
        *_by_arm("instructions"),
        Figure("operators on SME2", worse=-1),
        Figure("matrix operators", worse=0),
        *_by_arm("peak memory", "bytes", exact=False),
        Figure("program bytes"),
        # What a program that never changes took meanwhile: the machine's own speed.
        Figure(YARDSTICK, "ms", exact=False),
    )
}


@dataclass(frozen=True)
class HistoryRecord:
    """One case of one run."""

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
    pte_sha256: str = ""
    figures: Mapping[str, Value] = field(default_factory=dict)
    """By the names in FIGURES; what a device cannot give is missing."""

    def __post_init__(self) -> None:
        ends: set[Any] = {end for value in self.figures.values() for end in value} - {None}
        known = FIGURES.keys() >= self.figures.keys() and {*map(type, ends)} <= {int, float}
        if not known or max(map(abs, ends), default=0) > _LARGEST:
            raise ValueError(f"{self.figures!r} are no figures of a case")


def history_record(record: CaseRecord, commit: str | None = None) -> HistoryRecord:
    measured = record.measured
    same = ("recorded", "session", "threads", "runner", "conditions", "versions", "pte_sha256")
    return HistoryRecord(
        case=record.id,
        device=measured.fingerprint.key,
        commit=commit,
        figures={name: value for name, value in _figures(measured) if value[0] is not None},
        **{name: getattr(measured, name) for name in same},
    )


def _figures(measured: CaseResult) -> Iterator[tuple[str, Any]]:
    """With None for what there is not."""
    for arm, values in ({} if measured.emulated else measured.medians_ns or {}).items():
        if values:
            ends = centre_interval(values) or (None, None)
            yield f"latency ({arm})", tuple(map(_milliseconds, (statistics.median(values), *ends)))
    if (ratio := measured.speedup) is not None:
        # Of too few pairs, the interval has no upper end.
        ends = (ratio.low, ratio.high) if math.isfinite(ratio.high) else (None, None)
        yield "speedup", tuple(end and round(end, 4) for end in (ratio.value, *ends))
    for arm, cost in measured.costs.items():
        yield f"instructions ({arm})", (cost.total.instructions, None, None)
    for arm, peak in (measured.peak_bytes or {}).items():
        yield f"peak memory ({arm})", (peak, None, None)
    structure = measured.structures.get(Arm.ON)
    if structure is not None:
        yield "operators on SME2", (structure.sme2, None, None)
        yield "matrix operators", (structure.matrix, None, None)
    yield "program bytes", (measured.pte_bytes, None, None)
    yield YARDSTICK, (_milliseconds(measured.yardstick_ns), None, None)


def _milliseconds(nanoseconds: float | None) -> float | None:
    return None if nanoseconds is None else round(nanoseconds / 1e6, 6)


# The ends of a figure are looked at by the record itself, which is ten times faster.
_KINDS = get_type_hints(HistoryRecord) | {"figures": dict[str, tuple[Any, Any, Any]]}
_JSON = ("conditions", "versions", "figures")
_TABLE = (
    f"CREATE TABLE records ({', '.join(map(json.dumps, _KINDS))}, "
    'PRIMARY KEY (session, "case", device)) WITHOUT ROWID'
)


def write_history(folder: Path, records: Sequence[CaseRecord], commit: str | None) -> Path | None:
    """Add this run, or write it anew; it is there whole or not at all. None without any figures.

    What could not be exported has none to compare with later ones. ``commit`` is what was measured.
    """
    made = [record for record in records if record.measured.structures]
    if not made:
        return None
    path = folder / FILE
    add_records(path, [history_record(record, commit) for record in made])
    return path


def add_records(path: Path, records: Sequence[HistoryRecord]) -> None:
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with (
            contextlib.closing(sqlite3.connect(path, timeout=_PATIENCE_SECONDS)) as database,
            database,
        ):
            database.execute("BEGIN IMMEDIATE")
            if not database.execute("SELECT 1 FROM sqlite_master").fetchall():
                database.execute(_TABLE)
                database.execute(f"PRAGMA user_version = {SCHEMA}")
            rows = ([_stored(getattr(one, name)) for name in _KINDS] for one in records)
            database.executemany(
                "INSERT OR REPLACE INTO records VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)", rows
            )
    except (OSError, sqlite3.Error) as error:
        raise StorageError(f"{path}: cannot be written: {error}. {_REMEDY}") from error


def _stored(value: object) -> object:
    if isinstance(value, str):
        # A file name may contain bytes that are not text.
        return value.encode("utf-8", "backslashreplace").decode()
    return json.dumps(dict(value), sort_keys=True) if isinstance(value, Mapping) else value


def read_history(folder: Path) -> list[HistoryRecord]:
    """All records below a folder, the oldest first. Any damage is an error with its place."""
    if not folder.is_dir():
        raise UsageError(f"There is no folder {str(folder)!r}. Make one with --sme2-history.")
    found: dict[tuple[str, str, str], HistoryRecord] = {}
    for path in sorted(folder.rglob("*.sqlite")):
        # Two files may hold the same run.
        found |= {(each.session, each.case, each.device): each for each in _records_of(path)}
    return sorted(found.values(), key=lambda each: (each.recorded, each.session, each.case))


def _records_of(path: Path) -> Iterator[HistoryRecord]:
    if not path.is_file():
        raise Sme2Error(f"{path} cannot be read: it is not a plain file. {_REMEDY}")
    # Not read-only: what a killed writer left has to be rolled back.
    address = f"{path.resolve().as_uri()}?mode=rw"

    # Most is the same in many runs, and there are millions of figures: each is kept once.
    @functools.cache
    def value(name: str, stored: Any) -> Any:
        if name in _JSON:
            stored = json_value(str(stored), str(path), remedy=_REMEDY, finite=True)
        return decode(stored, _KINDS[name], f"{path}: {name}", remedy=_REMEDY)

    try:
        with contextlib.closing(
            sqlite3.connect(address, timeout=_PATIENCE_SECONDS, uri=True)
        ) as database:
            ((schema,),) = database.execute("PRAGMA user_version")
            if schema != SCHEMA:
                raise Sme2Error(f"{path} has schema {schema!r}, this version reads {SCHEMA}.")
            # Nothing that a file of somebody else defines is run.
            if [*database.execute("SELECT sql FROM sqlite_master WHERE sql NOT NULL")] != [
                (_TABLE,)
            ]:
                raise Sme2Error(f"{path} is damaged: it is not of a history. {_REMEDY}")
            for row in database.execute("SELECT * FROM records"):
                yield HistoryRecord(*map(value, _KINDS, row))
    except (sqlite3.Error, ValueError, OverflowError) as error:
        raise Sme2Error(f"{path} cannot be read: {error}. {_REMEDY}") from error
