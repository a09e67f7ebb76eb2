"""Verdicts on speedup, shares, memory and size."""

from __future__ import annotations

import dataclasses
import math

import pytest

from pytest_sme2.results import (
    Arm,
    Baseline,
    Bounds,
    Category,
    Check,
    Estimate,
    Fingerprint,
    Limits,
    Outcome,
    Spread,
)
from pytest_sme2.verdict import ratios
from tests.support.gate_examples import (
    BOUNDED,
    ELSEWHERE,
    LIMITS,
    baseline,
    emulated,
    figures,
    measured,
    of_this_code,
    session,
    with_limits,
    with_share,
)
from tests.support.golden import check_whole_checks


@pytest.mark.parametrize(
    ("low", "high", "least", "outcome"),
    [
        (1.9, 2.1, 1.8, Outcome.PASS),
        (1.9, 2.1, 1.9, Outcome.PASS),
        (1.9, 2.1, 2.0, Outcome.INCONCLUSIVE),
        (1.9, 2.1, 2.1, Outcome.SUSPECTED),
        (1.9, 2.1, 2.2, Outcome.FAILED),
        (0.0, math.inf, 1.0, Outcome.INVALID),
    ],
)
def test_speedup_against_the_minimum(
    low: float, high: float, least: float, outcome: Outcome
) -> None:
    now = measured(speedup=Estimate(2.0, low, high, 0.99, 10))
    for stored in (baseline(), baseline(figures={}), None):
        found = ratios.check_speedup(now, stored, with_limits(min_speedup=least))
        known = outcome is Outcome.FAILED and found.old is not None
        assert found.verdict is (Outcome.REGRESSED if known else outcome)
        assert found.interval == (None if math.isinf(high) else (low, high))


@pytest.mark.parametrize(
    ("low", "high", "outcome"),
    [
        (0.99, 1.01, Outcome.NO_BASELINE),
        (0.9, 0.95, Outcome.FAILED),
        (0.9, 1.01, Outcome.SUSPECTED),
    ],
)
def test_without_a_minimum_sme2_may_not_make_it_slower(
    low: float, high: float, outcome: Outcome
) -> None:
    now = measured(speedup=Estimate((low + high) / 2, low, high, 0.99, 10))
    assert ratios.check_speedup(now, None, LIMITS).verdict is outcome


@pytest.mark.parametrize(
    ("new", "outcome"),
    [
        (Estimate(1.05, 1.03, 1.07, 0.99, 10), Outcome.REGRESSED),
        (Estimate(2.4, 2.38, 2.42, 0.99, 10), Outcome.REGRESSED),
        (Estimate(2.7, 2.65, 2.75, 0.99, 10), Outcome.INCONCLUSIVE),
        (Estimate(2.9, 2.85, 2.95, 0.99, 10), Outcome.PASS),
        (Estimate(3.0, 0.0, math.inf, 0.99, 2), Outcome.INVALID),
        (Estimate(4.0, 3.9, 4.1, 0.99, 10), Outcome.IMPROVED),
        # Too close to the floor, and far below what is stored: the worse answer counts.
        (Estimate(0.98, 0.95, 1.01, 0.99, 10), Outcome.REGRESSED),
    ],
)
def test_speedup_against_the_stored_one(new: Estimate, outcome: Outcome) -> None:
    stored = baseline(figures={1: figures(speedup=Estimate(3.0, 2.95, 3.05, 0.99, 10))})
    assert ratios.check_speedup(measured(speedup=new), stored, LIMITS).verdict is outcome


def test_speedup_is_compared_although_the_machine_changed() -> None:
    stored = baseline(
        figures={1: figures(speedup=Estimate(3.0, 2.95, 3.05, 0.99, 10))},
        sessions=(session(1, yardstick_ns=1e6),),
    )
    now = measured(speedup=Estimate(1.05, 1.03, 1.07, 0.99, 10), yardstick_ns=2e6, interference=0.5)
    assert ratios.check_speedup(now, stored, LIMITS).verdict is Outcome.REGRESSED


def test_thread_counts_are_kept_apart() -> None:
    stored = baseline(
        figures={
            1: figures(speedup=Estimate(3.0, 2.95, 3.05, 0.99, 10)),
            4: figures(speedup=Estimate(1.2, 1.18, 1.22, 0.99, 10)),
        }
    )
    now = measured(threads=4, speedup=Estimate(1.2, 1.18, 1.22, 0.99, 10))
    assert ratios.check_speedup(now, stored, LIMITS).verdict is Outcome.PASS
    other = measured(threads=2, speedup=Estimate(1.2, 1.18, 1.22, 0.99, 10))
    found = ratios.check_speedup(other, stored, LIMITS)
    assert (found.verdict, found.old) == (Outcome.NO_BASELINE, None)
    assert "2 threads" in found.message


