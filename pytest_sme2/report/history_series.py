"""Runs that can be compared, figure by figure, and where each figure changed. Pure."""

from __future__ import annotations

import bisect
import fnmatch
import itertools
import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple

from pytest_sme2.report.history import FIGURES, YARDSTICK, Figure, HistoryRecord, Interval
from pytest_sme2.report.history_model import FEWEST, SHORTEST, Model
from pytest_sme2.system.wording import count

# So many spreads from its level, the last run is told.
_ODD = 4.0


class Point(NamedTuple):
    """A figure of one run."""

    run: HistoryRecord
    value: float
    interval: Interval | None = None


@dataclass(frozen=True)
class Change:
    """Of a figure, from the level of one run to that of another."""

    kind: str
    """``step`` or ``drift``."""
    first: int
    """The place of the last point before it; of a noisy step, before all where it may be."""
    last: int
    before: HistoryRecord
    after: HistoryRecord
    old: float
    new: float
    interval: Interval | None = None
    """Of the new level at 95 %; None where it is exact."""
    tone: str = ""
    """``bad``, ``good`` or ``weak``: a class of the page's style."""
    machine: bool = False
    """Whether the machine explains it, by its yardstick."""

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
        told = ["..".join(run.commit or run.recorded[:10] for run in runs)]
        if self.kind == "drift":
            told.append(f"a drift over {count(self.last - self.first, 'run')}")
        if self.machine:
            told.append("the machine, as its yardstick says")
        return "; ".join([*told, *version_changes(*runs)])


@dataclass(frozen=True)
class FigureHistory:
    """One figure over the runs of a series that have it."""

    figure: Figure
    points: tuple[Point, ...]
    changes: tuple[Change, ...] = ()
    model: Model | None = None
    """None of an exact figure, and of one that has too few runs."""

    @property
    def summary(self) -> str:
        """What it is now, and what became of it."""
        value, interval = self.points[-1][1:]
        now = self.figure.format(value)
        if interval is not None:
            now += f" [{', '.join(self.figure.format(end) for end in interval)}]"
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

    def after(self, start: int) -> FigureHistory:
        """Of its changes, those that reach beyond a point."""
        return replace(self, changes=tuple(each for each in self.changes if each.last > start))

    def worse_by(self, start: int) -> Interval | None:
        """Between which parts the figure got worse from one run to the last, machines aside.

        None where nobody can tell.
        """
        figure, last = self.figure, len(self.points) - 1
        if not figure.worse or figure.name == YARDSTICK or start >= last:
            return None
        if figure.exact:
            part = _worse(figure, self.points[start].value, self.points[last].value)
            return part, part
        if self.model is None:
            return None
        machines = [at for at, change in enumerate(self.changes) if change.machine]
        ends = self.model.growth(start, last, machines)[1:]
        low, high = sorted(math.expm1(figure.worse * end) for end in ends)
        return low, high


def _worse(figure: Figure, old: float, new: float) -> float:
    if old == new:
        return 0.0
    if old <= 0 or new <= 0:
        return math.inf if (new > old) == (figure.worse > 0) else -1.0
    return (new / old if figure.worse > 0 else old / new) - 1


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
    def changes(self) -> list[tuple[FigureHistory, Change]]:
        return [(track, change) for track in self.tracks for change in track.changes]

    def after(self, moment: str, window: int | None) -> Series:
        """With the changes of a part alone."""
        tracks = (track.after(track.since(moment, window)) for track in self.tracks)
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
    points: dict[str, list[Point]] = {}
    for run in runs:
        for name, (value, low, high) in run.figures.items():
            # No noisy figure can be 0: there is nothing to compare with.
            if FIGURES[name].exact or value > 0:
                interval = None if low is None or high is None else (low, high)
                points.setdefault(name, []).append(Point(run, value, interval))
    machine: list[Change] = []
    if YARDSTICK in points:
        machine += _track(FIGURES[YARDSTICK], points[YARDSTICK], places, []).changes
    for name, figure in FIGURES.items():
        if name in points and fnmatch.fnmatchcase(name, figures):
            yield _track(figure, points[name], places, machine)


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
    made = _exact(points) if figure.exact else [] if model is None else _noisy(points, model)
    changes = (
        replace(
            each,
            tone=("weak", "bad", "good")[figure.worse * (1 if each.new > each.old else -1)],
            machine=figure.unit == "ms" and any(_alike(each, other) for other in machine),
        )
        for each in made
    )
    return FigureHistory(figure, tuple(points), tuple(changes), model)


def _exact(points: Sequence[Point]) -> Iterator[Change]:
    for at, (old, new) in enumerate(itertools.pairwise(points)):
        if new.value != old.value:
            yield Change("step", at, at + 1, old.run, new.run, old.value, new.value)


def _noisy(points: Sequence[Point], model: Model) -> Iterator[Change]:
    levels = model.levels()
    for number, ramp in enumerate(model.ramps):
        kind, (first, last) = "drift" if ramp.drift else "step", model.range(number)
        old = levels[ramp.first]
        new, low, high = (old * math.exp(part) for part in model.size(number))
        runs = (points[first].run, points[last].run)
        yield Change(kind, first, last, *runs, old, new, (low, high))


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
