"""Ratios against their limits, then the baseline: speedup, growth of memory and size, shares of the
time.

A speedup compares two arms that ran side by side, so it is compared even where the speed of the
machine has changed since the baseline. Emulated times have no speedup.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial

from pytest_sme2.results.case import (
    Baseline,
    BaselineFigures,
    Bounds,
    CaseResult,
    Check,
    Limits,
    Spread,
)
from pytest_sme2.results.run import Arm
from pytest_sme2.results.timing import Estimate, Outcome
from pytest_sme2.system.wording import as_given, count
from pytest_sme2.verdict.judging import (
    CREATE_HINT,
    MORE_TIME,
    UPDATE_HINT,
    combine,
    estimate_text,
    judge,
    suspect,
)
from pytest_sme2.verdict.times import untimed

CLOSE = "It is too close to tell. Measure longer (--sme2-budget)."
METRIC = "speedup"


def _figures(measured: CaseResult, baseline: Baseline | None) -> BaselineFigures:
    return BaselineFigures() if baseline is None else baseline.at(measured.threads)


def check_speedup(measured: CaseResult, baseline: Baseline | None, limits: Limits) -> Check:
    """The speedup against ``min_speedup``, then against the one stored for this thread count."""
    problem = untimed(METRIC, measured)
    if problem is not None:
        return problem
    # Without a minimum of its own: turning SME2 on may not cost more than any change may.
    required = limits.min_speedup is not None
    least = limits.min_speedup or 1 / (1 + limits.max_regression)
    old, new = _figures(measured, baseline).speedup, measured.speedup
    if new is None:
        value = None if old is None else old.value
        return Check(METRIC, Outcome.INVALID, "It was not measured.", old=value, limit=least)
    judging = _Judging(new, old, least)
    if not math.isfinite(new.high):
        few = f". The time limit left too few pairs for a verdict. {MORE_TIME}"
        return judging.check(Outcome.INVALID, few)
    floor = judging.against_minimum()
    if floor.verdict is Outcome.REGRESSED:
        return floor
    if old is None:
        if floor.verdict is not Outcome.PASS or required:
            return floor
        threads = count(measured.threads, "thread")
        missing = f". No speedup is stored for {threads} on this target. {CREATE_HINT}"
        return judging.check(Outcome.NO_BASELINE, missing)
    stored = judging.against_stored(old, limits.max_speedup_loss)
    return stored if combine((stored, floor)) is stored.verdict else floor


@dataclass(frozen=True)
class _Judging:
    """A speedup, the stored one, and the least that it may be."""

    new: Estimate
    old: Estimate | None
    least: float

    def against_minimum(self) -> Check:
        new, least = self.new, self.least
        if new.high < least:
            verdict = Outcome.FAILED if self.old is None else Outcome.REGRESSED
            tail = f"less than the {least:.2f}x required"
        elif new.low >= least:
            verdict, tail = Outcome.PASS, f"at least the {least:.2f}x required"
        else:
            verdict = suspect(Outcome.INCONCLUSIVE, new.value < least)
            tail = f"too close to the {least:.2f}x required; measure longer (--sme2-budget)"
            if verdict is Outcome.INVALID:
                tail = f"perhaps less than the {least:.2f}x required: a suspected regression"
        return self.check(verdict, f", {tail}.")

    def against_stored(self, old: Estimate, most: float) -> Check:
        """``most`` is the part of the stored speedup that may be lost."""
        new = self.new
        kept = new.value / old.value
        # Both were measured, so both are uncertain.
        low = kept / math.exp(math.hypot(_log(new.value, new.low), _log(old.high, old.value)))
        high = kept * math.exp(math.hypot(_log(new.high, new.value), _log(old.value, old.low)))
        change = f"{1 - kept:.1%} less" if kept < 1 else f"{kept - 1:.1%} more"
        told = f"; {estimate_text(old)} is stored. That is {change}; "
        told += f"at most {as_given(most)}% less is allowed."
        head, verdict = "", Outcome.PASS
        if high < 1 - most:
            verdict = Outcome.REGRESSED
            told += f" {UPDATE_HINT}"
        elif low < 1 - most:
            verdict = suspect(Outcome.INCONCLUSIVE, kept < 1 - most)
            told += f" {CLOSE}"
            head = "Suspected regression: " if verdict is Outcome.INVALID else ""
        elif low > 1 / (1 - most):
            verdict = Outcome.IMPROVED
            told += " Keep it with --update-baselines."
        return self.check(verdict, told, head, limit=old.value * (1 - most))

    def check(
        self, verdict: Outcome, tail: str, head: str = "", limit: float | None = None
    ) -> Check:
        new, old = self.new, self.old
        return Check(
            METRIC,
            verdict,
            f"{head}SME2 makes it {estimate_text(new)} as fast{tail}",
            old=None if old is None else old.value,
            new=new.value,
            unit="ratio",
            interval=None if math.isinf(new.high) else (new.low, new.high),
            limit=self.least if limit is None else limit,
        )


def _log(larger: float, smaller: float) -> float:
    return math.inf if smaller <= 0 or math.isinf(larger) else math.log(larger / smaller)


def check_memory(
    measured: CaseResult, baseline: Baseline | None, limits: Limits, arm: Arm = Arm.ON
) -> Check:
    """The peak resident set: against the most allowed, then against the baseline."""
    metric = f"peak memory ({arm})"
    new = (measured.peak_bytes or {}).get(arm)
    if new is None:
        return Check(metric, Outcome.INVALID, "It was not measured.")
    told, most = partial(Check, metric, new=new, unit="bytes"), limits.max_memory_bytes
    if most is not None and new > most:
        verdict = Outcome.FAILED if baseline is None else Outcome.REGRESSED
        message = f"{new / 1e6:.1f} MB is more than the {most / 1e6:.1f} MB allowed."
        return told(verdict, message, limit=most)
    old = _figures(measured, baseline).peak_bytes.get(arm)
    if old is None and most is not None:
        message = f"{new / 1e6:.1f} MB of the {most / 1e6:.1f} MB allowed."
        return told(Outcome.PASS, message, limit=most)
    return _growth(metric, new, old, limits.max_memory_growth)


def check_size(measured: CaseResult, baseline: Baseline | None, limits: Limits) -> Check:
    """The size of the program's file."""
    metric = "program size"
    if measured.pte_bytes is None:
        return Check(metric, Outcome.INVALID, "It was not measured.")
    old = None if baseline is None else baseline.pte_bytes
    return _growth(metric, measured.pte_bytes, old, limits.max_size_growth)


