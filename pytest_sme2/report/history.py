"""The history: the figures of each case and run, kept for years, and where each figure changed.

Each run is a file: writers never meet, and a run is there whole or not at all. To merge histories,
all files go into one folder.

A noisy figure has one model: levels, joined by steps and drifts. Every change rises in a straight
line from a first run to a last one; a step takes one run, a drift several. So a series is one level
plus the sum of such ramps. They are searched by least squares among all there can be, and stay if
they explain more than noise would. Wild runs count no more than three spreads. All constants were
set with ``python -m benchmarks.history``, where the truth is known. ruptures finds where pieces
begin, but has no cost for pieces that join.
"""

from __future__ import annotations

import bisect
import fnmatch
import itertools
import math
import statistics
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from pytest_sme2.errors import Sme2Error, UsageError
from pytest_sme2.export.variant import precision_of
from pytest_sme2.report.text import json_text
from pytest_sme2.report.versus_baseline import value_text
from pytest_sme2.results.case import CaseResult
from pytest_sme2.results.run import Arm
from pytest_sme2.session.run_directory import CaseRecord
from pytest_sme2.system.files import decode, encode, read_json, safe_name, write_json
from pytest_sme2.system.wording import count
from pytest_sme2.timing.stats import centre_interval, robust_spread

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


def pytorch_benchmark(records: Sequence[CaseRecord]) -> str:
    """The JSON of PyTorch's benchmark database, version 3; what is extra is text there."""
    entries: list[dict[str, Any]] = []
    for record in records:
        measured, device = record.measured, record.measured.fingerprint
        of = {
            "benchmark": {
                "name": "ExecuTorch",
                "mode": "inference",
                "dtype": precision_of(measured.variant),
                "extra_info": {
                    "variant": measured.variant,
                    "threads": str(measured.threads),
                    "emulated": str(measured.emulated).lower(),
                },
            },
            "model": {"name": measured.model, "type": "OSS model", "backend": "xnnpack"},
            "runners": [
                {"name": device.key, "type": device.target, "extra_info": dict(device.facts)}
            ],
            "dependencies": {
                package: {"version": version} for package, version in measured.versions.items()
            },
        }
        for name, (value, *ends) in history_record(record).figures.items():
            metric = {
                "name": f"{name} ({FIGURES[name].unit or 'count'})",
                "benchmark_values": [value],
                "target_value": 0,
                "extra_info": {
                    side: f"{end:g}"
                    for side, end in zip(("low", "high"), ends, strict=True)
                    if end is not None
                },
            }
            entries.append({**of, "metric": metric})
    return json_text(entries)


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


FEWEST = 15
"""Runs: with less nobody can tell a change from noise."""
SHORTEST = 4
"""Runs of one level: fewer may be one bad hour."""
_DRIFT = 5
# How much more than its number of parameters a change has to explain, in squared spreads.
_CHANGE, _SLOPE = 22.0, 8.0
# So little is tried: of two opposite changes, each alone explains little.
_TRIED, _MOST = 8.0, 30
_WILD = 3.0
_LEAST_SPREAD = 1e-4
# Places that explain less by so many squared spreads may be the true one as well. For a change of
# level in normal noise, 7.35 are 95 % (Hansen 2000, Econometrica 68, 575).
_LIKELIHOOD = 16.0
# More than for 95 % of normal noise: places and spread are estimated, and runs of a day are alike.
_WIDTH = 3.4

Floats = NDArray[np.float64]
Integers = NDArray[np.int64]
Size = tuple[float, float, float]
"""A logarithm, and its interval at 95 %."""


class Ramp(NamedTuple):
    """The places of the last run before a change, and of the first one after it."""

    first: int
    last: int

    @property
    def drift(self) -> bool:
        return self.last - self.first > 1


