"""Verdicts of check_speedup."""

from __future__ import annotations

import math
from collections.abc import Callable

import pytest

from pytest_sme2.results import (
    Check,
    Estimate,
    Outcome,
)
from pytest_sme2.verdict import speedup
from tests.support.gate_examples import (
    LIMITS,
    baseline,
    figures,
    measured,
    session,
    with_limits,
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
        found = speedup.check_speedup(now, stored, with_limits(min_speedup=least))
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
    assert speedup.check_speedup(now, None, LIMITS).verdict is outcome


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
    assert speedup.check_speedup(measured(speedup=new), stored, LIMITS).verdict is outcome


def test_speedup_is_compared_although_the_machine_changed() -> None:
    stored = baseline(
        figures={1: figures(speedup=Estimate(3.0, 2.95, 3.05, 0.99, 10))},
        sessions=(session(1, yardstick_ns=1e6),),
    )
    now = measured(speedup=Estimate(1.05, 1.03, 1.07, 0.99, 10), yardstick_ns=2e6, interference=0.5)
    assert speedup.check_speedup(now, stored, LIMITS).verdict is Outcome.REGRESSED


def test_thread_counts_are_kept_apart() -> None:
    stored = baseline(
        figures={
            1: figures(speedup=Estimate(3.0, 2.95, 3.05, 0.99, 10)),
            4: figures(speedup=Estimate(1.2, 1.18, 1.22, 0.99, 10)),
        }
    )
    now = measured(threads=4, speedup=Estimate(1.2, 1.18, 1.22, 0.99, 10))
    assert speedup.check_speedup(now, stored, LIMITS).verdict is Outcome.PASS
    other = measured(threads=2, speedup=Estimate(1.2, 1.18, 1.22, 0.99, 10))
    found = speedup.check_speedup(other, stored, LIMITS)
    assert (found.verdict, found.old) == (Outcome.NO_BASELINE, None)
    assert "2 threads" in found.message


CASES: dict[str, Callable[[], Check]] = {
    "a speedup": (lambda: speedup.check_speedup(measured(), baseline(), LIMITS)),
    "a lost speedup": (
        lambda: speedup.check_speedup(
            measured(speedup=Estimate(1.05, 1.03, 1.07, 0.99, 10)),
            baseline(figures={1: figures(speedup=Estimate(3.0, 2.95, 3.05, 0.99, 10))}),
            LIMITS,
        )
    ),
    "too small a speedup": (
        lambda: speedup.check_speedup(
            measured(), baseline(figures={}), with_limits(min_speedup=2.5)
        )
    ),
    "a speedup too close": (
        lambda: speedup.check_speedup(measured(), None, with_limits(min_speedup=2.0))
    ),
    "no speedup": (
        lambda: speedup.check_speedup(
            measured(speedup=None), baseline(), with_limits(min_speedup=2.0)
        )
    ),
}


def test_whole_checks() -> None:
    check_whole_checks("speedup", CASES)
