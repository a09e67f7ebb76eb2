"""Runs that can be compared, figure by figure, and where each figure changed. Pure."""

from __future__ import annotations

import itertools
import math
import statistics
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from pytest_sme2.report.change_points import (
    FEWEST,
    LEAST_CHANGE,
    available,
    change_points,
)
from pytest_sme2.report.history import HistoryRecord, Interval
from pytest_sme2.system.wording import count

YARDSTICK = "yardstick"


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


@dataclass(frozen=True)
class Point:
    """A figure of one run."""

    run: HistoryRecord
    value: float
    interval: Interval | None = None


@dataclass(frozen=True)
class Step:
    """A change of a figure, somewhere after the run ``before`` and not after the run ``after``."""

    at: int
    """The position of the first point of the new level, of a noisy figure most likely."""
    before: HistoryRecord
    after: HistoryRecord
    old: float
    new: float

    @property
    def change(self) -> float | None:
        """As a share of the old figure; None where that is 0."""
        return self.new / self.old - 1 if self.old else None

    def format(self) -> str:
        return f"{self.new - self.old:+,.0f}" if self.change is None else f"{self.change:+.2%}"

    def commits(self) -> str:
        """The range, by days where no commit is known."""
        return "..".join(run.commit or run.recorded[:10] for run in (self.before, self.after))


@dataclass(frozen=True)
class FigureHistory:
    """One figure over the runs of a series that have it."""

    figure: Figure
    points: tuple[Point, ...]
    steps: tuple[Step, ...]
    skip_reason: str = ""
    """Why no step was looked for; empty if one was."""
    drift: Step | None = None
    """From the first run to the last, where a steady drift explains the runs better than steps."""

    @property
    def whole(self) -> Step | None:
        """All steps together, or the drift."""
        if not self.steps:
            return self.drift
        first, last = self.steps[0], self.steps[-1]
        return Step(last.at, first.before, last.after, first.old, last.new)


@dataclass(frozen=True)
class Series:
    """The runs of one case on one device under one set of conditions, the oldest first."""

    case: str
    device: str
    conditions: tuple[str, ...]
    """What else sets these runs apart, in words."""
    runs: tuple[HistoryRecord, ...]
    tracks: tuple[FigureHistory, ...]

    @property
    def name(self) -> str:
        return ", ".join((f"{self.case} on {self.device}", *self.conditions))

    @property
    def span(self) -> str:
        """How many runs, and over which days."""
        days = " to ".join(dict.fromkeys(self.runs[end].recorded[:10] for end in (0, -1)))
        return f"{count(len(self.runs), 'run')}, {days}"


def all_series(records: Sequence[HistoryRecord]) -> list[Series]:
    """Sorted by name. Only runs on the same device, under the same conditions, are compared."""
    found: dict[tuple[str, str, tuple[str, ...]], list[HistoryRecord]] = {}
    for record in records:
        key = (record.case, record.device, _conditions(record))
        found.setdefault(key, []).append(record)
    return [Series(*key, tuple(runs), tuple(_tracks(runs))) for key, runs in sorted(found.items())]


def _conditions(record: HistoryRecord) -> tuple[str, ...]:
    """Clock and temperature are left out: they are never the same twice."""
    governor = record.conditions.get("governor")
    return tuple(
        told
        for told, apart in (
            (f"{record.threads} threads", record.threads != 1),
            (f"{record.runner} runner", record.runner not in ("", "wheel")),
            (f"governor {governor}", governor),
        )
        if apart
    )


def _figures(record: HistoryRecord) -> Iterator[tuple[Figure, float | None, Interval | None]]:
    for arm, latency in sorted(record.latency_ms.items()):
        interval = record.latency_interval_ms.get(arm)
        yield Figure(f"latency ({arm})", "ms", exact=False), latency, interval
    yield Figure("speedup", "x", exact=False, worse=-1), record.speedup, record.speedup_interval
    best = Figure("best against best", "x", exact=False, worse=-1)
    yield best, record.best_speedup, record.best_speedup_interval
    for arm, instructions in sorted(record.instructions.items()):
        yield Figure(f"instructions ({arm})"), instructions, None
    yield Figure("operators on SME2", worse=-1), record.sme2_operators, None
    yield Figure("matrix operators", worse=0), record.matrix_operators, None
    for arm, peak in sorted(record.peak_bytes.items()):
        yield Figure(f"peak memory ({arm})", "bytes", exact=False), peak, None
    yield Figure("program bytes", "bytes"), record.pte_bytes, None
    # The machine's own speed: where it changed as well, no program is to blame.
    yield Figure(YARDSTICK, "ms", exact=False), record.yardstick_ms, None


