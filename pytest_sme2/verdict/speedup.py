"""How many times faster SME2 makes a program, with one number of threads or with the best of each
arm: against the minimum, then against the baseline.

A speedup compares two arms that ran side by side, so it is compared even where the speed of the
machine has changed since the baseline. Emulated times have no speedup.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

from pytest_sme2.results import Baseline, CaseResult, Check, Estimate, Limits, Outcome
from pytest_sme2.system.wording import count
from pytest_sme2.verdict.baselines import differing_facts
from pytest_sme2.verdict.frontier import decision_text, moved_cells, same_cells
from pytest_sme2.verdict.judging import (
    CREATE_HINT,
    UPDATE_HINT,
    combine,
    estimate_text,
    suspect,
    too_hot,
)
from pytest_sme2.verdict.times import MORE_TIME, untimed

METRIC, FRONTIER = "speedup", "best against best"
TOO_FEW = "The time limit left too few {} for a verdict."


def check_speedup(measured: CaseResult, baseline: Baseline | None, limits: Limits) -> Check:
    """The speedup against ``min_speedup``, then against the one stored for this thread count."""
    problem = untimed(METRIC, measured)
    if problem is not None:
        return problem
    # Without a minimum of its own: turning SME2 on may not cost more than any change may.
    least = limits.min_speedup
    least = 1 / (1 + limits.max_regression) if least is None else least
    old = None if baseline is None else baseline.at(measured.threads).speedup
    new = measured.speedup
    if new is None:
        value = None if old is None else old.value
        return Check(METRIC, Outcome.INVALID, "It was not measured.", old=value, limit=least)
    judging = _Judging(METRIC, f"SME2 makes it {estimate_text(new)} as fast", new, old, least)
    if not math.isfinite(new.high):
        return judging.check(Outcome.INVALID, f". {TOO_FEW.format('pairs')} {MORE_TIME}")
    missing = f"No speedup is stored for {count(measured.threads, 'thread')} on this target."
    return judging.judge(measured, baseline, limits, limits.min_speedup is not None, missing)


def check_frontier(measured: CaseResult, baseline: Baseline | None, limits: Limits) -> Check:
    """Best against best over all numbers of threads: against ``min_best_speedup``, then against
    what is stored, with the cells that moved since.
    """
    problem = untimed(FRONTIER, measured)
    if problem is not None:
        return problem
    found, stored = measured.frontier, None if baseline is None else baseline.frontier
    least, missing = limits.min_best_speedup, "No frontier is stored on this target."
    if found is None:
        return Check(FRONTIER, Outcome.INVALID, "It was not measured.", limit=least)
    if stored is not None and not same_cells(stored, found):
        stored, missing = None, "What is stored is of other numbers of threads."
    sme1 = measured.fingerprint.sme1
    told = decision_text(found, sme1).rstrip(".")
    old = None if stored is None else stored.speedup
    judging = _Judging(FRONTIER, told, found.speedup, old, least or 0.0)
    if found.throttled:
        return judging.check(Outcome.INVALID, f". {too_hot(found.throttled)}")
    if not math.isfinite(found.speedup.high):
        return judging.check(Outcome.INVALID, f". {TOO_FEW.format('rounds')} {MORE_TIME}")
    check = judging.judge(measured, baseline, limits, least is not None, missing)
    moved = () if stored is None else tuple(moved_cells(found, stored, sme1))
    if check.verdict is not Outcome.PASS and moved:
        check = replace(check, message=f"{check.message} Since then: {'; '.join(moved)}.")
    return replace(check, details=moved)


@dataclass(frozen=True)
class _Judging:
    """One speedup, what it is compared with, and how its sentence begins."""

    metric: str
    told: str
    new: Estimate
    old: Estimate | None
    least: float

    def judge(
        self,
        measured: CaseResult,
        baseline: Baseline | None,
        limits: Limits,
        required: bool,
        missing: str,
    ) -> Check:
        """Against the minimum, then against what is stored; ``missing`` says that nothing is."""
        floor = self.against_minimum()
        if floor.verdict is Outcome.REGRESSED:
            return floor
        if self.old is None or baseline is None:
            if floor.verdict is not Outcome.PASS or required:
                return floor
            return self.check(Outcome.NO_BASELINE, f". {missing} {CREATE_HINT}")
        differing = differing_facts(baseline.fingerprint, measured.fingerprint)
        if differing:
            message = f"The baseline is of another target ({'; '.join(differing)})."
            return replace(self.check(Outcome.INVALID, ""), message=message, old=None)
        stored = self.against_stored(self.old, limits.max_speedup_loss)
        return stored if combine((stored, floor)) is stored.verdict else floor

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
            if verdict is Outcome.SUSPECTED:
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
        told = f"; {estimate_text(old)} is stored. That is {change}; at most {most:.0%} less is "
        told += "allowed."
        head, verdict = "", Outcome.PASS
        if high < 1 - most:
            verdict = Outcome.REGRESSED
            told += f" {UPDATE_HINT}"
        elif low < 1 - most:
            verdict = suspect(Outcome.INCONCLUSIVE, kept < 1 - most)
            told += " It is too close to tell. Measure longer (--sme2-budget)."
            head = "Suspected regression: " if verdict is Outcome.SUSPECTED else ""
        elif low > 1 / (1 - most):
            verdict = Outcome.IMPROVED
            told += " Keep it with --update-baselines."
        return self.check(verdict, told, head, limit=old.value * (1 - most))

    def check(
        self, verdict: Outcome, tail: str, head: str = "", limit: float | None = None
    ) -> Check:
        new, old = self.new, self.old
        return Check(
            self.metric,
            verdict,
            f"{head}{self.told}{tail}",
            old=None if old is None else old.value,
            new=new.value,
            unit="ratio",
            interval=None if math.isinf(new.high) else (new.low, new.high),
            limit=(self.least or None) if limit is None else limit,
        )


def _log(larger: float, smaller: float) -> float:
    return math.inf if smaller <= 0 or math.isinf(larger) else math.log(larger / smaller)
