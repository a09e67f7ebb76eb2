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
    assert_same_check,
    baseline,
    measured,
    with_limits,
)


@pytest.mark.parametrize(
    ("low", "high", "least", "outcome"),
    [
        (1.9, 2.1, 1.8, Outcome.PASS),
        (1.9, 2.1, 1.9, Outcome.PASS),
        (1.9, 2.1, 2.0, Outcome.INCONCLUSIVE),
        (1.9, 2.1, 2.1, Outcome.INCONCLUSIVE),
        (1.9, 2.1, 2.2, Outcome.REGRESSED),
        (0.0, math.inf, 1.0, Outcome.INCONCLUSIVE),
        (0.99, 1.01, None, Outcome.PASS),
        (0.9, 0.95, None, Outcome.REGRESSED),
        (0.9, 1.01, None, Outcome.INCONCLUSIVE),
    ],
)
def test_speedup_verdicts(low: float, high: float, least: float | None, outcome: Outcome) -> None:
    now = measured(speedup=Estimate(2.0, low, high, 0.99, 10))
    found = speedup.check_speedup(now, baseline(), with_limits(min_speedup=least))
    assert found.verdict is outcome
    assert found.old == 2.0
    assert found.interval == (low, high)


CASES: dict[str, tuple[Callable[[], Check], Check]] = {
    "a speedup": (
        lambda: speedup.check_speedup(measured(), baseline(), LIMITS),
        Check(
            "speedup",
            Outcome.PASS,
            "SME2 makes it 2.00x as fast, at least the 0.98x asked for.",
            old=2.0,
            new=2.0,
            unit="ratio",
            interval=(1.97, 2.03),
            limit=0.980392157,
        ),
    ),
    "too small a speedup": (
        lambda: speedup.check_speedup(
            measured(), baseline(speedup=None), with_limits(min_speedup=2.5)
        ),
        Check(
            "speedup",
            Outcome.REGRESSED,
            "SME2 makes it 2.00x as fast, less than the 2.50x asked for.",
            new=2.0,
            unit="ratio",
            interval=(1.97, 2.03),
            limit=2.5,
        ),
    ),
    "a speedup too close": (
        lambda: speedup.check_speedup(measured(), None, with_limits(min_speedup=2.0)),
        Check(
            "speedup",
            Outcome.INCONCLUSIVE,
            "SME2 makes it 2.00x as fast, too close to the 2.00x asked for; measure "
            "longer (--budget).",
            new=2.0,
            unit="ratio",
            interval=(1.97, 2.03),
            limit=2.0,
        ),
    ),
    "no speedup": (
        lambda: speedup.check_speedup(
            measured(speedup=None), baseline(), with_limits(min_speedup=2.0)
        ),
        Check("speedup", Outcome.INVALID, "It was not measured.", old=2.0, limit=2.0),
    ),
}


@pytest.mark.parametrize("case", CASES)
def test_whole_check(case: str) -> None:
    make, expected = CASES[case]
    assert_same_check(make(), expected)