class Model:
    """What a series of values above 0 is made of."""

    def __init__(self, values: Sequence[float], places: Sequence[int]) -> None:
        """``places`` say how far runs are apart; some may be missing between them."""
        self._series, self._places = np.log(np.array(values)), np.array(places, dtype=float)
        self._runs = self._series.size
        self._calm = _without_wild(self._series)
        # A ramp is one of these columns less another: each begins to rise at one of the runs.
        self._bends = np.maximum(self._places[:, None] - self._places, 0)
        self._pairs = _pairs(self._runs)
        first, last = self._pairs.T
        both = self._bends.T @ self._bends
        # Of each ramp with itself.
        self._squares = both[first, first] - 2 * both[first, last] + both[last, last]
        self._squares /= (self._places[last] - self._places[first]) ** 2
        self.ramps = self._found()
        self.spread = self._spread(self.ramps)
        self._design = self._columns(self.ramps)
        self._inverse = np.linalg.pinv(self._design.T @ self._design)
        self._sizes = self._inverse @ self._design.T @ self._calm

    def levels(self) -> list[float]:
        """What each run would be without noise."""
        return [math.exp(level) for level in self._design @ self._sizes]

    def growth(self, first: int, last: int, without: Sequence[int] = ()) -> Size:
        """From one run to another, but for the changes whose numbers are given."""
        contrast = self._design[last] - self._design[first]
        contrast[[1 + number for number in without]] = 0.0
        value = float(contrast @ self._sizes)
        variance = max(float(contrast @ self._inverse @ contrast), 0.0)
        half = _WIDTH * self.spread * math.sqrt(variance)
        return value, value - half, value + half

    def size(self, number: int) -> Size:
        others = [other for other in range(len(self.ramps)) if other != number]
        return self.growth(0, self._runs - 1, others)

    def range(self, number: int) -> Ramp:
        """Between which runs the change lies; of a step at 95 %."""
        ramp = self.ramps[number]
        if ramp.drift:
            return ramp
        others = [*self.ramps[:number], *self.ramps[number + 1 :]]
        pairs, explained = self._explained(others, ramp, math.inf)
        likely = pairs[explained >= explained.max() - _LIKELIHOOD * self.spread**2]
        return Ramp(int(likely[:, 0].min()), int(likely[:, 1].max()))

    def _found(self) -> list[Ramp]:
        """Repeated, because they say which runs are wild."""
        # A drift found first would hide that two steps fit better.
        starts = [self._pruned(self._grown([], slope)) for slope in (_SLOPE, math.inf)]
        variance = min(map(self._spread, starts)) ** 2
        ramps = min(starts, key=lambda start: self._cost(start, variance))
        for _ in range(3):
            ramps = self._pruned(self._grown(ramps))
            fitted, wild = self._fitted(ramps), _WILD * self._spread(ramps)
            calm = fitted + np.clip(self._series - fitted, -wild, wild)
            if np.allclose(calm, self._calm, rtol=0, atol=1e-9):
                break
            self._calm = calm
        return sorted(ramps)

    def _columns(self, ramps: Sequence[Ramp]) -> Floats:
        """Ones, then each ramp from 0 to 1."""
        x, bends = self._places, self._bends
        rising = ((bends[:, a] - bends[:, b]) / (x[b] - x[a]) for a, b in ramps)
        return np.column_stack([np.ones(self._runs), *rising])

    def _fitted(self, ramps: Sequence[Ramp]) -> Floats:
        columns = self._columns(ramps)
        fitted: Floats = columns @ np.linalg.lstsq(columns, self._calm, rcond=None)[0]
        return fitted

    def _spread(self, ramps: Sequence[Ramp]) -> float:
        rest = self._series - self._fitted(ramps)
        clip = 2.5 * robust_spread(rest)
        free = max(self._runs - 1 - sum(2 + ramp.drift for ramp in ramps), 3)
        # 1.03: what clipping takes from normal noise.
        square = 1.03 * float(np.sum(np.clip(rest, -clip, clip) ** 2)) / free
        return max(math.sqrt(square), _LEAST_SPREAD)

    def _cost(self, ramps: Sequence[Ramp], variance: float) -> float:
        squares = (self._series - self._fitted(ramps)) ** 2 / variance
        parameters = sum(_CHANGE + _SLOPE * ramp.drift for ramp in ramps)
        return float(np.minimum(squares, _WILD**2).sum()) + parameters

    def _explained(
        self, others: Sequence[Ramp], near: Ramp | None, slope: float
    ) -> tuple[Integers, Floats]:
        """Ramps between others, with the squares that each explains beyond them."""
        low, high = (0, self._runs) if near is None else _room(near, others)
        first, last = self._pairs.T
        free = (first >= low) & (last <= high) & _compatible(first, last, others)
        pairs = self._pairs[free]
        basis: Floats = np.linalg.qr(self._columns(others))[0]
        new = self._squares[free] - (self._products(basis.T, pairs) ** 2).sum(axis=0)
        rest = self._calm - basis @ (basis.T @ self._calm)
        # What the others can nearly make themselves explains nothing of its own.
        found = np.where(new > 0.3, self._products(rest, pairs) ** 2 / np.maximum(new, 0.3), 0.0)
        return pairs, found - np.where(pairs[:, 1] - pairs[:, 0] > 1, slope, 0.0)

    def _products(self, values: Floats, pairs: Integers) -> Floats:
        """Of a series, or of several, with each ramp."""
        bends, (first, last) = values @ self._bends, pairs.T
        found: Floats = (bends[..., first] - bends[..., last]) / (
            self._places[last] - self._places[first]
        )
        return found

    def _best(
        self, others: Sequence[Ramp], variance: float, near: Ramp | None, slope: float
    ) -> tuple[float, Ramp | None]:
        pairs, explained = self._explained(others, near, slope * variance)
        if not explained.size:
            return 0.0, near
        best = int(np.argmax(explained))
        return float(explained[best]), Ramp(*pairs[best].tolist())

    def _grown(self, ramps: Sequence[Ramp], slope: float = _SLOPE) -> list[Ramp]:
        """With more, as long as they may be part of what is more than noise."""
        grown = list(ramps)
        variance = max(_noise(self._calm), _LEAST_SPREAD) ** 2
        while len(grown) < min(_MOST, self._runs // 5):
            explained, ramp = self._best(grown, variance, None, slope)
            if ramp is None or explained < _TRIED * variance:
                break
            grown.append(ramp)
        return grown

    def _pruned(self, ramps: Sequence[Ramp]) -> list[Ramp]:
        """Without those whose absence costs least, until each is needed."""
        kept = sorted(ramps)
        while kept:
            variance = self._spread(kept) ** 2
            best = min(self._fewer(kept, variance), key=lambda each: self._cost(each, variance))
            if self._cost(best, variance) >= self._cost(kept, variance):
                break
            kept = sorted(best)
        return kept

    def _fewer(self, ramps: Sequence[Ramp], variance: float) -> list[list[Ramp]]:
        """Without one; with one instead of two neighbours."""
        found = [[*ramps[:at], *ramps[at + 1 :]] for at in range(len(ramps))]
        for at in range(len(ramps) - 1):
            rest = [*ramps[:at], *ramps[at + 2 :]]
            both = Ramp(ramps[at].first, ramps[at + 1].last)
            found.append([*rest, self._best(rest, variance, both, _SLOPE)[1] or both])
        return found


def _noise(series: Floats) -> float:
    """The spread of a run, whatever levels and slopes there are."""
    return robust_spread(np.diff(series, 2)) / math.sqrt(6)


def _without_wild(series: Floats) -> Floats:
    """Before anything is known: near the median of seven runs, or at the ends near their line."""
    windows = np.lib.stride_tricks.sliding_window_view(series, 7)
    centre = np.arange(series.size)
    place = np.clip(centre - 3, 0, series.size - 7)
    slope = np.abs(np.median(np.diff(windows, axis=1), axis=1))[place]
    usual = np.median(windows, axis=1)[place]
    around = _WILD * max(_noise(series), _LEAST_SPREAD) + np.abs(centre - 3 - place) * slope
    found: Floats = np.clip(series, usual - around, usual + around)
    return found


def _pairs(runs: int) -> Integers:
    """All ramps: a step has a level on either side; a drift may begin or end with the series."""
    lengths, length = [1], _DRIFT
    while length < runs:
        lengths.append(length)
        # Of very long drifts, not each length is tried.
        length += 1 + length // 64
    first, reach = (each.ravel() for each in np.meshgrid(np.arange(runs), [*lengths, runs - 1]))
    last, drift = first + reach, reach > 1
    before = (first >= SHORTEST - 1) | (drift & (first == 0))
    after = (last <= runs - SHORTEST) | (drift & (last == runs - 1))
    found: Integers = np.stack([first, last], axis=1)[before & after]
    return found


def _room(ramp: Ramp, others: Sequence[Ramp]) -> tuple[int, int]:
    """Between the nearest ends of the others."""
    ends = [end for other in others for end in other]
    low = max((end for end in ends if end <= ramp.first), default=0)
    return low, min((end for end in ends if end >= ramp.last), default=1 << 30)


def _compatible(first: Integers, last: Integers, others: Sequence[Ramp]) -> NDArray[np.bool_]:
    """Either a level lies between two changes, or a drift touches one, or has a step within."""
    found, drift = np.ones(first.size, dtype=bool), last - first > 1
    for a, b in others:
        gap = np.maximum(first - b, a - last)
        within = np.maximum(np.minimum(first - a, b - last), np.minimum(a - first, last - b))
        far = (gap >= SHORTEST - 1) | ((gap == 0) & (drift | (b - a > 1)))
        found &= far | ((within >= SHORTEST - 1) & ~(drift & (b - a > 1)))
    return found


# So many spreads from its level, the last run is told.
_ODD = 4.0


class Point(NamedTuple):
    """A figure of one run."""

    run: HistoryRecord
    value: float


@dataclass(frozen=True)
class Change:
    """Of a figure, from the level of one run to that of another."""

    figure: Figure
    drift: bool
    first: int
    """The place of the last point before it; of a noisy step, before all where it may be."""
    last: int
    before: HistoryRecord
    after: HistoryRecord
    old: float
    new: float
    interval: Interval | None = None
    """Of the new level at 95 %; None where it is exact."""
    machine: bool = False
    """Whether the machine explains it, by its yardstick."""

    @property
    def tone(self) -> str:
        """``bad``, ``good`` or ``weak``: a class of the page's style."""
        return ("weak", "bad", "good")[self.figure.worse * (1 if self.new > self.old else -1)]

    @property
    def shares(self) -> list[float]:
        """Of the old figure, and the ends between which it lies; none where that is 0."""
        return [end / self.old - 1 for end in (self.new, *(self.interval or ())) if self.old]

    @property
    def effect(self) -> float:
        """To sort by: the same for a half and for the double."""
        return abs(math.log(self.new / self.old)) if self.old > 0 < self.new else math.inf

    def format(self) -> str:
        size, *ends = [f"{share:+.2%}" for share in self.shares] or [f"{self.new - self.old:+,.0f}"]
        return f"{size} [{', '.join(ends)}]" if ends else size

    def where(self) -> str:
        """Its commits, or days where none is known, and what else changed between them."""
        runs = (self.before, self.after)
        drift = f"a drift over {count(self.last - self.first, 'run')}" if self.drift else ""
        machine = "the machine, as its yardstick says" if self.machine else ""
        commits = "..".join(run.commit or run.recorded[:10] for run in runs)
        return "; ".join(filter(None, (commits, drift, machine, *version_changes(*runs))))


@dataclass(frozen=True)
class FigureHistory:
    """One figure over the runs of a series that have it."""

    figure: Figure
    points: tuple[Point, ...]
    changes: tuple[Change, ...]
    model: Model | None
    """None of an exact figure, and of one that has too few runs."""

    @property
    def summary(self) -> str:
        """What it is now, and what became of it."""
        value = self.points[-1].value
        now = self.figure.format(value)
        if not self.figure.exact and self.model is None:
            runs = count(len(self.points), "run")
            return f"{now}, {runs}: too few to look for changes, which {FEWEST} allow"
        told = "unchanged"
        if self.changes:
            old = self.changes[0].old
            whole = f"{self.changes[-1].new / old - 1:+.2%} " if old else ""
            told = f"{whole}in {count(len(self.changes), 'change')} from {self.figure.format(old)}"
        if self.model is not None:
            part = value / self.model.levels()[-1] - 1
            # One run may be a bad hour, but nobody shall miss it.
            if abs(math.log1p(part)) > _ODD * self.model.spread:
                told += f"; the last run is {part:+.1%} off, which {SHORTEST} such runs confirm"
        return f"{now}, {told}"

    def since(self, moment: str, window: int | None = None) -> int:
        """The place of the last point recorded no later, or of the first of the last runs."""
        place = bisect.bisect_right([point.run.recorded for point in self.points], moment) - 1
        return max(0, place, len(self.points) - (window or len(self.points)))

    def worse_by(self, start: int) -> Interval | None:
        """Between which parts the figure got worse from one run to the last, machines aside.

        None where nobody can tell.
        """
        worse, old, new = self.figure.worse, self.points[start].value, self.points[-1].value
        if not worse or self.figure.name == YARDSTICK:
            return None
        if self.figure.exact:
            least, most = sorted((old, new))
            part = most / least - 1 if least > 0 else math.inf
            part = 0.0 if old == new else part if (new > old) == (worse > 0) else -1.0
            return part, part
        if self.model is None:
            return None
        machines = [at for at, change in enumerate(self.changes) if change.machine]
        ends = self.model.growth(start, len(self.points) - 1, machines)[1:]
        low, high = sorted(math.expm1(worse * end) for end in ends)
        return low, high


@dataclass(frozen=True)
class Series:
    """The runs of one case on one device under one set of conditions, the oldest first."""

    name: str
    """With all that sets these runs apart."""
    runs: tuple[HistoryRecord, ...]
    tracks: tuple[FigureHistory, ...]

    @property
    def title(self) -> str:
        """With the number of runs and their days."""
        days = " to ".join(dict.fromkeys(self.runs[end].recorded[:10] for end in (0, -1)))
        return f"{self.name}: {count(len(self.runs), 'run')}, {days}"

    @property
    def changes(self) -> list[Change]:
        return [change for track in self.tracks for change in track.changes]

    def after(self, moment: str, window: int | None) -> Series:
        """With the changes of a part alone."""
        tracks = []
        for track in self.tracks:
            start = track.since(moment, window)
            later = tuple(change for change in track.changes if change.last > start)
            tracks.append(replace(track, changes=later))
        return replace(self, tracks=tuple(tracks))


def all_series(records: Sequence[HistoryRecord], figures: str = "*") -> list[Series]:
    """Sorted by name. Only runs on the same device, under the same conditions, are compared."""
    places: dict[tuple[str, str], int] = {}
    found: dict[str, list[HistoryRecord]] = {}
    for record in records:
        # A run that lacks this case may have others.
        places.setdefault((record.device, record.session), len(places))
        found.setdefault(_name(record), []).append(record)
    return [
        Series(name, tuple(runs), tuple(_tracks(runs, places, figures)))
        for name, runs in sorted(found.items())
    ]


def _name(record: HistoryRecord) -> str:
    """Clock and temperature are left out: they are never the same twice."""
    parts = [f"{record.case} on {record.device}"]
    parts += [f"{record.threads} threads"] if record.threads != 1 else []
    parts += [f"{record.runner} runner"] if record.runner not in ("", "wheel") else []
    governor = record.conditions.get("governor")
    return ", ".join([*parts, f"governor {governor}"] if governor else parts)


def _tracks(
    runs: Sequence[HistoryRecord], places: Mapping[tuple[str, str], int], figures: str
) -> Iterator[FigureHistory]:
    found: dict[str, FigureHistory] = {}
    # The yardstick first: its changes explain others.
    for name in sorted(FIGURES, key=lambda name: name != YARDSTICK):
        figure = FIGURES[name]
        known = (Point(run, run.figures[name][0]) for run in runs if name in run.figures)
        # No noisy figure can be 0: there is nothing to compare with.
        points = [point for point in known if figure.exact or point.value > 0]
        if points:
            machine = found[YARDSTICK].changes if YARDSTICK in found else ()
            found[name] = _track(figure, points, places, machine)
    names = fnmatch.filter(FIGURES, figures)
    return (found[name] for name in names if name in found)


def _track(
    figure: Figure,
    points: Sequence[Point],
    places: Mapping[tuple[str, str], int],
    machine: Sequence[Change],
) -> FigureHistory:
    model = None
    if not figure.exact and len(points) >= FEWEST:
        runs = [places[each.run.device, each.run.session] for each in points]
        model = Model([point.value for point in points], runs)
    made = () if model is None else _noisy(figure, points, model)
    timed = figure.unit == "ms"
    changes = tuple(
        replace(each, machine=timed and any(_alike(each, other) for other in machine))
        for each in (_exact(figure, points) if figure.exact else made)
    )
    return FigureHistory(figure, tuple(points), changes, model)


def _exact(figure: Figure, points: Sequence[Point]) -> Iterator[Change]:
    for at, (old, new) in enumerate(itertools.pairwise(points)):
        if new.value != old.value:
            yield Change(figure, False, at, at + 1, old.run, new.run, old.value, new.value)


def _noisy(figure: Figure, points: Sequence[Point], model: Model) -> Iterator[Change]:
    levels = model.levels()
    for number, ramp in enumerate(model.ramps):
        first, last = model.range(number)
        old = levels[ramp.first]
        new, low, high = (old * math.exp(part) for part in model.size(number))
        ends = (first, last, points[first].run, points[last].run)
        yield Change(figure, ramp.drift, *ends, old, new, (low, high))


def _alike(change: Change, machine: Change) -> bool:
    """At the same time, the same way, and the least of one no more than the most of the other."""
    meet = change.before.recorded < machine.after.recorded
    meet &= machine.before.recorded < change.after.recorded
    ours, theirs = (
        sorted(abs(math.log1p(part)) for part in each.shares[1:]) for each in (change, machine)
    )
    same = (machine.new > machine.old) == (change.new > change.old)
    return meet and same and ours[0] <= theirs[1]


def version_changes(before: HistoryRecord, after: HistoryRecord) -> list[str]:
    """Versions, and the system's kernel, that differ between two runs."""
    then, now = (
        {**run.versions, "kernel": run.conditions.get("kernel")} for run in (before, after)
    )
    return [
        f"{name} {then.get(name) or 'none'} → {now.get(name) or 'none'}"
        for name in sorted({*then, *now})
        if then.get(name) != now.get(name)
    ]
