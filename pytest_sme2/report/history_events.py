"""What happened to many figures at once: changes folded by the commits they lie between. Pure.

One commit may change a thousand figures: of all cases, with SME2 and without, on every device. That
is one event. A slow drift is one, and so is a machine that became slower.
"""

from __future__ import annotations

import fnmatch
import itertools
import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from pytest_sme2.report.history import YARDSTICK, HistoryRecord
from pytest_sme2.report.history_series import FigureHistory, Series, Step
from pytest_sme2.system.wording import count

# So many changes in one direction are a drift, if each is as small as this.
_CREEPING = 5
_SMALL = {True: 0.005, False: 0.03}
"""Of exact figures, and of noisy ones."""
# A machine explains no more than its yardstick shows, but for the noise.
_SLACK, _NOISE = 1.5, 0.01


@dataclass(frozen=True)
class HistoryChange:
    """A step or a drift of one figure."""

    series: Series
    track: FigureHistory
    step: Step
    first: int
    """The place of the last commit that has the old figure, among all of the history."""
    last: int
    """The place of the first commit that surely has the new one."""

    @property
    def size(self) -> float:
        """The same for a half and for the double."""
        old, new = self.step.old, self.step.new
        return abs(math.log(new / old)) if old > 0 and new > 0 else math.inf

    @property
    def share(self) -> float:
        """Of the old figure, whatever its direction."""
        return math.inf if self.step.change is None else abs(self.step.change)

    @property
    def tone(self) -> str:
        return self.step.tone(self.track.figure)


@dataclass(frozen=True)
class Event:
    """What happened between two commits, most likely for one reason."""

    kind: str
    """``step``, ``drift`` or ``machine``."""
    changes: tuple[HistoryChange, ...]
    """The largest first."""

    @property
    def where(self) -> Step:
        """That with the fewest commits; they are those of the event."""
        return min(self.changes, key=lambda change: change.last - change.first).step

    @property
    def cases(self) -> tuple[str, ...]:
        return tuple(dict.fromkeys(change.series.case for change in self.changes))

    @property
    def devices(self) -> tuple[str, ...]:
        return tuple(sorted({change.series.device for change in self.changes}))

    @property
    def figures(self) -> str:
        """Arms together, as in ``latency (off, on)``; the figure that changed most first."""
        arms: dict[str, set[str]] = {}
        for change in self.changes:
            name, _, arm = change.track.figure.name.partition(" (")
            arms.setdefault(name, set()).add(arm.rstrip(")"))
        told = {name: ", ".join(sorted(filter(None, found))) for name, found in arms.items()}
        return ", ".join(f"{name} ({each})" if each else name for name, each in told.items())

    def title(self) -> str:
        about = {"drift": "drift of ", "machine": "the machine: "}.get(self.kind, "")
        return f"{about}{self.figures}"


def only(found: Sequence[Event], figure: str, least: float) -> list[Event]:
    """What is left with the changes of these figures that are large enough."""

    def chosen(change: HistoryChange) -> bool:
        return fnmatch.fnmatchcase(change.track.figure.name, figure) and change.share >= least

    kept = (replace(event, changes=tuple(filter(chosen, event.changes))) for event in found)
    return [event for event in kept if event.changes]


def size_of(series: Sequence[Series]) -> str:
    """How much there is, in words."""
    recorded = [run.recorded[:10] for each in series for run in each.runs]
    days = " to ".join(dict.fromkeys((min(recorded), max(recorded))))
    cases, devices = ({getattr(each, name) for each in series} for name in ("case", "device"))
    runs = {run.session for each in series for run in each.runs}
    return (
        f"{count(len(cases), 'case')} on {count(len(devices), 'device')}, "
        f"{count(len(runs), 'run')}, {days}"
    )


