"""Verdicts of check_size."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from pytest_sme2.results import (
    Check,
    Outcome,
)
from pytest_sme2.verdict import speedup
from tests.support.gate_examples import (
    LIMITS,
    assert_same_check,
    baseline,
    emulated,
    measured,
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
    assert speedup.check_size(now, baseline(), LIMITS).verdict is outcome
    assert speedup.check_size(now, None, LIMITS).verdict is Outcome.NO_BASELINE


CASES: dict[str, tuple[Callable[[], Check], Check]] = {
    "the same size": (
        lambda: speedup.check_size(measured(), baseline(), LIMITS),
        Check(
            "program size",
            Outcome.PASS,
            "the same as in the baseline; 1.0% more is allowed.",
            old=100000,
            new=100000,
            unit="bytes",
            limit=101000.0,
        ),
    ),
    "a larger program": (
        lambda: speedup.check_size(measured(pte_bytes=110_000), baseline(), LIMITS),
        Check(
            "program size",
            Outcome.REGRESSED,
            "+10.0% against the baseline; 1.0% more is allowed. If that is intended, "
            "accept it with --update-baselines.",
            old=100000,
            new=110000,
            unit="bytes",
            limit=101000.0,
        ),
    ),
    "no size": (
        lambda: speedup.check_size(measured(pte_bytes=None), baseline(), LIMITS),
        Check("program size", Outcome.INVALID, "It was not measured."),
    ),
    "a baseline of nothing": (
        lambda: speedup.check_size(measured(pte_bytes=10), baseline(pte_bytes=0), LIMITS),
        Check(
            "program size",
            Outcome.REGRESSED,
            "+inf% against the baseline; 1.0% more is allowed. If that is intended, "
            "accept it with --update-baselines.",
            old=0,
            new=10,
            unit="bytes",
            limit=0.0,
        ),
    ),
    "a smaller program": (
        lambda: speedup.check_size(measured(pte_bytes=90_000), baseline(), LIMITS),
        Check(
            "program size",
            Outcome.IMPROVED,
            "-10.0% against the baseline; 1.0% more is allowed.",
            old=100000,
            new=90000,
            unit="bytes",
            limit=101000.0,
        ),
    ),
}


@pytest.mark.parametrize("case", CASES)
def test_whole_check(case: str) -> None:
    make, expected = CASES[case]
    assert_same_check(make(), expected)