def test_whole_checks() -> None:
    check_whole_checks(
        "speedup",
        {
            "a speedup": ratios.check_speedup(measured(), baseline(), LIMITS),
            "a lost speedup": ratios.check_speedup(
                measured(speedup=Estimate(1.05, 1.03, 1.07, 0.99, 10)),
                baseline(figures={1: figures(speedup=Estimate(3.0, 2.95, 3.05, 0.99, 10))}),
                LIMITS,
            ),
            "too small a speedup": ratios.check_speedup(
                measured(), baseline(figures={}), with_limits(min_speedup=2.5)
            ),
            "a speedup too close": ratios.check_speedup(
                measured(), None, with_limits(min_speedup=2.0)
            ),
            "no speedup": ratios.check_speedup(
                measured(speedup=None), baseline(), with_limits(min_speedup=2.0)
            ),
        },
    )


def share_of(value: float, known: Baseline | None, limits: Limits) -> Check:
    now = measured(shares=with_share(value))
    return ratios.check_share(now, known, limits, Category.DATA_MOVEMENT)


@pytest.mark.parametrize(
    ("share", "outcome"),
    [
        (Spread(0.5, 0.5, 0.5), Outcome.PASS),
        (Spread(0.25, 0.25, 0.25), Outcome.PASS),
        (Spread(0.75, 0.5, 1.0), Outcome.SUSPECTED),
        (Spread(0.125, 0.0, 0.25), Outcome.SUSPECTED),
    ],
)
def test_share_at_its_bound_is_within_it(share: Spread, outcome: Outcome) -> None:
    bounded = with_limits(shares={Category.CONV: Bounds(0.25, 0.5)})
    now = measured(shares={Arm.ON: {Category.CONV: share}})
    assert ratios.check_share(now, None, bounded, Category.CONV).verdict is outcome


@pytest.mark.parametrize(
    ("share", "outcome"),
    [
        (Spread(0.5, 0.5, 0.5), Outcome.PASS),
        (Spread(0.75, 0.5, 1.0), Outcome.SUSPECTED),
        (Spread(0.75, 0.625, 1.0), Outcome.REGRESSED),
    ],
)
def test_share_may_grow_by_the_limit(share: Spread, outcome: Outcome) -> None:
    old = baseline(figures={1: figures(shares={Arm.ON: {Category.CONV: Spread(0.25, 0.25, 0.25)}})})
    now = measured(shares={Arm.ON: {Category.CONV: share}})
    limits = with_limits(max_share_growth=0.25)
    assert ratios.check_share(now, old, limits, Category.CONV).verdict is outcome


def test_share_without_baseline_or_of_another_target() -> None:
    now = measured()
    for none in (None, baseline(figures={})):
        found = ratios.check_share(now, none, LIMITS, Category.CONV)
        assert found.verdict is Outcome.NO_BASELINE
    other = baseline(fingerprint=Fingerprint("mac", ()))
    assert ratios.check_share(now, other, LIMITS, Category.CONV).verdict is Outcome.INVALID


def test_larger_share_of_the_same_code() -> None:
    (arm, by_category), *_ = (measured().shares or {}).items()
    category, share = next(iter(by_category.items()))
    grown = {arm: {category: Spread(share.value + 0.4, share.low + 0.4, share.high + 0.4)}}
    now = measured(shares=grown, runtime="r", inputs="i")
    assert ratios.check_share(now, baseline(), LIMITS, category, arm).verdict is Outcome.REGRESSED
    busy = dataclasses.replace(now, interference=0.3)
    for found, verdict in ((now, Outcome.INVALID), (busy, Outcome.MACHINE_CHANGED)):
        check = ratios.check_share(found, of_this_code(baseline(), now), LIMITS, category, arm)
        assert check.verdict is verdict
        assert "byte for byte" in check.message


def test_larger_share_on_a_changed_machine_is_suspected() -> None:
    old = baseline()
    old = dataclasses.replace(
        old,
        sessions=tuple(dataclasses.replace(entry, yardstick_ns=1e6) for entry in old.sessions),
    )
    (arm, by_category), *_ = (measured().shares or {}).items()
    category, share = next(iter(by_category.items()))
    grown = {arm: {category: Spread(share.value + 0.4, share.low + 0.4, share.high + 0.4)}}
    now = measured(shares=grown, yardstick_ns=1e6)
    check = ratios.check_share(now, old, LIMITS, category, arm)
    assert check.verdict is Outcome.REGRESSED
    slowed = dataclasses.replace(now, yardstick_ns=2e6)
    check = ratios.check_share(slowed, old, LIMITS, category, arm)
    assert check.verdict is Outcome.SUSPECTED
    assert "100% slower" in check.message


def test_thread_counts_of_shares_are_kept_apart() -> None:
    old = baseline(figures={1: figures(), 4: figures(shares=with_share(0.6))})
    for threads, share in ((1, 0.3), (4, 0.6)):
        now = measured(threads=threads, shares=with_share(share))
        found = ratios.check_share(now, old, LIMITS, Category.DATA_MOVEMENT)
        assert (found.verdict, found.old) == (Outcome.PASS, share)
    now = measured(threads=2, shares=with_share(0.3))
    found = ratios.check_share(now, old, LIMITS, Category.DATA_MOVEMENT)
    assert found.verdict is Outcome.NO_BASELINE


