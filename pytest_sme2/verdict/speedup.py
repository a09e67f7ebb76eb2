"""How many times faster SME2 makes a program: never emulated."""

from __future__ import annotations

from pytest_sme2.results import Baseline, CaseResult, Check, Limits, Outcome
from pytest_sme2.verdict.times import untimed


def check_speedup(measured: CaseResult, baseline: Baseline | None, limits: Limits) -> Check:
    """How many times faster SME2 makes it, against the least that is asked for."""
    metric = "speedup"
    problem = untimed(metric, measured)
    if problem is not None:
        return problem
    # Without a least value of its own: turning SME2 on may not cost more than any change may.
    least = limits.min_speedup
    least = 1 / (1 + limits.max_regression) if least is None else least
    old = None if baseline is None or baseline.speedup is None else baseline.speedup.value
    found = measured.speedup
    if found is None:
        return Check(metric, Outcome.INVALID, "It was not measured.", old=old, limit=least)
    if found.high < least:
        verdict, tail = Outcome.REGRESSED, f"less than the {least:.2f}x asked for"
    elif found.low >= least:
        verdict, tail = Outcome.PASS, f"at least the {least:.2f}x asked for"
    else:
        verdict = Outcome.INCONCLUSIVE
        tail = f"too close to the {least:.2f}x asked for; measure longer (--budget)"
    return Check(
        metric,
        verdict,
        f"SME2 makes it {found.value:.2f}x as fast, {tail}.",
        old=old,
        new=found.value,
        unit="ratio",
        interval=(found.low, found.high),
        limit=least,
    )
