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
    baseline,
    emulated,
    measured,
)
from tests.support.golden import check_whole_checks


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


CASES: dict[str, Callable[[], Check]] = {
    "the same size": (lambda: speedup.check_size(measured(), baseline(), LIMITS)),
    "a larger program": (
        lambda: speedup.check_size(measured(pte_bytes=110_000), baseline(), LIMITS)
    ),
    "no size": (lambda: speedup.check_size(measured(pte_bytes=None), baseline(), LIMITS)),
    "a baseline of nothing": (
        lambda: speedup.check_size(measured(pte_bytes=10), baseline(pte_bytes=0), LIMITS)
    ),
    "a smaller program": (
        lambda: speedup.check_size(measured(pte_bytes=90_000), baseline(), LIMITS)
    ),
}


def test_whole_checks() -> None:
    check_whole_checks("size", CASES)
