"""One model of a noisy series: levels, joined by steps and drifts. Pure: numbers in, numbers out.

Every change rises in a straight line from a first run to a last one; a step takes one run, a drift
several. So a series is one level plus the sum of such ramps. They are searched by least squares
among all there can be, and stay if they explain more than noise would. Wild runs count no more
than three spreads. All constants were set with ``python -m benchmarks.history``, where the truth
is known. ruptures finds where pieces begin, but has no cost for pieces that join.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from pytest_sme2.timing.stats import robust_spread

FEWEST = 15
"""Runs: with less nobody can tell a change from noise."""
SHORTEST = 4
"""Runs of one level: fewer may be one bad hour."""
_DRIFT = 5
# How much more than its number of parameters a change has to explain, in squared spreads.
_CHANGE, _SLOPE = 22.0, 8.0
# So little is tried at least: of two opposite changes, each alone explains little.
_TRIED, _TRIES = 8.0, 2
_WILD = 3.0
_MOST_CHANGES = 30
LEAST_SPREAD = 1e-4
"""A figure without noise is not believed to be that good."""
# Places that explain less by so many squared spreads may be the true one as well. For a change of
# level in normal noise, 7.35 are 95 % (Hansen 2000, Econometrica 68, 575).
_LIKELIHOOD = 16.0
# More than for 95 % of normal noise: places and spread are estimated.
_WIDTH = 3.0
# Runs that resemble the ones before them say less.
_MOST_ALIKE = 0.6

Floats = NDArray[np.float64]
Integers = NDArray[np.int64]


class Ramp(NamedTuple):
    """The places of the last run before a change, and of the first one after it."""

    first: int
    last: int

    @property
    def drift(self) -> bool:
        return self.last - self.first > 1


class Size(NamedTuple):
    """As a logarithm, with its interval at 95 %."""

    value: float
    low: float
    high: float


class Model:
    """What a series of values above 0 is made of."""

    def __init__(self, values: Sequence[float], places: Sequence[int]) -> None:
        """``places`` say how far runs are apart; some may be missing between them."""
        self._search = search = _Search(np.log(np.array(values)), np.array(places, dtype=float))
        self.ramps, self.spread = search.run()
        design = search.design(self.ramps)
        self._inverse = np.linalg.pinv(design.T @ design)
        self._design, self._sizes = design, self._inverse @ design.T @ search.calm
        rest = search.calm - design @ self._sizes
        alike = float(rest[1:] @ rest[:-1]) / max(float(rest @ rest), LEAST_SPREAD**2)
        alike = min(max(alike, 0.0), _MOST_ALIKE)
        self._width = _WIDTH * self.spread * math.sqrt((1 + alike) / (1 - alike))

    def levels(self) -> Floats:
        """What each run would be without noise."""
        found: Floats = np.exp(self._design @ self._sizes)
        return found

    def growth(self, first: int, last: int, without: Sequence[int] = ()) -> Size:
        """From one run to another, but for the changes whose numbers are given."""
        contrast = self._design[last] - self._design[first]
        contrast[[1 + number for number in without]] = 0.0
        value = float(contrast @ self._sizes)
        half = self._width * math.sqrt(max(float(contrast @ self._inverse @ contrast), 0.0))
        return Size(value, value - half, value + half)

    def size(self, number: int) -> Size:
        others = [other for other in range(len(self.ramps)) if other != number]
        return self.growth(0, len(self._design) - 1, others)

    def range(self, number: int) -> Ramp:
        """Between which runs the change lies; of a step at 95 %."""
        ramp = self.ramps[number]
        if ramp.drift:
            return ramp
        others = [*self.ramps[:number], *self.ramps[number + 1 :]]
        pairs, explained = self._search.explained(others, *_room(ramp, others), slope=math.inf)
        enough = explained.max() - _LIKELIHOOD * self.spread**2
        likely = pairs[explained >= enough]
        return Ramp(int(likely[:, 0].min()), int(likely[:, 1].max()))


class _Search:
    def __init__(self, series: Floats, places: Floats) -> None:
        self.series, self.places, self.runs = series, places, series.size
        self.calm = _calm(series)
        self._powers = [_sums(places**power) for power in range(3)]
        self._pairs = self._possible(_pairs(self.runs))

    def run(self) -> tuple[list[Ramp], float]:
        """The ramps and the spread of a run; repeated, because both say which runs are wild."""
        # A drift found first would hide that two steps fit better.
        starts = [self._pruned(self._grown([], slope)) for slope in (_SLOPE, math.inf)]
        variance = min(map(self._spread, starts)) ** 2
        ramps = min(starts, key=lambda start: self._cost(start, variance))
        for _ in range(3):
            ramps = self._pruned(self._grown(ramps))
            fitted = self._fitted(ramps)
            spread = self._spread(ramps)
            calm = fitted + np.clip(self.series - fitted, -_WILD * spread, _WILD * spread)
            if np.allclose(calm, self.calm, rtol=0, atol=1e-9):
                break
            self.calm = calm
        return sorted(ramps), self._spread(ramps)

    def design(self, ramps: Sequence[Ramp]) -> Floats:
        """A column of ones, then one for each ramp, from 0 to 1."""
        x = self.places
        return np.column_stack(
            [
                np.ones(self.runs),
                *(np.clip((x - x[first]) / (x[last] - x[first]), 0, 1) for first, last in ramps),
            ]
        )

    def _fitted(self, ramps: Sequence[Ramp]) -> Floats:
        design = self.design(ramps)
        fitted: Floats = design @ np.linalg.lstsq(design, self.calm, rcond=None)[0]
        return fitted

    def _spread(self, ramps: Sequence[Ramp]) -> float:
        rest = self.series - self._fitted(ramps)
        clip = 2.5 * robust_spread(rest)
        free = max(self.runs - 1 - sum(2 + ramp.drift for ramp in ramps), 3)
        # 1.03: what clipping takes from normal noise.
        square = 1.03 * float(np.sum(np.clip(rest, -clip, clip) ** 2)) / free
        return max(math.sqrt(square), LEAST_SPREAD)

    def explained(
        self, others: Sequence[Ramp], low: int, high: int, *, slope: float, near: Ramp | None = None
    ) -> tuple[Integers, Floats]:
        """Ramps between two runs, with the squares that each explains beyond the others."""
        pairs = self._pairs
        if near is not None and near.drift:
            pairs = np.concatenate([pairs, self._possible(_around(near))])
        first, last = pairs.T
        pairs = pairs[(first >= low) & (last <= high) & _compatible(first, last, others)]
        basis: Floats = np.linalg.qr(self.design(others))[0]
        new = self._squares(pairs)
        for column in basis.T:
            new -= self._products(column, pairs) ** 2
        rest = self.calm - basis @ (basis.T @ self.calm)
        # What the others can nearly make themselves explains nothing of its own.
        found = np.where(new > 0.3, self._products(rest, pairs) ** 2 / np.maximum(new, 0.3), 0.0)
        drift = pairs[:, 1] - pairs[:, 0] > 1
        return pairs, found - np.where(drift, slope, 0.0)

    def _products(self, values: Floats, pairs: Integers) -> Floats:
        """Of a series with each ramp."""
        x, (first, last) = self.places, pairs.T
        plain, sloped = _sums(values), _sums(values * x)
        inside = sloped[last] - sloped[first + 1] - x[first] * (plain[last] - plain[first + 1])
        found: Floats = plain[-1] - plain[last] + inside / (x[last] - x[first])
        return found

    def _squares(self, pairs: Integers) -> Floats:
        """Of each ramp with itself."""
        x, (first, last) = self.places, pairs.T
        none, one, two = (sums[last] - sums[first + 1] for sums in self._powers)
        start = x[first]
        inside = two - 2 * start * one + start**2 * none
        found: Floats = self.runs - last + inside / (x[last] - start) ** 2
        return found

    def _possible(self, pairs: Integers) -> Integers:
        """A step has a level on either side; a drift may begin or end with the series."""
        first, last = pairs.T
        drift = last - first >= _DRIFT
        before, after = first >= SHORTEST - 1, last <= self.runs - SHORTEST
        before |= drift & (first == 0)
        after |= drift & (last == self.runs - 1)
        found: Integers = pairs[before & after & (drift | (last - first == 1))]
        return found

    def _best(
        self,
        others: Sequence[Ramp],
        variance: float,
        near: Ramp | None = None,
        slope: float = _SLOPE,
    ) -> tuple[float, Ramp | None]:
        room = (0, self.runs) if near is None else _room(near, others)
        pairs, explained = self.explained(others, *room, slope=slope * variance, near=near)
        if not explained.size:
            return 0.0, near
        best = int(np.argmax(explained))
        return float(explained[best]), Ramp(*pairs[best].tolist())

    def _grown(self, ramps: Sequence[Ramp], slope: float = _SLOPE) -> list[Ramp]:
        """With more, as long as they may be more than noise."""
        grown, tries = list(ramps), 0
        variance = max(_noise(self.calm), LEAST_SPREAD) ** 2
        while len(grown) < min(_MOST_CHANGES, self.runs // 5):
            explained, ramp = self._best(grown, variance, slope=slope)
            tries += explained < _CHANGE * variance
            if ramp is None or explained < _TRIED * variance or tries > _TRIES:
                break
            grown = self._moved([*grown, ramp], variance, slope)
        return grown

    def _moved(self, ramps: Sequence[Ramp], variance: float, slope: float = _SLOPE) -> list[Ramp]:
        """Each to its best place while the others stay."""
        moved = list(ramps)
        for _ in range(3):
            before = list(moved)
            for at, ramp in enumerate(moved):
                others = [*moved[:at], *moved[at + 1 :]]
                moved[at] = self._best(others, variance, ramp, slope)[1] or ramp
            if moved == before:
                break
        return moved

    def _pruned(self, ramps: Sequence[Ramp]) -> list[Ramp]:
        """Without those whose absence costs least, one or two at a time, until each is needed."""
        kept = sorted(ramps)
        while kept:
            variance = self._spread(kept) ** 2
            fewer = list(self._fewer(kept, variance))
            costs = [self._cost(each, variance) for each in fewer]
            best = int(np.argmin(costs))
            if costs[best] >= self._cost(kept, variance):
                break
            kept = sorted(self._moved(fewer[best], variance))
        return kept

    def _fewer(self, ramps: Sequence[Ramp], variance: float) -> list[list[Ramp]]:
        """Without one; without two neighbours; with one instead of two."""
        found = []
        for at in range(len(ramps)):
            found.append([*ramps[:at], *ramps[at + 1 :]])
            if at + 1 < len(ramps):
                rest = [*ramps[:at], *ramps[at + 2 :]]
                both = Ramp(ramps[at].first, ramps[at + 1].last)
                found += [rest, [*rest, self._best(rest, variance, both)[1] or both]]
        return found

    def _cost(self, ramps: Sequence[Ramp], variance: float) -> float:
        squares = (self.series - self._fitted(ramps)) ** 2 / variance
        parameters = sum(_CHANGE + _SLOPE * ramp.drift for ramp in ramps)
        return float(np.minimum(squares, _WILD**2).sum()) + parameters


def _sums(values: Floats) -> Floats:
    """Of all values before each place."""
    return np.concatenate([[0.0], np.cumsum(values)])


def _noise(series: Floats) -> float:
    """The spread of a run, whatever levels and slopes there are."""
    return robust_spread(np.diff(series, 2)) / math.sqrt(6)


def _calm(series: Floats) -> Floats:
    """Without wild runs, before anything is known: near the median of seven runs, or their line."""
    windows = np.lib.stride_tricks.sliding_window_view(series, 7)
    centre = np.arange(series.size)
    place = np.clip(centre - 3, 0, series.size - 7)
    slope = np.abs(np.median(np.diff(windows, axis=1), axis=1))[place]
    usual = np.median(windows, axis=1)[place]
    around = _WILD * max(_noise(series), LEAST_SPREAD) + np.abs(centre - 3 - place) * slope
    found: Floats = np.clip(series, usual - around, usual + around)
    return found


def _pairs(runs: int) -> Integers:
    """Of all starts, with lengths that grow by a fifth: what lies between is looked at later."""
    lengths = [1]
    length = _DRIFT
    while length < runs - 1:
        lengths.append(length)
        length = max(length + 1, length * 6 // 5)
    first, reach = np.meshgrid(np.arange(runs), [*lengths, runs - 1])
    return np.stack([first.ravel(), (first + reach).ravel()], axis=1)


def _around(ramp: Ramp) -> Integers:
    reach = max(3, (ramp.last - ramp.first) // 6)
    moves = np.arange(-reach, reach + 1)
    first, last = np.meshgrid(ramp.first + moves, ramp.last + moves)
    return np.stack([first.ravel(), last.ravel()], axis=1)


def _room(ramp: Ramp, others: Sequence[Ramp]) -> tuple[int, int]:
    """Between the nearest ends of the others."""
    ends = [end for other in others for end in other]
    low = max((end for end in ends if end <= ramp.first), default=0)
    return low, min((end for end in ends if end >= ramp.last), default=1 << 30)


def _compatible(first: Integers, last: Integers, others: Sequence[Ramp]) -> NDArray[np.bool_]:
    """Either a level lies between two changes, or a drift touches one, or has a step within."""
    found = np.ones(first.size, dtype=bool)
    drift = last - first > 1
    for other in others:
        gap = np.maximum(first - other.last, other.first - last)
        within = np.maximum(
            np.minimum(first - other.first, other.last - last),
            np.minimum(other.first - first, last - other.last),
        )
        found &= (
            (gap >= SHORTEST - 1)
            | ((gap == 0) & (drift | other.drift))
            | ((within >= SHORTEST - 1) & ~(drift & other.drift))
        )
    return found
