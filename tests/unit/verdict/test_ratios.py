"""Verdicts on speedup, shares, memory and size; and what holds for every check."""

from __future__ import annotations

import math
from typing import Any

import pytest

from pytest_sme2.results.case import Baseline, Bounds, CaseResult, Check, Limits, Spread
from pytest_sme2.results.profile import Category
from pytest_sme2.results.run import Arm
from pytest_sme2.results.timing import Estimate, Outcome
from pytest_sme2.verdict import ratios, times
from tests.support.every_check import check_all
from tests.support.gate_examples import (
    BOUNDED,
    EMULATED,
    LIMITS,
    baseline,
    emulated,
    figures,
    measured,
    medians,
    session,
    with_limits,
)
from tests.support.golden import check_whole_checks


def estimate(value: float, low: float, high: float) -> Estimate:
    return Estimate(value, low, high, 0.99, 10)


THREE = {"speedup": estimate(3.0, 2.95, 3.05)}
LOST = estimate(1.05, 1.03, 1.07)


def speedup(
    new: Estimate | None, old: Baseline | None, limits: Limits = LIMITS, **changes: Any
) -> Check:
    return ratios.check_speedup(measured(speedup=new, **changes), old, limits)


@pytest.mark.parametrize(
    ("low", "high", "least", "outcome"),
    [
        (1.9, 2.1, 1.8, Outcome.PASS),
        (1.9, 2.1, 1.9, Outcome.PASS),
        (1.9, 2.1, 2.0, Outcome.INCONCLUSIVE),
        (1.9, 2.1, 2.1, Outcome.INVALID),
        (1.9, 2.1, 2.2, Outcome.FAILED),
        (0.0, math.inf, 1.0, Outcome.INVALID),
    ],
)
def test_speedup_against_the_minimum(
    low: float, high: float, least: float, outcome: Outcome
) -> None:
    for stored in (baseline(), baseline(figures={}), None):
        found = speedup(estimate(2.0, low, high), stored, with_limits(min_speedup=least))
        known = outcome is Outcome.FAILED and found.old is not None
        assert found.verdict is (Outcome.REGRESSED if known else outcome)
        assert found.interval == (None if math.isinf(high) else (low, high))


@pytest.mark.parametrize(
    ("low", "high", "outcome"),
    [
        (0.99, 1.01, Outcome.NO_BASELINE),
        (0.9, 0.95, Outcome.FAILED),
        (0.9, 1.01, Outcome.INVALID),
    ],
)
def test_without_a_minimum_sme2_may_not_make_it_slower(
    low: float, high: float, outcome: Outcome
) -> None:
    assert speedup(estimate((low + high) / 2, low, high), None).verdict is outcome


@pytest.mark.parametrize(
    ("new", "outcome"),
    [
        (LOST, Outcome.REGRESSED),
        (estimate(2.4, 2.38, 2.42), Outcome.REGRESSED),
        (estimate(2.7, 2.65, 2.75), Outcome.INCONCLUSIVE),
        (estimate(2.9, 2.85, 2.95), Outcome.PASS),
        (estimate(3.0, 0.0, math.inf), Outcome.INVALID),
        (estimate(4.0, 3.9, 4.1), Outcome.IMPROVED),
        # Too close to the floor, and far below what is stored: the worse answer counts.
        (estimate(0.98, 0.95, 1.01), Outcome.REGRESSED),
    ],
)
def test_speedup_against_the_stored_one(new: Estimate, outcome: Outcome) -> None:
    assert speedup(new, baseline(figures={1: figures(**THREE)})).verdict is outcome


def test_speedup_is_compared_although_the_machine_changed() -> None:
    stored = baseline(figures={1: figures(**THREE)}, sessions=(session(1, yardstick_ns=1e6),))
    found = speedup(LOST, stored, yardstick_ns=2e6, interference=0.5)
    assert found.verdict is Outcome.REGRESSED


def test_thread_counts_are_kept_apart() -> None:
    small = estimate(1.2, 1.18, 1.22)
    on_four = {"speedup": small, "peak_bytes": {Arm.ON: 90_000_000}}
    old = baseline(figures={1: figures(**THREE), 4: figures(**on_four)})
    for threads, now in ((1, THREE), (4, on_four)):
        found = measured(threads=threads, **now)
        for check in (
            ratios.check_speedup(found, old, LIMITS),
            ratios.check_memory(found, old, LIMITS),
        ):
            assert check.verdict is Outcome.PASS
    other = measured(threads=2, **on_four)
    check = ratios.check_speedup(other, old, LIMITS)
    assert (check.verdict, check.old) == (Outcome.NO_BASELINE, None)
    assert "2 threads" in check.message


def test_whole_checks() -> None:
    usual = measured().speedup
    check_whole_checks(
        "speedup",
        {
            "a speedup": speedup(usual, baseline()),
            "a lost speedup": speedup(LOST, baseline(figures={1: figures(**THREE)})),
            "too small a speedup": speedup(
                usual, baseline(figures={}), with_limits(min_speedup=2.5)
            ),
            "a speedup too close": speedup(usual, None, with_limits(min_speedup=2.0)),
            "no speedup": speedup(None, baseline(), with_limits(min_speedup=2.0)),
        },
    )


