"""The steps of whole generations: what each takes, and how two sides compare phase by phase. Pure.

A slowdown that begins at a long context is little in the whole decode, so a decode is judged in
stretches of its context, each on its own.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from pytest_sme2.results import DECODE, PREFILL, Estimate, PhaseRatio, Run
from pytest_sme2.timing import stats
from pytest_sme2.timing.stats import Floats

STRETCHES = 4
"""Of a decode; fewer where it has fewer tokens."""


def step_times(run: Run, steps: int) -> Floats:
    """What each step took, a row for each of the process's generations."""
    times: Floats = np.asarray(run.step_wall_ns, dtype=float).reshape(-1, steps)
    return times


def log_ratios(reference: Sequence[Run], candidate: Sequence[Run], steps: int) -> Floats:
    """Of each pair and step, the logarithm of the candidate's time over the reference's."""
    old, new = (
        [np.log(np.median(step_times(run, steps), axis=0)) for run in side]
        for side in (reference, candidate)
    )
    return np.array([after - before for before, after in zip(old, new, strict=False)])


def compare_phases(ratios: Floats, prompt_tokens: int, alpha: float) -> list[PhaseRatio]:
    """The prompt, then the stretches of the decode, all together at one level."""
    steps = ratios.shape[1]
    parts = np.array_split(np.arange(1, steps), min(STRETCHES, steps - 1))
    level = alpha / (1 + len(parts))
    found = [PhaseRatio(PREFILL, prompt_tokens, prompt_tokens, estimate_of(ratios[:, 0], level))]
    for part in parts:
        series = np.median(ratios[:, part], axis=1)
        first, last = (prompt_tokens + int(part[end]) for end in (0, -1))
        found.append(PhaseRatio(DECODE, first, last, estimate_of(series, level)))
    return found


def whole_phases(ratios: Floats, alpha: float) -> dict[str, Estimate]:
    """Each phase as a whole, reference over candidate: how many times faster the candidate is."""
    series = {PREFILL: -ratios[:, 0], DECODE: -np.median(ratios[:, 1:], axis=1)}
    return {phase: estimate_of(values, alpha) for phase, values in series.items()}


def estimate_of(
    series: Sequence[float] | Floats, alpha: float = stats.FALSE_ALARM_RATE / 2
) -> Estimate:
    """The ratio whose logarithms these are."""
    look = stats.take_look(series, 0.0, alpha)
    low, high = look.interval or (0.0, math.inf)
    return Estimate(look.estimate, low, high, 1 - 2 * alpha, look.pairs)


def beginning(ratios: Floats, prompt_tokens: int) -> int:
    """The context from which on a decode is slower: where one step up explains most of it."""
    centres = np.median(ratios[:, 1:], axis=0)
    # From each place on: the sum of squares that a constant from there on explains.
    sums = np.cumsum(centres[::-1])[::-1]
    explained = np.where(sums > 0, sums**2 / np.arange(len(centres), 0, -1), -1.0)
    return prompt_tokens + 1 + int(np.argmax(explained))
