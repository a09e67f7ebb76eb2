"""Estimators, intervals and tests on numbers alone: no runs, no files, no clocks, no printing.

The method, its reasons and its sources are in docs/measuring.md. Slowdowns are log ratios of
candidate over reference time inside, and plain ratios (1.02 is 2 % slower) at the border.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from functools import lru_cache

import numpy as np
from numpy.typing import ArrayLike, NDArray

from pytest_sme2.results.timing import Decision, Look, Outcome

LOOKS = (10, 20, 30, 45, 70, 100, 150, 200, 300)
"""The numbers of pairs after which the answer is looked at, as far as the time budget reaches."""

ERROR_SPLIT = tuple(0.5**number for number in range(1, len(LOOKS) + 1))
"""The part of the error each look may spend: half of what the looks before it left. So the parts
never add up to more than all, however many looks there are. The first gets half: with 10 pairs the
exact test has levels 1/1024 apart, and 0.5 % is where 5/1024 still fits; O'Brien and Fleming's
first level (0.0008 %) is below 1/1024, so that their first look could never answer."""

USUAL_LOOKS, USUAL_SPLIT = LOOKS[:3], ERROR_SPLIT[:3]
"""Those that the default budget has time for with a small model."""

FALSE_ALARM_RATE = 0.01
"""One-sided, over all looks: how often a slowdown that is just tolerated is called REGRESSED."""

TOLERATED_SLOWDOWN = 0.02
"""The default. A 3 % slowdown can only be caught reliably by a limit clearly below 3 %."""

POWER = 0.8
_SIMULATIONS, _FEWEST_SIMULATIONS = 4000, 250
_MAD_TO_DEVIATION = 1.482602218505602

Floats = NDArray[np.float64]


def signed_rank_distribution(ranks_doubled: Sequence[int]) -> Floats:
    """Probability of every sum when each rank is counted or not by the toss of a coin.

    Ranks are given doubled so that the midranks of ties are whole numbers. Exact for any number of
    ranks: the sums are built up rank by rank instead of over all 2**n choices.
    """
    probability = np.zeros(sum(ranks_doubled) + 1)
    probability[0] = 1.0
    for rank in ranks_doubled:
        shifted = np.zeros_like(probability)
        shifted[rank:] = probability[: probability.size - rank]
        probability = (probability + shifted) / 2
    return probability


@lru_cache(maxsize=256)
def critical_sum(pairs: int, alpha: float) -> int:
    """The largest rank sum c with P(T <= c) <= alpha for untied pairs; -1 where there is none."""
    cumulative = np.cumsum(signed_rank_distribution(range(1, pairs + 1)))
    # A level such as 5/1024 is meant to fit itself.
    return int(np.searchsorted(cumulative, alpha * (1 + 1e-12), side="right")) - 1


def signed_rank_p_value(values: ArrayLike, shift: float = 0.0) -> float:
    """Exact one-sided p-value that the values' centre of symmetry is not above ``shift``.

    Ties get midranks, and the distribution is that of the ranks at hand; zeros are left out. Both
    condition on the sizes of the differences, under which their signs are still coin tosses.
    """
    differences = np.asarray(values, dtype=float) - shift
    differences = differences[differences != 0]
    if differences.size == 0:
        return 1.0
    sizes, positions = np.unique(np.abs(differences), return_inverse=True)
    counts = np.bincount(positions, minlength=sizes.size)
    last = np.cumsum(counts)
    doubled = (2 * last - counts + 1)[positions]
    probability = signed_rank_distribution([int(rank) for rank in doubled])
    negative = int(doubled[differences < 0].sum())
    return float(min(1.0, probability[: negative + 1].sum()))


def walsh_averages(values: ArrayLike) -> Floats:
    """The means of all pairs of values, each value with itself included; the last axis is used."""
    series = np.asarray(values, dtype=float)
    first, second = np.triu_indices(series.shape[-1])
    averages: Floats = (series[..., first] + series[..., second]) / 2
    return averages


def hodges_lehmann(values: ArrayLike) -> float:
    """The median of the Walsh averages: a centre that a few wild pairs cannot move."""
    series = _checked(values)
    return float(np.median(walsh_averages(series)))


def signed_rank_interval(values: ArrayLike, alpha: float) -> tuple[float, float]:
    """Bounds that each miss the centre of symmetry with probability at most ``alpha``.

    The interval is closed and inverts the exact test; with ties it errs on the wide side. With too
    few values for ``alpha`` it is the whole line.
    """
    lower, upper = _bounds(_checked(values), alpha)
    return float(lower), float(upper)


def centre_interval(times: Sequence[float]) -> tuple[float, float] | None:
    """The 95 % interval of an arm's times, which spread by factors; None where they are too few."""
    bounds = signed_rank_interval([math.log(time) for time in times], 0.025)
    if not all(math.isfinite(bound) for bound in bounds):
        return None
    return math.exp(bounds[0]), math.exp(bounds[1])


