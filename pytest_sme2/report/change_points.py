"""Where the level of a noisy figure changed: found by ruptures, then confirmed by a rank test.

ruptures finds the best division into stretches of one level each, which costs a penalty for every
change. What it proposes is kept only if the stretches before and after differ by a rank test at
ALPHA over the number of runs, since a change may be anywhere. docs/history.md has what that finds
and misses.
"""

from __future__ import annotations

import importlib.util
import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from pytest_sme2.timing.stats import robust_spread

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
    "Install it with `pip install 'pytest-sme2[history]'` (Python 3.13 or older)."
)


@dataclass(frozen=True)
class ChangePoint:
    """A change of level. Positions count from 0."""

    at: int
    """The first run of the new level, most likely."""
    earliest: int
    latest: int
    """Between these, at 95 %."""
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
    alike = _alike(calm, _proposed(calm, spread))
    # Runs that resemble the ones before them differ less from these than from what is usual.
    spread *= math.sqrt(1 + alike) / (1 - alike)
    ends = [0, *_confirmed(calm, _proposed(calm, spread), alike), len(values)]
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