@pytest.mark.parametrize(
    ("share", "outcome"),
    [
        (Spread(0.5, 0.5, 0.5), Outcome.PASS),
        (Spread(0.25, 0.25, 0.25), Outcome.PASS),
        (Spread(0.75, 0.5, 1.0), Outcome.INVALID),
        (Spread(0.125, 0.0, 0.25), Outcome.INVALID),
        (Spread(0.75, 0.625, 1.0), Outcome.FAILED),
        (Spread(0.125, 0.0, 0.2), Outcome.FAILED),
    ],
)
def test_a_share_is_held_to_its_bounds(share: Spread, outcome: Outcome) -> None:
    bounded = with_limits(shares={Category.CONV: Bounds(0.25, 0.5)})
    (check,) = ratios.check_shares(measured(shares={Arm.ON: {Category.CONV: share}}), bounded)
    assert (check.metric, check.verdict) == ("share of CONV (on)", outcome)
    assert (check.new, check.interval) == (share.value, (share.low, share.high))
    side = (
        "within its bounds"
        if outcome is Outcome.PASS
        else f"{'above' if share.value > 0.5 else 'below'} its bound"
    )
    assert f"{share.value:.1%} of the time is {side} (25% to 50%)." in check.message


def memory(now: CaseResult, old: Baseline | None, **limits: object) -> Check:
    return ratios.check_memory(now, old, with_limits(**limits))


def with_peak(megabytes: int) -> CaseResult:
    return measured(peak_bytes={Arm.ON: megabytes * 10**6})


@pytest.mark.parametrize(
    ("megabytes", "outcome"),
    [(54, Outcome.PASS), (56, Outcome.REGRESSED), (40, Outcome.IMPROVED)],
)
def test_memory_verdicts(megabytes: int, outcome: Outcome) -> None:
    found = memory(with_peak(megabytes), baseline())
    assert (found.verdict, found.old, found.unit) == (outcome, 50e6, "bytes")


def test_whole_checks_of_memory() -> None:
    now, old = measured(), baseline()
    check_whole_checks(
        "memory",
        {
            "the same memory": memory(now, old),
            "more memory": memory(with_peak(60), old),
            "more memory than allowed": memory(now, old, max_memory_bytes=49_000_000),
            "memory within what is allowed": memory(now, None, max_memory_bytes=80_000_000),
            "memory without baseline": memory(now, None),
            "no memory measured": memory(measured(peak_bytes={}), old),
            "nothing measured": memory(measured(peak_bytes=None), old),
        },
    )


def size(pte_bytes: int | None, old: Baseline | None) -> Check:
    return ratios.check_size(emulated(pte_bytes=pte_bytes), old, LIMITS)


@pytest.mark.parametrize(
    ("now", "outcome"),
    [(101_000, Outcome.PASS), (101_001, Outcome.REGRESSED), (99_009, Outcome.IMPROVED)],
)
def test_size_verdicts(now: int, outcome: Outcome) -> None:
    assert size(now, baseline()).verdict is outcome
    assert size(now, None).verdict is Outcome.NO_BASELINE


def test_whole_checks_of_size() -> None:
    check_whole_checks(
        "size",
        {
            "the same size": size(100_000, baseline()),
            "a larger program": size(110_000, baseline()),
            "no size": size(None, baseline()),
            "a baseline of nothing": size(10, baseline(pte_bytes=0)),
            "a smaller program": size(90_000, baseline()),
        },
    )


def test_emulated_times_are_never_compared() -> None:
    now = emulated(medians_ns={Arm.ON: medians(10)})
    for found in (
        times.check_latency(now, baseline(fingerprint=EMULATED), LIMITS),
        times.check_load(now, baseline(), LIMITS),
        ratios.check_speedup(now, baseline(), LIMITS),
        *ratios.check_shares(now, BOUNDED),
    ):
        assert found.verdict is Outcome.INVALID
        assert "mulated" in found.message
    assert ratios.check_memory(now, baseline(), LIMITS).verdict is Outcome.INVALID


def test_what_was_not_measured_is_invalid() -> None:
    now = measured(
        medians_ns={}, loads_ns={}, speedup=None, shares={}, peak_bytes={}, pte_bytes=None
    )
    for found in (
        times.check_latency(now, baseline(), LIMITS),
        times.check_load(now, baseline(), LIMITS),
        ratios.check_speedup(now, baseline(), LIMITS),
        *ratios.check_shares(now, BOUNDED),
        ratios.check_memory(now, baseline(), LIMITS),
        ratios.check_size(now, baseline(), LIMITS),
    ):
        assert found.verdict is Outcome.INVALID


def test_unchanged_run_passes_every_check() -> None:
    checks = check_all(measured(), baseline(), LIMITS)
    assert {check.verdict for check in checks} == {Outcome.PASS}
    metrics = [check.metric for check in checks]
    assert len(set(metrics)) == len(metrics)
    assert {"evidence", "latency (on)", "latency (off)", "speedup", "program size"} <= {*metrics}