def _bounds(series: Floats, alpha: float) -> tuple[Floats, Floats]:
    """Lower and upper bound along the last axis, so that simulations use the very same code."""
    critical = critical_sum(series.shape[-1], alpha)
    if critical < 0:
        whole = np.full(series.shape[:-1], np.inf)
        return -whole, whole
    averages = walsh_averages(series)
    low, high = critical, averages.shape[-1] - 1 - critical
    ordered = np.partition(averages, (low, high), axis=-1)
    return ordered[..., low], ordered[..., high]


def _checked(values: ArrayLike) -> Floats:
    series = np.asarray(values, dtype=float)
    if series.ndim != 1 or series.size == 0:
        raise ValueError("At least one value is needed, in one flat series.")
    if not np.isfinite(series).all():
        raise ValueError("Every value must be finite; a time of zero has no log ratio.")
    return series


def take_look(log_ratios: ArrayLike, threshold: float, alpha: float) -> Look:
    """The estimate, its interval and the p-value at one level, as ratios."""
    series = _checked(log_ratios)
    lower, upper = signed_rank_interval(series, alpha)
    bounded = math.isfinite(lower) and math.isfinite(upper)
    return Look(
        pairs=int(series.size),
        alpha=alpha,
        estimate=math.exp(hodges_lehmann(series)),
        interval=(math.exp(lower), math.exp(upper)) if bounded else None,
        p_value=signed_rank_p_value(series, math.log1p(threshold)),
    )


def planned_looks(pairs: int, looks: Sequence[int] = LOOKS) -> tuple[int, ...]:
    """After how many pairs to look, where ``pairs`` are all there will be.

    Time may run out between two looks; what there is then is looked at once more, with the error
    of the look that was due. How many pairs that is depends on the clock, not on which arm won.
    """
    return (*(look for look in looks if look < pairs), pairs) if pairs else ()


def decide_ratio(
    log_ratios: ArrayLike,
    threshold: float = TOLERATED_SLOWDOWN,
    alpha: float = FALSE_ALARM_RATE,
    *,
    looks: Sequence[int] = LOOKS,
    split: Sequence[float] = ERROR_SPLIT,
    family: int = 1,
) -> Decision:
    """Say whether the candidate is slower than tolerated, looking as early as the plan allows.

    REGRESSED: the whole interval lies above the tolerated slowdown. PASS: it lies below.
    IMPROVED: it lies below the mirror image, so the candidate is faster by more than would be
    tolerated as a slowdown. INCONCLUSIVE: pairs are used up and it is none of these.

    ``family`` is how many verdicts are given in one session: REGRESSED then needs a smaller error
    (``alarm_level``), since a test must fail before the later ones have run; the others do not.
    """
    series = _checked(log_ratios)
    taken: list[Look] = []
    outcome = Outcome.INCONCLUSIVE
    for pairs, part in zip(planned_looks(series.size, looks), split, strict=False):
        seen = series[:pairs]
        look = take_look(seen, threshold, alpha * part)
        taken.append(look)
        outcome = outcome_of(look, seen, threshold, alarm_level(pairs, alpha * part, family))
        if outcome is not Outcome.INCONCLUSIVE:
            break
    p_value = min(look.p_value / part for look, part in zip(taken, split, strict=False))
    return Decision(outcome, threshold, tuple(taken), min(1.0, p_value))


