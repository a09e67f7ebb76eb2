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
from typing import Any

from pytest_sme2.errors import Sme2Error, StorageError, UsageError
from pytest_sme2.results import Arm
from pytest_sme2.session.run_directory import CaseRecord
from pytest_sme2.system.files import decode
from pytest_sme2.system.reading import json_value
from pytest_sme2.timing.stats import centre_interval

FILE = "history.sqlite"
SCHEMA = 2
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
    """``ms``, ``x``, ``bytes``, or empty for a count."""
    exact: bool = True
    """Whether the same program always gives the same, so that every change is real."""
    worse: int = 1
    """1 where more is worse, -1 where less is, 0 where neither is."""

    def format(self, value: float) -> str:
        if self.unit == "bytes" and not self.exact:
            return f"{value / 1e6:,.1f} MB"
        if self.unit == "ms":
            return f"{value:,.4g} ms" if value < 1 else f"{value:,.3f} ms"
        return f"{value:,.2f}x" if self.unit == "x" else f"{value:,.0f}"


YARDSTICK = "yardstick"


def _by_arm(name: str, unit: str = "", *, exact: bool = True) -> list[Figure]:
    return [Figure(f"{name} ({arm})", unit, exact) for arm in sorted(Arm)]


FIGURES: Mapping[str, Figure] = {
    figure.name: figure
    for figure in (
        *_by_arm("latency", "ms", exact=False),  # never of an emulator
        Figure("speedup", "x", exact=False, worse=-1),
        # The best with SME2 against the best without, over several numbers of threads.
        Figure("best against best", "x", exact=False, worse=-1),
        *_by_arm("instructions"),
        Figure("operators on SME2", worse=-1),
        Figure("matrix operators", worse=0),
        *_by_arm("peak memory", "bytes", exact=False),
        Figure("program bytes", "bytes"),
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


def history_record(record: CaseRecord, commit: str | None = None) -> HistoryRecord:
    measured = record.measured
    frontier = measured.frontier
    if frontier is not None and frontier.alone:
        frontier = None  # there is no SME2 to compare
    best = [] if frontier is None else [frontier.cells[index] for index in frontier.best]
    figures: dict[str, Value] = {}

    def add(name: str, value: float | None, interval: Interval | None = None) -> None:
        if value is not None:
            figures[name] = (value, *(interval or (None, None)))

    for arm, values in ({} if measured.emulated else measured.medians_ns or {}).items():
        if values:
            interval = centre_interval(values)
            told = None if interval is None else (_rounded(interval[0]), _rounded(interval[1]))
            add(f"latency ({arm})", _rounded(statistics.median(values)), told)
    best_ratio = None if frontier is None else frontier.speedup
    for name, ratio in (("speedup", measured.speedup), ("best against best", best_ratio)):
        if ratio is not None:
            # Of too few pairs, the interval has no upper end.
            whole = math.isfinite(ratio.high)
            bounds = (round(ratio.low, 4), round(ratio.high, 4)) if whole else None
            add(name, round(ratio.value, 4), bounds)
    for arm, cost in measured.costs.items():
        add(f"instructions ({arm})", cost.total.instructions)
    for arm, peak in (measured.peak_bytes or {}).items():
        add(f"peak memory ({arm})", peak)
    structure, yardstick = measured.structures.get(Arm.ON), measured.yardstick_ns
    if structure is not None:
        add("operators on SME2", structure.sme2)
        add("matrix operators", structure.matrix)
    add("program bytes", measured.pte_bytes)
    add(YARDSTICK, None if yardstick is None else _rounded(yardstick))
    return HistoryRecord(
        case=record.id,
        device=measured.fingerprint.key,
        recorded=measured.recorded,
        session=measured.session,
        commit=commit,
        threads=measured.threads,
        runner=measured.runner,
        conditions={
            **measured.conditions,
            **({"phone": record.state["serial"]} if "serial" in record.state else {}),
            **{f"best threads ({cell.arm})": str(cell.threads) for cell in best},
        },
        versions=measured.versions,
        pte_sha256=measured.pte_sha256,
        figures=figures,
    )


def _rounded(nanoseconds: float) -> float:
    return round(nanoseconds / 1e6, 6)


_TEXTS = ("case", "device", "recorded", "session", "runner", "conditions", "versions", "pte_sha256")
_MAPPINGS = ("conditions", "versions")
_LIMITS = f"BETWEEN -{_LARGEST} AND {_LARGEST}"
# SQLite takes any type in any column unless it is told not to.
_TABLES = {
    "records": "CREATE TABLE records (id INTEGER PRIMARY KEY, "
    + ", ".join(f'"{name}" NOT NULL CHECK (typeof("{name}") = \'text\')' for name in _TEXTS)
    + ", \"commit\" CHECK (typeof(\"commit\") IN ('text', 'null'))"
    ", threads NOT NULL CHECK (typeof(threads) = 'integer'), UNIQUE (session, \"case\", device))",
    "figures": "CREATE TABLE figures (record INTEGER NOT NULL, figure TEXT NOT NULL, "
    f"value REAL NOT NULL CHECK (value {_LIMITS}), low REAL CHECK (low {_LIMITS}), "
    f"high REAL CHECK (high {_LIMITS}), PRIMARY KEY (record, figure)) WITHOUT ROWID",
}


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
                for table in _TABLES.values():
                    database.execute(table)
                database.execute(f"PRAGMA user_version = {SCHEMA}")
            for record in records:
                _add(database, record)
    except (OSError, sqlite3.Error) as error:
        raise StorageError(f"{path}: cannot be written: {error}. {_REMEDY}") from error


def _add(database: sqlite3.Connection, record: HistoryRecord) -> None:
    # A file name may contain bytes that are not text.
    texts: dict[str, Any] = {
        name: value.encode("utf-8", "backslashreplace").decode()
        if isinstance(value, str)
        else value
        for name in (*_TEXTS, "commit", "threads")
        for value in (getattr(record, name),)
    }
    texts |= {name: json.dumps(dict(texts[name]), sort_keys=True) for name in _MAPPINGS}
    database.execute(
        "DELETE FROM figures WHERE record IN (SELECT id FROM records "
        'WHERE session = :session AND "case" = :case AND device = :device)',
        texts,
    )
    added = database.execute(
        "INSERT OR REPLACE INTO records VALUES (NULL, :case, :device, :recorded, :session, "
        ":runner, :conditions, :versions, :pte_sha256, :commit, :threads)",
        texts,
    )
    database.executemany(
        "INSERT INTO figures VALUES (?, ?, ?, ?, ?)",
        [(added.lastrowid, name, *value) for name, value in record.figures.items()],
    )


def read_history(folder: Path) -> list[HistoryRecord]:
    """All records below a folder, the oldest first. Any damage is an error with its place."""
    if not folder.is_dir():
        raise UsageError(f"There is no folder {str(folder)!r}. Make one with --sme2-history.")
    found: dict[tuple[str, str, str], HistoryRecord] = {}
    for path in sorted(folder.rglob("*.sqlite")):
        # Two files may hold the same run.
        found |= {(each.session, each.case, each.device): each for each in _rows_of(path)}
    return sorted(found.values(), key=lambda each: (each.recorded, each.session, each.case))


def _rows_of(path: Path) -> Iterator[HistoryRecord]:
    if not path.is_file():
        raise Sme2Error(f"{path} cannot be read: it is not a plain file. {_REMEDY}")
    # Not read-only: what a killed writer left has to be rolled back.
    address = f"{path.resolve().as_uri()}?mode=rw"
    try:
        with contextlib.closing(
            sqlite3.connect(address, timeout=_PATIENCE_SECONDS, uri=True)
        ) as database:
            # Nothing that a file of somebody else defines is run.
            database.execute("PRAGMA trusted_schema = OFF")
            yield from _rows(database, path)
    except (sqlite3.Error, OverflowError) as error:
        raise Sme2Error(f"{path} cannot be read: {error}. {_REMEDY}") from error


def _rows(database: sqlite3.Connection, path: Path) -> Iterator[HistoryRecord]:
    ((schema,),) = database.execute("PRAGMA user_version")
    if schema != SCHEMA:
        raise Sme2Error(f"{path} has schema {schema!r}, this version reads {SCHEMA}.")
    # The tables are ours, and what they hold keeps to their rules.
    tables = dict(database.execute("SELECT name, sql FROM sqlite_master WHERE sql NOT NULL"))
    ((state,), *_) = database.execute("PRAGMA quick_check(1)")
    names = {name: name for (name,) in database.execute("SELECT DISTINCT figure FROM figures")}
    if tables != _TABLES or state != "ok" or not FIGURES.keys() >= names.keys():
        raise Sme2Error(f"{path} is damaged: {state}, or not of a history. {_REMEDY}")
    figures: dict[int, dict[str, Value]] = {}
    for record, name, value, low, high in database.execute("SELECT * FROM figures"):
        # Each name once in memory: there are millions of figures.
        figures.setdefault(record, {})[names[name]] = (value, low, high)

    @functools.cache
    def mapping(text: str) -> Mapping[str, str]:
        value = json_value(text, str(path), remedy=_REMEDY)
        found: Mapping[str, str] = decode(value, Mapping[str, str], path, remedy=_REMEDY)
        return found

    for number, *texts, commit, threads in database.execute("SELECT * FROM records"):
        facts = dict(zip(_TEXTS, texts, strict=True))
        facts |= {name: mapping(facts[name]) for name in _MAPPINGS}
        yield HistoryRecord(
            **facts, commit=commit, threads=threads, figures=figures.get(number, {})
        )
