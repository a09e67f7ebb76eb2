"""Runs that can be compared, figure by figure, and where each figure changed. Pure."""

from __future__ import annotations

import functools
import importlib.util
import itertools
import math
import statistics
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from pytest_sme2.errors import install
from pytest_sme2.report.history import FIGURES, YARDSTICK, Figure, HistoryRecord, Interval
from pytest_sme2.system.wording import count
from pytest_sme2.timing.stats import robust_spread
from pytest_sme2.verdict.times import unlike_kin

FEWEST = 15
"""Runs: 7 on one side and 8 on the other are the fewest that can pass the test."""
SHORTEST = 4
"""Runs of one level: fewer may be one bad hour."""
ALPHA = 0.005
"""How often a figure that never changed may be told as changed, whatever its number of runs."""
LEAST_CHANGE = 0.0005
"""A change by less is none, even of a figure without noise."""
# Times the squared spread and the logarithm of the runs. The test comes after it.
_PENALTY = 3.0
# Beyond so many spreads from its neighbours' median, one run counts as one that is so far away.
_WILDEST, _NEIGHBOURS = 3.0, 5
_MOST_ALIKE = 0.9
# Positions whose squares add up to this much more than the best one's, in spreads, may be the true
# one as well: 95 % for a change of level (Hansen 2000, Econometrica 68, 575).
_LIKELIHOOD = 7.35

MISSING = (
    "Change points of latency, speedup and memory were not looked for: that needs ruptures. "
    f"Install it with `{install('history')}` (Python 3.13 or older)."
)


class ChangePoint(NamedTuple):
    """A new level, which begins with one run most likely, and at 95 % between two others."""

    at: int
    earliest: int
    latest: int
    old: float
    new: float


def available() -> bool:
    return importlib.util.find_spec("ruptures") is not None


def change_points(values: Sequence[float]) -> list[ChangePoint]:
    """All changes of level over runs that follow each other. Values are above 0."""
    if len(values) < FEWEST:
        return []
    logarithms = np.array([math.log(value) for value in values])
    spread = max(robust_spread(np.diff(logarithms)) / math.sqrt(2), LEAST_CHANGE)
    calm = _clip_outliers(logarithms, spread)
    proposed = _proposed(calm, spread)
    alike = _alike(calm, proposed)
    if alike:
        # Runs that resemble the ones before them differ less from these than from what is usual.
        spread *= math.sqrt(1 + alike) / (1 - alike)
        proposed = _proposed(calm, spread)
    ends = [0, *_confirmed(calm, proposed, alike), len(values)]
    return [
        ChangePoint(
            ends[index],
            *_between(calm[ends[index - 1] : ends[index + 1]], spread, ends[index - 1]),
            old=math.exp(float(np.median(logarithms[ends[index - 1] : ends[index]]))),
            new=math.exp(float(np.median(logarithms[ends[index] : ends[index + 1]]))),
        )
        for index in range(1, len(ends) - 1)
    ]


def _clip_outliers(series: NDArray[np.float64], spread: float) -> NDArray[np.float64]:
    """One wild run must not weigh like a level of its own."""
    from scipy.ndimage import median_filter

    usual = median_filter(series, _NEIGHBOURS, mode="nearest")
    return np.clip(series, usual - _WILDEST * spread, usual + _WILDEST * spread)


def _proposed(series: NDArray[np.float64], spread: float) -> list[int]:
    from ruptures import KernelCPD

    search = KernelCPD(kernel="linear", min_size=SHORTEST)
    penalty = _PENALTY * spread**2 * math.log(series.size)
    found = search.fit((series - series.mean()).reshape(-1, 1)).predict(pen=penalty)
    # The last is the end of the series.
    return [int(position) for position in found[:-1]]


def _alike(series: NDArray[np.float64], changes: Sequence[int]) -> float:
    """The correlation of each run with the next, about its level, as far as it is beyond chance."""
    rest = np.concatenate([part - part.mean() for part in np.split(series, changes)])
    # Without any noise, what is left of rounding must not count.
    square = max(float(rest @ rest), series.size * LEAST_CHANGE**2)
    found = float(rest[1:] @ rest[:-1]) / square
    return min(max(found - 2 / math.sqrt(series.size), 0.0), _MOST_ALIKE)