def _tracks(runs: Sequence[HistoryRecord]) -> Iterator[FigureHistory]:
    points: dict[Figure, list[Point]] = {}
    for run in runs:
        for figure, value, interval in _figures(run):
            # No noisy figure can be 0: there is nothing to compare with.
            if value is not None and (figure.exact or value > 0):
                points.setdefault(figure, []).append(Point(run, value, interval))
    for figure, found in points.items():
        if figure.exact:
            yield FigureHistory(figure, tuple(found), tuple(_exact_steps(found)))
        elif len(found) < FEWEST:
            few = f"too few to look for steps, from {FEWEST} runs on they are"
            yield FigureHistory(figure, tuple(found), (), few)
        elif not available():
            yield FigureHistory(figure, tuple(found), (), "steps were not looked for")
        else:
            steps = tuple(_noisy_steps(found))
            drift = _drift(found, steps) if steps else None
            yield FigureHistory(figure, tuple(found), () if drift else steps, drift=drift)


def _exact_steps(points: Sequence[Point]) -> Iterator[Step]:
    """A slow drift of changes below ``LEAST_CHANGE`` is one step, when together they reach it.

    Counts are exact, but another C library moves them by a few instructions.
    """
    level = points[0].value
    for at in range(1, len(points)):
        value = points[at].value
        if abs(value - level) > LEAST_CHANGE * abs(level):
            yield Step(at, points[at - 1].run, points[at].run, level, value)
            level = value


def _noisy_steps(points: Sequence[Point]) -> Iterator[Step]:
    for found in change_points([point.value for point in points]):
        before, after = points[found.earliest - 1].run, points[found.latest].run
        yield Step(found.at, before, after, found.old, found.new)


def _drift(points: Sequence[Point], steps: Sequence[Step]) -> Step | None:
    """The whole change, where a straight line fits the logarithms better than levels do.

    Many small changes must not be blamed on the one commit in their middle. Levels have more
    parameters than a line, which Schwarz's criterion counts.
    """
    import numpy as np

    values = np.log([point.value for point in points])
    places = np.arange(len(values))
    line = np.polyval(np.polyfit(places, values, 1), places)
    ends = [0, *(step.at for step in steps), len(values)]
    levels = np.concatenate(
        [np.full(b - a, values[a:b].mean()) for a, b in itertools.pairwise(ends)]
    )

    def misfit(fit: np.ndarray, parameters: int) -> float:
        error = max(float(np.mean((values - fit) ** 2)), 1e-12)
        return len(values) * float(np.log(error)) + parameters * float(np.log(len(values)))

    if misfit(line, 2) >= misfit(levels, 2 * len(steps) + 1):
        return None
    first, last = (float(np.exp(line[end])) for end in (0, -1))
    return Step(0, points[0].run, points[-1].run, first, last)


def latest(track: FigureHistory, window: int | None, since: str | None) -> FigureHistory:
    """The part that a limit is about: the last runs, or those from a commit's first run on.

    A figure that was not recorded at that commit has no such part.
    """
    start = max(0, len(track.points) - (window or len(track.points)))
    if since is not None:
        ours = (
            at
            for at, point in enumerate(track.points)
            if (point.run.commit or "").startswith(since)
        )
        start = max(start, next(ours, len(track.points)))
    return replace(
        track,
        points=track.points[start:],
        steps=tuple(step for step in track.steps if step.at > start),
    )


def worsened(track: FigureHistory) -> float | None:
    """By which part the figure got worse from its first run to its last, small changes added up.

    None where that cannot be told. Noisy runs count in groups, so that one of them says nothing.
    """
    group = 1 if track.figure.exact else 3
    if len(track.points) < 2 * group:
        return None
    old, new = (
        statistics.median(point.value for point in part)
        for part in (track.points[:group], track.points[-group:])
    )
    return _worse_by(track.figure, old, new)


def worst_step(track: FigureHistory) -> float | None:
    """By which part the worst of the steps made the figure worse; None where no step did."""
    changes = (_worse_by(track.figure, step.old, step.new) for step in track.steps)
    return max((change for change in changes if change is not None), default=None)


def _worse_by(figure: Figure, old: float, new: float) -> float | None:
    if not figure.worse or figure.name == YARDSTICK:
        return None
    if old <= 0 or new <= 0:
        return None if old == new else math.inf
    return (new / old if figure.worse > 0 else old / new) - 1


def version_changes(before: HistoryRecord, after: HistoryRecord) -> list[str]:
    """Versions, and the system's kernel, that differ between two runs."""
    then, now = (_versions(run) for run in (before, after))
    return [
        f"{name} {then.get(name, 'none')} → {now.get(name, 'none')}"
        for name in sorted({*then, *now})
        if then.get(name) != now.get(name)
    ]


def _versions(run: HistoryRecord) -> Mapping[str, str]:
    kernel = run.conditions.get("kernel")
    return {**run.versions, "kernel": kernel} if kernel else run.versions


def not_looked_for(series: Sequence[Series]) -> bool:
    """Whether a noisy figure had runs enough, but nothing to look for its steps with."""
    long = (track for each in series for track in each.tracks if len(track.points) >= FEWEST)
    return any(track.skip_reason for track in long)