def _growth(metric: str, new: int, old: int | None, limit: float) -> Check:
    """A size against the baseline's; exact, so there is no interval."""
    if old is None:
        message = f"No baseline. {CREATE_HINT}"
        return Check(metric, Outcome.NO_BASELINE, message, new=new, unit="bytes")
    ratio = new / old if old else math.inf
    verdict = judge(ratio, ratio, limit)
    change = "the same as in" if new == old else f"{ratio - 1:+.1%} against"
    message = f"{change} the baseline; {as_given(limit)}% more is allowed."
    if verdict is Outcome.REGRESSED:
        message += f" {UPDATE_HINT}"
    return Check(metric, verdict, message, old, new, "bytes", None, old * (1 + limit))


def check_shares(measured: CaseResult, limits: Limits) -> Iterator[Check]:
    """The part of end-to-end time that each category takes, where it has bounds."""
    shares = (measured.shares or {}).get(measured.arm, {})
    for category, bounds in limits.shares.items():
        metric, new = f"share of {category} ({measured.arm})", shares.get(category)
        problem = untimed(metric, measured)
        if problem is not None or new is None:
            yield problem or Check(metric, Outcome.INVALID, "It was not measured.")
            continue
        verdict, limit, message = _against_bounds(new, bounds)
        interval = (new.low, new.high)
        yield Check(metric, verdict, message, None, new.value, "share", interval, limit)


def _against_bounds(new: Spread, bounds: Bounds) -> tuple[Outcome, float, str]:
    """The verdict, the bound that counts, and a sentence."""
    above, below = new.value > bounds.greatest, new.value < bounds.least
    certain = new.low > bounds.greatest or new.high < bounds.least
    verdict = Outcome.PASS
    if above or below:
        verdict = Outcome.FAILED if certain else Outcome.INVALID
    where = "above its bound" if above else "below its bound" if below else "within its bounds"
    span = f"({as_given(bounds.least)}% to {as_given(bounds.greatest)}%)"
    limit = bounds.least if below else bounds.greatest
    told = f"{new.value:.1%} of the time is {where} {span}."
    return verdict, limit, f"{told} {CLOSE}" if verdict is Outcome.INVALID else told
