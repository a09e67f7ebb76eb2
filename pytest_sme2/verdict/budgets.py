"""What an inference may take at most, however long it took before. Pure.

A process counts once, with its median or with what 95 % of its inferences stay within: those of one
process are alike. So the bounds are order statistics of processes, exact whatever they spread like.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Iterator, Mapping, Sequence

from pytest_sme2.results import ANY_THREADS, CaseResult, Check, Limits, Outcome
from pytest_sme2.system.wording import count
from pytest_sme2.verdict.baselines import BUSY
from pytest_sme2.verdict.judging import MORE_TIME
from pytest_sme2.verdict.times import untimed

ALARM, ACQUITTAL = 1 / 500, 1 / 20
"""How often at most chance calls a time at its limit longer, and how often shorter."""
FEWEST_INFERENCES = 13
"""The slowest of so many is as often above as below what 95 % stay within."""


def bounds(values: Sequence[float]) -> tuple[float, float]:
    """Between which the centre of what the values are drawn from lies: below it with a probability
    of at most ALARM, above it of at most ACQUITTAL.
    """
    ordered, number = sorted(values), len(values)
    low, high = (_rank(number, error) for error in (ALARM, ACQUITTAL))
    return ordered[low - 1] if low else 0.0, ordered[-high] if high else math.inf


def _rank(number: int, error: float) -> int:
    """The largest r so that the r-th smallest value is above the centre no more often than that."""
    fewer, rank = 0.5**number, 0
    while fewer <= error:
        rank += 1
        fewer += math.comb(number, rank) * 0.5**number
    return rank


def asked_at(limit: Mapping[str, float], threads: int) -> float | None:
    """What a limit allows with so many threads; None where it says nothing."""
    return limit.get(str(threads), limit.get(ANY_THREADS))


def check_budgets(measured: CaseResult, limits: Limits) -> Iterator[Check]:
    """Of the arm that speaks for the program; nothing where no such limit is set."""
    arm, threads = measured.arm, measured.threads
    tail = "95 % of inferences stay within"
    for name, what, limit, times, fewest in (
        ("latency", "An inference takes", limits.max_latency, measured.medians_ns, 0),
        ("p95", tail, limits.max_p95, measured.p95s_ns, FEWEST_INFERENCES),
    ):
        most = asked_at(limit, threads)
        if most is not None:
            metric, found = f"{name} budget ({arm})", (times or {}).get(arm, ())
            yield _check(metric, what, measured, found, most, fewest)


def _check(
    metric: str,
    what: str,
    measured: CaseResult,
    times: Sequence[float],
    most: float,
    fewest: int,
) -> Check:
    problem = untimed(metric, measured)
    if problem is not None or not times:
        verdict = Outcome.NOT_MEASURED if measured.emulated or not problem else Outcome.INVALID
        return Check(metric, verdict, problem.message if problem else "It was not measured.")
    now, limit = statistics.median(times) / 1e6, most * 1e3
    low, high = (bound / 1e6 for bound in bounds(times))
    interval = (low, high) if math.isfinite(high) else None
    span = f"[{low:.3f}, {high:.3f}]" if interval else f"({count(len(times), 'process')})"
    told = f"{what} {now:.3f} ms {span}; at most {limit:g} are allowed."
    busy = (measured.interference or 0.0) > BUSY
    verdict, more = Outcome.PASS, ""
    if low > limit:
        verdict = Outcome.INCONCLUSIVE if busy else Outcome.FAILED
        more = "Others had the core meanwhile: stop what else runs, and measure again." * busy
    elif high > limit:
        verdict, more = Outcome.INCONCLUSIVE, "Its processes differ by more than what is left."
    elif measured.inferences < fewest:
        few = f"{count(measured.inferences, 'inference')} of a process"
        verdict = Outcome.INCONCLUSIVE
        more = f"{few} are too few to tell: at least {fewest} are needed. {MORE_TIME}"
    text = f"{told} {more}".rstrip()
    return Check(metric, verdict, text, new=now, unit="ms", interval=interval, limit=limit)
