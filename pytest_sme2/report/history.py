"""The history: the figures of each case and run, kept for years. What changed is found elsewhere.

Each run is a file: writers never meet, and a run is there whole or not at all. To merge histories,
all files go into one folder.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from pytest_sme2.errors import Sme2Error, UsageError
from pytest_sme2.report.versus_baseline import value_text
from pytest_sme2.results import Arm, CaseResult
from pytest_sme2.session.run_directory import CaseRecord
from pytest_sme2.system.files import decode, encode, read_json, safe_name, write_json
from pytest_sme2.timing.stats import centre_interval

SCHEMA = 4
_LARGEST = 1e18
_REMEDY = "Take the file out of the folder, or get it again from where it came."

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
        ends = {abs(end) for value in self.figures.values() for end in value if end is not None}
        if not self.figures.keys() <= FIGURES.keys() or max(ends, default=0) > _LARGEST:
            raise ValueError(f"{self.figures!r} are no figures of a case")


def history_record(record: CaseRecord, commit: str | None = None) -> HistoryRecord:
    measured = record.measured
    same = ("recorded", "session", "threads", "runner", "conditions", "versions", "pte_sha256")
    return HistoryRecord(
        # A file name may contain bytes that are not text.
        case=record.id.encode("utf-8", "backslashreplace").decode(),
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


def write_history(folder: Path, records: Sequence[CaseRecord], commit: str | None) -> Path | None:
    """Add this run, or write it anew; None without any figures.

    What could not be exported has none to compare with later ones. ``commit`` is what was measured.
    """
    made = [record for record in records if record.measured.structures]
    return add_records(folder, [history_record(each, commit) for each in made]) if made else None


def add_records(folder: Path, records: Sequence[HistoryRecord]) -> Path:
    path = folder / f"{safe_name(records[0].session)}.json"
    write_json(path, {"schema": SCHEMA, "records": [encode(record) for record in records]})
    return path


def read_history(folder: Path) -> list[HistoryRecord]:
    """All records below a folder, the oldest first. Any damage is an error with its place."""
    if not folder.is_dir():
        raise UsageError(f"There is no folder {str(folder)!r}. Make one with --sme2-history.")
    found: dict[tuple[str, str, str], HistoryRecord] = {}
    # Earlier versions wrote databases: nobody shall believe that they were read.
    for path in sorted((*folder.rglob("*.json"), *folder.rglob("*.sqlite"))):
        document = read_json(path, remedy=_REMEDY, strict=True)
        schema = document.get("schema") if isinstance(document, dict) else None
        if schema != SCHEMA:
            raise Sme2Error(f"{path} has schema {schema!r}, this version reads {SCHEMA}. {_REMEDY}")
        # Two files may hold the same run.
        for each in decode(document.get("records"), list[HistoryRecord], path, remedy=_REMEDY):
            found[each.session, each.case, each.device] = each
    return sorted(found.values(), key=lambda each: (each.recorded, each.session, each.case))
