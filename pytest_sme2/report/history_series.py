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
    """From the level of one run to that of another, and no sooner or later."""

    kind: str
    """``step`` or ``drift``."""
    first: int
    """The place of the last point before it; of a noisy step, before all where it may be."""
    last: int
    before: HistoryRecord
    after: HistoryRecord
    old: float
    new: float
    interval: Interval | None
    """Of the new level at 95 %; None where it is exact."""
    machine: bool = False
    """Whether the machine explains it, by its yardstick."""

    @property
    def share(self) -> float | None:
        """Of the old figure; None where that is 0."""
        return self.new / self.old - 1 if self.old else None

    @property
    def effect(self) -> float:
        """To sort by: the same for a half and for the double."""
        return abs(math.log(self.new / self.old)) if self.old > 0 < self.new else math.inf

    def format(self) -> str:
        if self.share is None:
            return f"{self.new - self.old:+,.0f}"
        if self.interval is None:
            return f"{self.share:+.2%}"
        return f"{self.share:+.2%} [{', '.join(f'{part:+.2%}' for part in self.shares)}]"

    @property
    def shares(self) -> Interval:
        """Between which the share lies."""
        low, high = self.interval or (self.new, self.new)
        return low / self.old - 1, high / self.old - 1

    @property
    def label(self) -> str:
        return self.format().partition(" ")[0]

    def tone(self, figure: Figure) -> str:
        """Whether it got worse or better, as a class of the page's style."""
        direction = (self.new > self.old) - (self.new < self.old)
        return {1: "bad", -1: "good", 0: "weak"}[direction * figure.worse]

    def where(self) -> str:
        """Its commits, or days where none is known, and what else changed between them."""
        runs = (self.before, self.after)
        text = "..".join(run.commit or run.recorded[:10] for run in runs)
        drift = f"a drift over {count(self.last - self.first, 'run')}"
        more = [drift] if self.kind == "drift" else []
        more += ["the machine, as its yardstick says"] if self.machine else []
        return "; ".join([text, *more, *version_changes(*runs)])


@dataclass(frozen=True)
class FigureHistory:
    """One figure over the runs of a series that have it."""

    figure: Figure
    points: tuple[Point, ...]
    changes: tuple[Change, ...]
    model: Model | None = None
    """None of an exact figure, and of one that has too few runs."""

    @property
    def summary(self) -> str:
        """What became of it, in words."""
        runs = len(self.points)
        if not self.figure.exact and self.model is None:
            return f"{count(runs, 'run')}: too few to look for changes, which {FEWEST} allow"
        text = "unchanged"
        if self.changes:
            whole = self.changes[-1].new / self.changes[0].old - 1 if self.changes[0].old else None
            told = "" if whole is None else f"{whole:+.2%} "
            old = self.figure.format(self.changes[0].old)
            text = f"{told}in {count(len(self.changes), 'change')} from {old}"
        return "; ".join([text, *self._odd()])

    def _odd(self) -> Iterator[str]:
        """One run may be a bad hour, but nobody shall miss it."""
        if self.model is not None:
            usual = self.model.levels()[-1]
            part = self.points[-1].value / usual - 1
            if abs(math.log1p(part)) > _ODD * self.model.spread:
                yield f"the last run is {part:+.1%} off, which {SHORTEST} such runs would confirm"

    def since(self, moment: str, window: int | None = None) -> int:
        """The place of the last point recorded no later, or of the first of the last runs."""
        place = bisect.bisect_right([point.run.recorded for point in self.points], moment) - 1
        return max(0, place, len(self.points) - (window or len(self.points)))

    def after(self, start: int) -> FigureHistory:
        """Of its changes, those that reach beyond a point."""
        return replace(self, changes=tuple(each for each in self.changes if each.last > start))

    @property
    def now(self) -> str:
        value, interval = self.points[-1][1:]
        told = [self.figure.format(end) for end in interval or ()]
        return self.figure.format(value) + (f" [{', '.join(told)}]" if told else "")

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
        size = self.model.growth(start, last, machines)
        low, high = (math.exp(figure.worse * end) - 1 for end in (size.low, size.high))
        return min(low, high), max(low, high)


