"""Statistics of series of times that a few bad values cannot bend. Pure."""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np
from numpy.typing import ArrayLike, NDArray

from pytest_sme2.results import RobustStats

# A modified z-score above this is an outlier (Iglewicz and Hoaglin, 1993).
OUTLIER_SCORE = 3.5
# Fewer values cannot tell an outlier from spread.
LEAST_FOR_OUTLIERS = 5
TRIM = 0.1


def outliers(values: NDArray[np.float64]) -> NDArray[np.bool_]:
    """Which values lie too far from the median for the spread of the rest; per row of a matrix."""
    if values.shape[-1] < LEAST_FOR_OUTLIERS:
        return np.zeros(values.shape, dtype=bool)
    distance = np.abs(values - np.median(values, axis=-1, keepdims=True))
    # The median distance is 0 where over half of the values are equal; then the mean has to do.
    middle = 1.482602 * np.median(distance, axis=-1, keepdims=True)
    scale = np.where(middle, middle, 1.253314 * np.mean(distance, axis=-1, keepdims=True))
    return (distance > OUTLIER_SCORE * scale) & (scale > 0)


def robust_stats(values: Iterable[float]) -> RobustStats:
    """Statistics that a few bad values cannot bend, beside those that they can."""
    known = values if isinstance(values, np.ndarray) else np.fromiter(values, dtype=np.float64)
    if not known.size:
        raise ValueError("an empty series has no statistics")
    return robust_stats_of_each(known[np.newaxis])[0]


def robust_stats_of_each(series: ArrayLike) -> list[RobustStats]:
    """The same of many series of one length, at once: numpy takes as long for one as for many."""
    rows = np.asarray(series, dtype=np.float64)
    if not rows.size:
        return []
    ordered = np.sort(rows, axis=1)
    size = rows.shape[1]
    cut = int(size * TRIM)
    median = np.median(ordered, axis=1)
    mean = ordered.mean(axis=1)
    deviation = ordered.std(axis=1, ddof=1) if size > 1 else np.zeros(len(rows))
    columns = {
        "median": median,
        "mean": mean,
        "trimmed_mean": ordered[:, cut : size - cut].mean(axis=1),
        "mad": np.median(np.abs(ordered - median[:, np.newaxis]), axis=1),
        "minimum": ordered[:, 0],
        "maximum": ordered[:, -1],
        **dict(
            zip(
                ("p5", "p25", "p75", "p95", "p99"),
                np.percentile(ordered, [5, 25, 75, 95, 99], axis=1),
                strict=True,
            )
        ),
        "standard_deviation": deviation,
        "cv": np.divide(deviation, mean, out=np.zeros(len(rows)), where=mean != 0),
    }
    found = zip(*(column.tolist() for column in columns.values()), strict=True)
    counted = outliers(rows).sum(axis=1).tolist()
    return [
        RobustStats(count=size, outliers=number, **dict(zip(columns, values, strict=True)))
        for values, number in zip(found, counted, strict=True)
    ]