def _confirmed(series: NDArray[np.float64], proposed: Sequence[int], alike: float) -> list[int]:
    """What stays when the weakest proposal is taken away, again and again, until all are sure."""
    from scipy.stats import mannwhitneyu, norm

    # The effective sample size is smaller by its square: runs resemble each other.
    weight = math.sqrt((1 + alike) / (1 - alike))

    @functools.cache
    def chance(before: int, at: int, after: int) -> float:
        alone = float(mannwhitneyu(series[before:at], series[at:after]).pvalue)
        return float(2 * norm.sf(norm.isf(alone / 2) / weight))

    kept = list(proposed)
    while kept:
        ends = [0, *kept, series.size]
        chances = [chance(*around) for around in zip(ends, kept, ends[2:], strict=False)]
        weakest = max(range(len(kept)), key=chances.__getitem__)
        if chances[weakest] < ALPHA / series.size:
            break
        del kept[weakest]
    return kept


def _between(series: NDArray[np.float64], spread: float, offset: int) -> tuple[int, int]:
    """The earliest and the latest position at which one change may well have been."""
    positions = np.arange(1, series.size)
    left = np.cumsum(series)[:-1]
    right = series.sum() - left
    # The squares around the two levels, but for a part that is the same at every position.
    squares = -(left**2 / positions + right**2 / (series.size - positions))
    positions, squares = (part[SHORTEST - 1 : 1 - SHORTEST] for part in (positions, squares))
    likely = positions[squares <= squares.min() + _LIKELIHOOD * spread**2]
    return offset + int(likely[0]), offset + int(likely[-1])


class Point(NamedTuple):
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

    def tone(self, figure: Figure) -> str:
        """Whether it got worse or better, as a class of the page's style."""
        direction = (self.new > self.old) - (self.new < self.old)
        return {1: "bad", -1: "good", 0: "weak"}[direction * figure.worse]

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

    @property
    def summary(self) -> str:
        """What became of it, in words."""
        if self.skip_reason:
            return f"{count(len(self.points), 'run')}: {self.skip_reason}"
        if self.drift is not None:
            runs, drift = len(self.points), self.drift
            each = (drift.new / drift.old) ** (1 / max(1, runs - 1)) - 1
            return f"{drift.format()} as a drift over {runs} runs ({each:+.2%} per run)"
        if self.whole is None:
            return "unchanged" if self.figure.exact else "no step"
        steps, old = count(len(self.steps), "step"), self.figure.format(self.whole.old)
        return f"{self.whole.format()} in {steps} from {old}"


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
    known = {
        f"{record.threads} threads": record.threads != 1,
        f"{record.runner} runner": record.runner not in ("", "wheel"),
        f"governor {governor}": governor,
    }
    return tuple(text for text, apart in known.items() if apart)


def _tracks(runs: Sequence[HistoryRecord]) -> Iterator[FigureHistory]:
    points: dict[str, list[Point]] = {}
    for run in runs:
        for name, (value, low, high) in run.figures.items():
            interval = None if low is None or high is None else (low, high)
            points.setdefault(name, []).append(Point(run, value, interval))
    for name, figure in FIGURES.items():
        # No noisy figure can be 0: there is nothing to compare with.
        found = [each for each in points.get(name, ()) if figure.exact or each.value > 0]
        if not found:
            continue
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
    """Its last runs, or those from a commit's first run on: none if it was not recorded there."""
    start = max(0, len(track.points) - (window or len(track.points)))
    if since is not None:
        ours = [(point.run.commit or "").startswith(since) for point in track.points]
        start = max(start, [*ours, True].index(True))
    steps = tuple(step for step in track.steps if step.at > start)
    return replace(track, points=track.points[start:], steps=steps)


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
    return worse_by(track.figure, old, new)


def worst_step(track: FigureHistory) -> float | None:
    """By which part the worst of the steps made the figure worse; None where no step did."""
    changes = (worse_by(track.figure, step.old, step.new) for step in track.steps)
    return max((change for change in changes if change is not None), default=None)


def worse_by(figure: Figure, old: float, new: float) -> float | None:
    """By which part; negative where it got better, None where that cannot be told."""
    if not figure.worse or figure.name == YARDSTICK:
        return None
    if old == new:
        return 0.0
    if old <= 0 or new <= 0:
        return math.inf if (new > old) == (figure.worse > 0) else -1.0
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


def odd_phones(series: Sequence[Series]) -> Iterator[str]:
    """Which phones differ from the others of their kind, in sentences."""
    return unlike_kin(
        (run.device, run.conditions["phone"], run.figures[YARDSTICK][0])
        for each in series
        for run in each.runs
        if "phone" in run.conditions and YARDSTICK in run.figures
    )


def not_looked_for(series: Sequence[Series]) -> bool:
    """Whether a noisy figure had runs enough, but nothing to look for its steps with."""
    long = (track for each in series for track in each.tracks if len(track.points) >= FEWEST)
    return any(track.skip_reason for track in long)