def alarm_level(pairs: int, alpha: float, family: int) -> float:
    """The error that REGRESSED may spend at one look, where ``family`` verdicts are given.

    Bonferroni's ``alpha / family``, but never less than what so many pairs can show when all of
    them lie beyond the limit. Else a run of many cases would need more pairs than there is time
    for, and the plainest regression of all would stay without a verdict.
    """
    return min(alpha, max(alpha / family, 0.5**pairs))


def outcome_of(look: Look, series: ArrayLike, threshold: float, alarm_alpha: float) -> Outcome:
    """What one look says, where REGRESSED may spend ``alarm_alpha``."""
    if math.exp(float(_bounds(_checked(series), alarm_alpha)[0])) > 1 + threshold:
        return Outcome.REGRESSED
    if look.interval is None:
        return Outcome.INCONCLUSIVE
    upper = look.interval[1]
    if threshold >= 0 and upper < 1 / (1 + threshold):
        return Outcome.IMPROVED
    return Outcome.PASS if upper < 1 + threshold else Outcome.INCONCLUSIVE


def robust_spread(values: ArrayLike) -> float:
    """The standard deviation that the median absolute deviation stands for."""
    series = _checked(values)
    return float(_MAD_TO_DEVIATION * np.median(np.abs(series - np.median(series))))


def p95(values: ArrayLike) -> float:
    """What 95 % stay within: of 13 values and more hardly ever oftener too high than too low."""
    return float(np.percentile(_checked(values), 95, method="hazen"))


def noise_floor(reference: ArrayLike, candidate: ArrayLike) -> float:
    """The relative spread of process medians within an arm, pooled over both arms.

    Each arm is taken relative to its own median, so a real difference between them is not noise.
    """
    residuals = [
        series - np.median(series)
        for series in (np.log(_checked(reference)), np.log(_checked(candidate)))
    ]
    return robust_spread(np.concatenate(residuals))


def smallest_detectable(
    spread: float,
    threshold: float = TOLERATED_SLOWDOWN,
    alpha: float = FALSE_ALARM_RATE,
    *,
    power: float = POWER,
    looks: Sequence[int] = USUAL_LOOKS,
    split: Sequence[float] = USUAL_SPLIT,
    family: int = 1,
) -> tuple[float, ...]:
    """For each look, the smallest slowdown called REGRESSED by then with the given power.

    ``spread`` is that of the log ratios. A slowdown shifts every bound by its own logarithm, so
    the answer is the threshold plus a constant times the spread: no search is needed. Infinite
    where the look has too few pairs for its level.
    """
    base = math.log1p(threshold)
    needed = _needed_shift(tuple(looks), tuple(split), alpha, family)
    return tuple(
        math.expm1(base + spread * float(np.quantile(shifts, power)))
        if np.isfinite(shifts).all()
        else math.inf
        for shifts in needed
    )


@lru_cache(maxsize=64)
def _needed_shift(
    looks: tuple[int, ...], split: tuple[float, ...], alpha: float, family: int
) -> tuple[Floats, ...]:
    """For normal noise of spread 1 and each look: the shift that makes each series an alarm by
    then. The few series that would already have passed by chance before are not taken out.
    """
    # Walsh averages grow with the square of the pairs; memory must not.
    most = looks[-1]
    rows = max(_FEWEST_SIMULATIONS, _SIMULATIONS * 900 // max(900, most * most))
    noise = np.random.default_rng(20240229).standard_normal((rows, most))
    highest = np.full(rows, -np.inf)
    needed = []
    for pairs, part in zip(looks, split, strict=True):
        level = alarm_level(pairs, alpha * part, family)
        highest = np.maximum(highest, _bounds(noise[:, :pairs], level)[0])
        needed.append(-highest)
    return tuple(needed)
