"""Each category's part of end-to-end time: compared on the same target only, never emulated."""

from __future__ import annotations

from dataclasses import replace

from pytest_sme2.results import (
    Arm,
    Baseline,
    Bounds,
    CaseResult,
    Category,
    Check,
    Limits,
    Outcome,
    Spread,
)
from pytest_sme2.verdict.baselines import differing_facts
from pytest_sme2.verdict.judging import CREATE_HINT
from pytest_sme2.verdict.stored_latency import same_work
from pytest_sme2.verdict.times import (
    IT_IS_THE_MACHINE,
    UNEXPLAINED,
    differences,
    explain,
    unlike,
    untimed,
)


def check_share(
    measured: CaseResult,
    baseline: Baseline | None,
    limits: Limits,
    category: Category,
    arm: Arm | None = None,
) -> Check:
    """The part of end-to-end time a category takes: against its bounds, then the baseline."""
    arm = measured.arm if arm is None else arm
    metric = f"share of {category} ({arm})"
    problem = untimed(metric, measured)
    if problem is not None:
        return problem
    new = (measured.shares or {}).get(arm, {}).get(category)
    if new is None:
        return Check(metric, Outcome.INVALID, "It was not measured.")
    old = (
        None
        if baseline is None
        else baseline.at(measured.threads).shares.get(arm, {}).get(category)
    )
    bounds = limits.shares.get(category)
    if bounds is not None:
        found = _against_bounds(metric, new, old, bounds)
        if found.verdict is not Outcome.PASS or old is None:
            return found
    if old is None or baseline is None:
        return Check(
            metric,
            Outcome.NO_BASELINE,
            f"No baseline, and no bounds in limits.toml. {CREATE_HINT}",
            new=new.value,
            unit="share",
            interval=(new.low, new.high),
        )
    differing = differing_facts(baseline.fingerprint, measured.fingerprint)
    if differing:
        return Check(
            metric,
            Outcome.INVALID,
            f"The baseline is of another target ({'; '.join(differing)}).",
            new=new.value,
            unit="share",
        )
    found = _share_growth(metric, new, old, limits.max_share_growth)
    current = baseline.current(measured.threads)
    if found.verdict is Outcome.PASS:
        return found
    sure = found.verdict is Outcome.REGRESSED
    if same_work(measured, current):
        changed = explain(measured, current).doubtful
        words = IT_IS_THE_MACHINE if changed else UNEXPLAINED
        verdict = Outcome.INVALID if sure else Outcome.INCONCLUSIVE
        return replace(
            found,
            verdict=Outcome.MACHINE_CHANGED if changed else verdict,
            message=f"{found.message} {words} {differences(measured, current)}",
        )
    remark = unlike(measured, current)
    if remark is None:
        return found
    weaker = Outcome.SUSPECTED if sure else Outcome.INCONCLUSIVE
    return replace(found, verdict=weaker, message=f"{found.message} {remark}")


def _against_bounds(metric: str, new: Spread, old: Spread | None, bounds: Bounds) -> Check:
    above, below = new.value > bounds.greatest, new.value < bounds.least
    limit = bounds.least if below else bounds.greatest
    certain = new.low > bounds.greatest or new.high < bounds.least
    verdict = Outcome.PASS
    if above or below:
        verdict = Outcome.REGRESSED if certain else Outcome.SUSPECTED
    where = "above its bound" if above else "below its bound" if below else "within its bounds"
    return Check(
        metric,
        verdict,
        f"{new.value:.1%} of the time is {where} ({bounds.least:.1%} to {bounds.greatest:.1%}).",
        old=None if old is None else old.value,
        new=new.value,
        unit="share",
        interval=(new.low, new.high),
        limit=limit,
    )


def _share_growth(metric: str, new: Spread, old: Spread, limit: float) -> Check:
    growth = new.value - old.value
    # The runs' own spread is what a difference must rise above.
    apart = new.low > old.high + limit
    verdict = Outcome.PASS
    if growth > limit:
        verdict = Outcome.REGRESSED if apart else Outcome.SUSPECTED
    return Check(
        metric,
        verdict,
        f"{abs(growth) * 100:.1f} points {'more' if growth > 0 else 'less'} of the time than "
        f"in the baseline; at most {limit * 100:.1f} more are allowed.",
        old=old.value,
        new=new.value,
        unit="share",
        interval=(new.low, new.high),
        limit=old.value + limit,
    )