def events(series: Sequence[Series], since: str | None = None) -> list[Event]:
    """All of them, or those after a commit; the one with the largest effect first."""
    places = _places(run for each in series for run in each.runs)
    changes: dict[str, list[HistoryChange]] = {"step": [], "drift": []}
    for each in series:
        for track in each.tracks:
            for kind, step in _steps_and_drifts(track):
                first, last = sorted(places[_commit(run)] for run in (step.before, step.after))
                if since is None or last > places[since]:
                    # The same commit twice: it was not the commit.
                    change = HistoryChange(each, track, step, min(first, last - 1), last)
                    changes[kind].append(change)
    machines = list(_machines(series, changes["step"]))
    explained = {id(change) for group in machines for change in group}
    groups = [("machine", group) for group in machines]
    for kind, found in changes.items():
        rest = [change for change in found if id(change) not in explained]
        # Commits change things in both directions; drifts go in one.
        for tone in ("bad", "good", "weak") if kind == "drift" else ("",):
            chosen = [change for change in rest if not tone or change.tone == tone]
            groups += [(kind, group) for group in _folded(chosen)]
    found_all = [
        Event(kind, tuple(sorted(group, key=lambda change: -change.size))) for kind, group in groups
    ]
    return sorted(found_all, key=lambda event: -event.changes[0].size)


def _commit(run: HistoryRecord) -> str:
    return run.commit or run.session


def _places(runs: Iterator[HistoryRecord]) -> Mapping[str, int]:
    """Of each commit, in the order of their first runs."""
    first: dict[str, str] = {}
    for run in runs:
        key = _commit(run)
        first[key] = min(first.get(key, run.recorded), run.recorded)
    return {key: place for place, key in enumerate(sorted(first, key=lambda key: first[key]))}


def _steps_and_drifts(track: FigureHistory) -> Iterator[tuple[str, Step]]:
    """Many small steps in one direction are a drift, also where a large one lies among them."""
    if track.drift is not None:
        yield "drift", track.drift
    most = _SMALL[track.figure.exact]
    small: list[Step] = []
    large: list[Step] = []
    for step in track.steps:
        (small if step.change is not None and abs(step.change) <= most else large).append(step)
    for _, group in itertools.groupby(small, lambda step: step.new > step.old):
        steps = list(group)
        if len(steps) < _CREEPING:
            large += steps
            continue
        first, last = steps[0], steps[-1]
        new = first.old * math.prod(step.new / step.old for step in steps)
        yield "drift", Step(first.at, first.before, last.after, first.old, new)
    yield from (("step", step) for step in large)


def _folded(changes: Sequence[HistoryChange]) -> Iterator[list[HistoryChange]]:
    """Each once, around the commits that most agree on: a narrow range says more than a wide."""
    first, last = (
        np.array([getattr(change, name) for change in changes], dtype=int)
        for name in ("first", "last")
    )
    left = np.ones(len(changes), dtype=bool)
    while left.any():
        weights = 1 / (last - first)[left]
        # What begins after the first place ends with the last one.
        said = np.zeros(last.max() + 2)
        np.add.at(said, first[left] + 1, weights)
        np.add.at(said, last[left] + 1, -weights)
        place = int(np.argmax(np.cumsum(said)))
        chosen = left & (first < place) & (place <= last)
        yield [changes[index] for index in np.flatnonzero(chosen).tolist()]
        left &= ~chosen


def _machines(
    series: Sequence[Series], steps: Sequence[HistoryChange]
) -> Iterator[list[HistoryChange]]:
    """Where most yardsticks of a device changed, with the times that changed no more than they."""
    for device in sorted({each.device for each in series}):
        ours = [change for change in steps if change.series.device == device]
        yardsticks = [change for change in ours if change.track.figure.name == YARDSTICK]
        known = sum(
            track.figure.name == YARDSTICK
            for each in series
            if each.device == device
            for track in each.tracks
        )
        times = [
            change
            for change in ours
            if change.track.figure.unit == "ms" and change.track.figure.name != YARDSTICK
        ]
        for group in _folded(yardsticks):
            if 2 * len(group) < known:
                continue
            narrow = min(group, key=lambda change: change.last - change.first)
            most = _SLACK * max(change.size for change in group) + _NOISE
            yield group + [
                change
                for change in times
                if change.first < narrow.last
                and narrow.first < change.last
                and change.tone == narrow.tone
                and change.size <= most
            ]