def test_whole_checks_of_shares() -> None:
    check_whole_checks(
        "shares",
        {
            "share beyond its bounds with a baseline": share_of(0.37, baseline(), BOUNDED),
            "share without baseline": ratios.check_share(
                measured(), None, LIMITS, Category.CONV, Arm.OFF
            ),
            "share of another target": ratios.check_share(
                measured(), ELSEWHERE, LIMITS, Category.CONV
            ),
            **{
                f"share of {value:g}": share_of(value, baseline(), LIMITS)
                for value in (0.3, 0.34, 0.36, 0.4, 0.1)
            },
            **{
                f"share of {value:g} with bounds": share_of(value, None, BOUNDED)
                for value in (0.3, 0.205, 0.195, 0.18, 0.37, 0.355)
            },
        },
    )


@pytest.mark.parametrize(
    ("megabytes", "outcome"),
    [(50, Outcome.PASS), (54, Outcome.PASS), (56, Outcome.REGRESSED), (40, Outcome.IMPROVED)],
)
def test_memory_verdicts(megabytes: int, outcome: Outcome) -> None:
    now = measured(peak_bytes={Arm.ON: megabytes * 10**6})
    found = ratios.check_memory(now, baseline(), LIMITS)
    assert (found.verdict, found.old, found.unit) == (outcome, 50e6, "bytes")
    assert ratios.check_memory(now, None, LIMITS).verdict is Outcome.NO_BASELINE
    other = baseline(fingerprint=Fingerprint("mac", ()))
    assert ratios.check_memory(now, other, LIMITS).verdict is Outcome.INVALID


def test_baseline_without_memory_is_no_baseline() -> None:
    other = baseline(fingerprint=Fingerprint("mac", ()), figures={})
    assert ratios.check_memory(measured(), other, LIMITS).verdict is Outcome.NO_BASELINE


def test_memory_against_the_maximum() -> None:
    now = measured()
    tight, wide = with_limits(max_memory_bytes=49_999_999), with_limits(max_memory_bytes=50_000_000)
    assert ratios.check_memory(now, baseline(), tight).verdict is Outcome.REGRESSED
    assert ratios.check_memory(now, None, wide).verdict is Outcome.PASS
    assert ratios.check_memory(now, baseline(), wide).verdict is Outcome.PASS


def test_thread_counts_of_memory_are_kept_apart() -> None:
    old = baseline(figures={1: figures(), 4: figures(peak_bytes={Arm.ON: 90_000_000})})
    now = measured(threads=4, peak_bytes={Arm.ON: 90_000_000})
    assert ratios.check_memory(now, old, LIMITS).verdict is Outcome.PASS
    assert ratios.check_memory(measured(), old, LIMITS).verdict is Outcome.PASS


def test_whole_checks_of_memory() -> None:
    check_whole_checks(
        "memory",
        {
            "the same memory": ratios.check_memory(measured(), baseline(), LIMITS),
            "more memory": ratios.check_memory(
                measured(peak_bytes={Arm.ON: 60_000_000}), baseline(), LIMITS
            ),
            "more memory than allowed": ratios.check_memory(
                measured(), baseline(), with_limits(max_memory_bytes=49_000_000)
            ),
            "memory within what is allowed": ratios.check_memory(
                measured(), None, with_limits(max_memory_bytes=80_000_000)
            ),
            "memory without baseline": ratios.check_memory(measured(), None, LIMITS),
            "memory of another target": ratios.check_memory(measured(), ELSEWHERE, LIMITS, Arm.OFF),
            "memory under emulation": ratios.check_memory(emulated(), baseline(), LIMITS),
            "no memory measured": ratios.check_memory(measured(peak_bytes={}), baseline(), LIMITS),
            "nothing measured": ratios.check_memory(measured(peak_bytes=None), baseline(), LIMITS),
        },
    )


@pytest.mark.parametrize(
    ("size", "outcome"),
    [
        (100_000, Outcome.PASS),
        (101_000, Outcome.PASS),
        (101_001, Outcome.REGRESSED),
        (99_009, Outcome.IMPROVED),
    ],
)
def test_size_verdicts(size: int, outcome: Outcome) -> None:
    now = emulated(pte_bytes=size)
    assert ratios.check_size(now, baseline(), LIMITS).verdict is outcome
    assert ratios.check_size(now, None, LIMITS).verdict is Outcome.NO_BASELINE


def test_whole_checks_of_size() -> None:
    check_whole_checks(
        "size",
        {
            "the same size": ratios.check_size(measured(), baseline(), LIMITS),
            "a larger program": ratios.check_size(measured(pte_bytes=110_000), baseline(), LIMITS),
            "no size": ratios.check_size(measured(pte_bytes=None), baseline(), LIMITS),
            "a baseline of nothing": ratios.check_size(
                measured(pte_bytes=10), baseline(pte_bytes=0), LIMITS
            ),
            "a smaller program": ratios.check_size(measured(pte_bytes=90_000), baseline(), LIMITS),
        },
    )
