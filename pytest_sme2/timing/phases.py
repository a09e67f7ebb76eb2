"""The steps of whole generations: what each takes, and how two sides compare phase by phase. Pure.

A slowdown that begins at a long context is little in the whole decode, so a decode is judged in
stretches of its context, each on its own.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from pytest_sme2.results import DECODE, PREFILL, Estimate, Look, PhaseRatio, Run
from pytest_sme2.timing import stats
from pytest_sme2.timing.processes import rounds_log_ratio, turn_runs_of
from pytest_sme2.timing.stats import Floats

STRETCHES = 4
"""Of a decode; fewer where it has fewer tokens."""


def step_times(run: Run, steps: int) -> Floats:
    """What each step took, a row for each of the process's generations."""
    times: Floats = np.asarray(run.step_wall_ns, dtype=float).reshape(-1, steps)
    return times


def log_ratios(reference: Sequence[Run], candidate: Sequence[Run], steps: int) -> Floats:
    """Of each pair and step, the logarithm of the candidate's time over the reference's."""
    pairs = []
    for old, new in zip(reference, candidate, strict=True):
        turn_runs = turn_runs_of(old, new)
        times = zip(step_times(old, steps).T, step_times(new, steps).T, strict=True)
        pairs.append([rounds_log_ratio(before, after, turn_runs) for before, after in times])
    return np.array(pairs)


def compare_phases(
    ratios: Floats, prompt_tokens: int, threshold: float, family: int
) -> list[PhaseRatio]:
    """The prompt, then the stretches of the decode; ``family`` verdicts on wholes are given."""
    steps = ratios.shape[1]
    parts = np.array_split(np.arange(1, steps), min(STRETCHES, steps - 1))
    tokens, few = prompt_tokens, 1 + len(parts)
    found = [judge_phase(PREFILL, tokens, tokens, ratios[:, 0], threshold, few, family)]
    for part in parts:
        series = np.median(ratios[:, part], axis=1)
        first, last = (tokens + int(part[end]) for end in (0, -1))
        found.append(judge_phase(DECODE, first, last, series, threshold, few, family))
    return found


def judge_phase(
    phase: str,
    context: int,
    last: int,
    series: Sequence[float] | Floats,
    threshold: float,
    parts: int,
    family: int = 1,
) -> PhaseRatio:
    """One of so many ``parts`` of a generation, which share the error of one verdict."""
    alpha = stats.FALSE_ALARM_RATE / parts
    decision = stats.decide_ratio(series, threshold, alpha, family=family)
    return PhaseRatio(phase, context, last, _estimate(decision.looks[-1]), decision.outcome)


def whole_phases(ratios: Floats, alpha: float) -> dict[str, Estimate]:
    """Each phase as a whole, reference over candidate: how many times faster the candidate is."""
    series = {PREFILL: -ratios[:, 0], DECODE: -np.median(ratios[:, 1:], axis=1)}
    return {phase: estimate_of(values, alpha) for phase, values in series.items()}


def estimate_of(
    series: Sequence[float] | Floats, alpha: float = stats.FALSE_ALARM_RATE / 2
) -> Estimate:
    """The ratio whose logarithms these are."""
    return _estimate(stats.take_look(series, 0.0, alpha))


def _estimate(look: Look) -> Estimate:
    low, high = look.interval or (0.0, math.inf)
    return Estimate(look.estimate, low, high, 1 - 2 * look.alpha, look.pairs)


def beginning(ratios: Floats, prompt_tokens: int) -> int:
    """The context from which on a decode is slower: where one step up explains most of it."""
    centres = np.median(ratios[:, 1:], axis=0)
    # From each place on: the sum of squares that a constant from there on explains.
    sums = np.cumsum(centres[::-1])[::-1]
    explained = np.where(sums > 0, sums**2 / np.arange(len(centres), 0, -1), -1.0)
    return prompt_tokens + 1 + int(np.argmax(explained))
