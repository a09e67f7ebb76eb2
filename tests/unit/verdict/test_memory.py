"""Verdicts of check_memory."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from pytest_sme2.results import (
    Arm,
    Check,
    Fingerprint,
    Outcome,
)
from pytest_sme2.verdict import speedup
from tests.support.gate_examples import (
    ELSEWHERE,
    LIMITS,
    baseline,
    emulated,
    figures,
    measured,
    with_limits,
)
from tests.support.golden import check_whole_checks


@pytest.mark.parametrize(
    ("megabytes", "outcome"),
    [(50, Outcome.PASS), (54, Outcome.PASS), (56, Outcome.REGRESSED), (40, Outcome.IMPROVED)],
)
def test_memory_verdicts(megabytes: int, outcome: Outcome) -> None:
    now = measured(peak_bytes={Arm.ON: megabytes * 10**6})
    found = speedup.check_memory(now, baseline(), LIMITS)
    assert (found.verdict, found.old, found.unit) == (outcome, 50e6, "bytes")
    assert speedup.check_memory(now, None, LIMITS).verdict is Outcome.NO_BASELINE
    other = baseline(fingerprint=Fingerprint("mac", ()))
    assert speedup.check_memory(now, other, LIMITS).verdict is Outcome.INVALID


def test_baseline_without_memory_is_no_baseline() -> None:
    other = baseline(fingerprint=Fingerprint("mac", ()), figures={})
    assert speedup.check_memory(measured(), other, LIMITS).verdict is Outcome.NO_BASELINE


def test_memory_against_the_maximum() -> None:
    now = measured()
    tight, wide = with_limits(max_memory_bytes=49_999_999), with_limits(max_memory_bytes=50_000_000)
    assert speedup.check_memory(now, baseline(), tight).verdict is Outcome.REGRESSED
    assert speedup.check_memory(now, None, wide).verdict is Outcome.PASS
    assert speedup.check_memory(now, baseline(), wide).verdict is Outcome.PASS


def test_thread_counts_are_kept_apart() -> None:
    old = baseline(figures={1: figures(), 4: figures(peak_bytes={Arm.ON: 90_000_000})})
    now = measured(threads=4, peak_bytes={Arm.ON: 90_000_000})
    assert speedup.check_memory(now, old, LIMITS).verdict is Outcome.PASS
    assert speedup.check_memory(measured(), old, LIMITS).verdict is Outcome.PASS


CASES: dict[str, Callable[[], Check]] = {
    "the same memory": (lambda: speedup.check_memory(measured(), baseline(), LIMITS)),
    "more memory": (
        lambda: speedup.check_memory(measured(peak_bytes={Arm.ON: 60_000_000}), baseline(), LIMITS)
    ),
    "more memory than allowed": (
        lambda: speedup.check_memory(
            measured(), baseline(), with_limits(max_memory_bytes=49_000_000)
        )
    ),
    "memory within what is allowed": (
        lambda: speedup.check_memory(measured(), None, with_limits(max_memory_bytes=80_000_000))
    ),
    "memory without baseline": (lambda: speedup.check_memory(measured(), None, LIMITS)),
    "memory of another target": (
        lambda: speedup.check_memory(measured(), ELSEWHERE, LIMITS, Arm.OFF)
    ),
    "memory under emulation": (lambda: speedup.check_memory(emulated(), baseline(), LIMITS)),
    "no memory measured": (
        lambda: speedup.check_memory(measured(peak_bytes={}), baseline(), LIMITS)
    ),
    "nothing measured": (
        lambda: speedup.check_memory(measured(peak_bytes=None), baseline(), LIMITS)
    ),
}


def test_whole_checks() -> None:
    check_whole_checks("memory", CASES)


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


SIZE_CASES: dict[str, Callable[[], Check]] = {
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


def test_whole_checks_of_size() -> None:
    check_whole_checks("size", SIZE_CASES)
