"""What an inference may take at most, however long it took before, and how much of its speed it may
lose under load. Pure.

A process counts once, with its median or with what 95 % of its inferences stay within: those of one
process are alike. So the bounds are order statistics of processes, exact whatever they spread like.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Iterator, Mapping, Sequence

from pytest_sme2.results import (
    ANY_THREADS,
    FIRST_MINUTE,
    CaseResult,
    Check,
    Limits,
    Outcome,
    Sustained,
)
from pytest_sme2.system.wording import as_given, count
from pytest_sme2.verdict.baselines import BUSY
from pytest_sme2.verdict.judging import MORE_TIME
from pytest_sme2.verdict.times import untimed

ALARM, ACQUITTAL = 1 / 500, 1 / 20
"""How often at most chance calls a time at its limit longer, and how often shorter."""
FEWEST_INFERENCES = 13
"""The slowest of so many is as often above as below what 95 % stay within."""


def bounds(
    values: Sequence[float], below: float = ALARM, above: float = ACQUITTAL
) -> tuple[float, float]:
    """Between which the centre of what the values are drawn from lies: it is ``below`` them, and
    ``above`` them, with a probability of at most so much.
    """
    ordered, number = sorted(values), len(values)
    low, high = (_rank(number, error) for error in (below, above))
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


FEWEST_MOMENTS = 10
"""Of so many, the extreme ones bound the centre with half of ALARM."""


def check_sustained(measured: CaseResult, limits: Limits, asked: bool) -> Iterator[Check]:
    """The last minute under load against the first; nothing where nobody asked for it."""
    found, limit = measured.sustained, limits.max_sustained_loss
    metric = f"loss under load ({measured.arm})"
    if found is not None:
        yield _check_loss(metric, found, limit)
    elif asked or limit is not None:
        problem = untimed(metric, measured) if measured.emulated else None
        text = problem.message if problem else "Say for how long: --sme2-sustain 5m."
        yield Check(metric, Outcome.NOT_MEASURED, text, limit=limit)


def _check_loss(metric: str, found: Sustained, limit: float | None) -> Check:
    loss, told = loss_under_load(found), load_text(found)
    if loss is None:
        return Check(metric, Outcome.INCONCLUSIVE, told, unit="share", limit=limit)
    value, low, high = loss
    verdict = Outcome.PASS
    if limit is not None:
        told += f" At most {as_given(limit)} % may be."
        if low > limit:
            verdict = Outcome.FAILED
        elif high > limit or found.ended:
            verdict = Outcome.INCONCLUSIVE
    return Check(metric, verdict, told, None, value, "share", (low, high), limit)


def loss_under_load(found: Sustained) -> tuple[float, float, float] | None:
    """The part of the first minute's speed that the last one lacks, and where it lies; None where
    both are too short to tell.
    """
    first, last = ([each.mean_ns for each in side] for side in (found.first, found.last))
    if min(len(first), len(last)) < FEWEST_MOMENTS:
        return None
    alarm, acquittal = ALARM / 2, ACQUITTAL / 2
    early, late = bounds(first, acquittal, alarm), bounds(last, alarm, acquittal)
    value = 1 - statistics.median(first) / statistics.median(last)
    return value, 1 - early[1] / late[0], 1 - early[0] / late[1]


def load_text(found: Sustained) -> str:
    """What a user gets after minutes, and what the device did meanwhile, in sentences."""
    lasted, loss = f"{found.seconds / 60:.1f} min under load", loss_under_load(found)
    early = f" (ended by {found.ended})" if found.ended else ""
    if loss is None:
        return f"{lasted}{early} are too short to compare their begin with their end."
    part = "minute" if found.seconds >= 3 * FIRST_MINUTE else "third"
    sides = (found.first, found.last)
    begin, end = (statistics.median(each.mean_ns for each in side) / 1e6 for side in sides)
    lost, low, high = (f"{100 * share:.1f}" for share in loss)
    text = (
        f"{lasted}{early}, an inference takes {begin:.3f} ms in the first {part} and {end:.3f} ms "
        f"in the last: {lost} % [{low}, {high}] of the speed is lost"
    )
    heat = [each.celsius for each in found.moments if each.celsius is not None]
    caps = [each.cap_ghz for each in found.moments if each.cap_ghz is not None]
    device = [f"{heat[0]:.0f} to {heat[-1]:.0f} °C"] if heat else []
    device += [f"highest clock {caps[0]:.2f} to {caps[-1]:.2f} GHz"] if caps else []
    return f"{text} ({', '.join(device)})." if device else f"{text}."