def _worse(figure: Figure, old: float, new: float) -> float:
    if old == new:
        return 0.0
    if old <= 0 or new <= 0:
        return math.inf if (new > old) == (figure.worse > 0) else -1.0
    return (new / old if figure.worse > 0 else old / new) - 1


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
    def changes(self) -> list[tuple[FigureHistory, Change]]:
        return [(track, change) for track in self.tracks for change in track.changes]

    def after(self, moment: str, window: int | None) -> Series:
        """With the changes of a part alone."""
        tracks = (track.after(track.since(moment, window)) for track in self.tracks)
        return replace(self, tracks=tuple(tracks))

    @property
    def span(self) -> str:
        """How many runs, and over which days."""
        days = " to ".join(dict.fromkeys(self.runs[end].recorded[:10] for end in (0, -1)))
        return f"{count(len(self.runs), 'run')}, {days}"


def all_series(records: Sequence[HistoryRecord], figures: str = "*") -> list[Series]:
    """Sorted by name. Only runs on the same device, under the same conditions, are compared."""
    places: dict[str, dict[str, int]] = {}
    found: dict[tuple[str, str, tuple[str, ...]], list[HistoryRecord]] = {}
    for record in records:
        # A run that lacks this case may have others.
        known = places.setdefault(record.device, {})
        known.setdefault(record.session, len(known))
        key = (record.case, record.device, _conditions(record))
        found.setdefault(key, []).append(record)
    return [
        Series(*key, tuple(runs), tuple(_tracks(runs, places[key[1]], figures)))
        for key, runs in sorted(found.items())
    ]


def _conditions(record: HistoryRecord) -> tuple[str, ...]:
    """Clock and temperature are left out: they are never the same twice."""
    governor = record.conditions.get("governor")
    known = {
        f"{record.threads} threads": record.threads != 1,
        f"{record.runner} runner": record.runner not in ("", "wheel"),
        f"governor {governor}": governor,
    }
    return tuple(text for text, apart in known.items() if apart)


def _tracks(
    runs: Sequence[HistoryRecord], places: Mapping[str, int], figures: str
) -> Iterator[FigureHistory]:
    points: dict[str, list[Point]] = {}
    for run in runs:
        for name, (value, low, high) in run.figures.items():
            # No noisy figure can be 0: there is nothing to compare with.
            if FIGURES[name].exact or value > 0:
                interval = None if low is None or high is None else (low, high)
                points.setdefault(name, []).append(Point(run, value, interval))
    tracks = [
        _track(figure, points[name], places) for name, figure in FIGURES.items() if name in points
    ]
    machine = [
        change for track in tracks if track.figure.name == YARDSTICK for change in track.changes
    ]
    for track in tracks:
        if fnmatch.fnmatchcase(track.figure.name, figures):
            yield _explained(track, machine)


def _track(figure: Figure, points: Sequence[Point], places: Mapping[str, int]) -> FigureHistory:
    if figure.exact:
        return FigureHistory(figure, tuple(points), tuple(_exact(points)))
    if len(points) < FEWEST:
        return FigureHistory(figure, tuple(points), ())
    model = Model([point.value for point in points], [places[each.run.session] for each in points])
    return FigureHistory(figure, tuple(points), tuple(_noisy(points, model)), model)


def _exact(points: Sequence[Point]) -> Iterator[Change]:
    for at, (old, new) in enumerate(itertools.pairwise(points)):
        if new.value != old.value:
            yield Change("step", at, at + 1, old.run, new.run, old.value, new.value, None)


def _noisy(points: Sequence[Point], model: Model) -> Iterator[Change]:
    levels = model.levels()
    for number, ramp in enumerate(model.ramps):
        first, last = model.range(number)
        old, size = float(levels[ramp.first]), model.size(number)
        new, *interval = (old * math.exp(part) for part in size)
        yield Change(
            "drift" if ramp.drift else "step", first, last, points[first].run, points[last].run,
            old, new, (interval[0], interval[1]),
        )  # fmt: skip


def _explained(track: FigureHistory, machine: Sequence[Change]) -> FigureHistory:
    """Times that changed with the yardstick, in its direction, and by no more than it."""
    if track.figure.unit != "ms":
        return track
    changes = (
        replace(change, machine=any(_alike(change, other) for other in machine))
        for change in track.changes
    )
    return replace(track, changes=tuple(changes))


def _alike(change: Change, machine: Change) -> bool:
    """The least that one may be is no more than the most that the other may be."""
    meet = (
        change.before.recorded < machine.after.recorded
        and machine.before.recorded < change.after.recorded
    )
    up = machine.new > machine.old
    ours, theirs = (
        sorted(abs(math.log1p(part)) for part in each.shares) for each in (change, machine)
    )
    return meet and up == (change.new > change.old) and ours[0] <= theirs[1]


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
