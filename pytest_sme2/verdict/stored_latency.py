"""Process medians of several sessions: where the ratio of a new session over old ones lies. Pure.

Interleaved pairs, which need no sessions, are in stats.py.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Sequence

SESSION_CONFIDENCE = 0.95
"""Of the interval that holds a new session of the same program, given the sessions before it."""
FEWEST_PROCESSES = 3
PROVISIONAL_SESSIONS = 3
"""With fewer sessions the spread between them is not known, so a latency is provisional."""


def session_interval(
    new: Sequence[float], sessions: Sequence[Sequence[float]]
) -> tuple[float, float]:
    """Where the ratio of a new session over the old ones lies.

    Two kinds of chance play a part. Within a session, processes differ: half the interval of a
    difference of two medians. Between sessions the machine itself differs (heat, memory layout):
    the t interval that predicts one more session. The second needs several sessions; with fewer
    than PROVISIONAL_SESSIONS only the first is known, and the caller must be more careful.
    """
    centres = [math.log(statistics.median(session)) for session in sessions]
    shift = math.log(statistics.median(new)) - statistics.fmean(centres)
    pooled = [
        math.log(value) - centre
        for session, centre in zip(sessions, centres, strict=True)
        for value in session
    ]
    inside = math.hypot(
        _median_error([math.log(value) for value in new]),
        _median_error(pooled),
    )
    half = statistics.NormalDist().inv_cdf(0.5 + SESSION_CONFIDENCE / 2) * inside
    if len(centres) >= PROVISIONAL_SESSIONS:
        count = len(centres)
        spread = statistics.stdev(centres) * math.sqrt(1 + 1 / count)
        half = max(half, _student(0.5 + SESSION_CONFIDENCE / 2, count - 1) * spread)
    return math.exp(shift - half), math.exp(shift + half)


def _median_error(values: Sequence[float]) -> float:
    """The standard error of a median, from the median absolute deviation; infinite for so few
    values that their spread says nothing.
    """
    if len(values) < FEWEST_PROCESSES:
        return math.inf
    centre = statistics.median(values)
    deviation = 1.4826 * statistics.median(abs(value - centre) for value in values)
    return math.sqrt(math.pi / 2) * deviation / math.sqrt(len(values))


def _student(probability: float, freedom: int) -> float:
    from scipy.stats import t

    return float(t.ppf(probability, freedom))
