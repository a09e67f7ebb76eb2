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
    assert_same_check,
    baseline,
    emulated,
    figures,
    measured,
    with_limits,
)


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


CASES: dict[str, tuple[Callable[[], Check], Check]] = {
    "the same memory": (
        lambda: speedup.check_memory(measured(), baseline(), LIMITS),
        Check(
            "peak memory (on)",
            Outcome.PASS,
            "the same as in the baseline; 10.0% more is allowed.",
            old=50000000,
            new=50000000,
            unit="bytes",
            limit=55000000.00000001,
        ),
    ),
    "more memory": (
        lambda: speedup.check_memory(measured(peak_bytes={Arm.ON: 60_000_000}), baseline(), LIMITS),
        Check(
            "peak memory (on)",
            Outcome.REGRESSED,
            "+20.0% against the baseline; 10.0% more is allowed. If that is intended,"
            " accept it with --update-baselines.",
            old=50000000,
            new=60000000,
            unit="bytes",
            limit=55000000.00000001,
        ),
    ),
    "more memory than allowed": (
        lambda: speedup.check_memory(
            measured(), baseline(), with_limits(max_memory_bytes=49_000_000)
        ),
        Check(
            "peak memory (on)",
            Outcome.REGRESSED,
            "50.0 MB is more than the 49.0 MB allowed.",
            new=50000000,
            unit="bytes",
            limit=49000000,
        ),
    ),
    "memory within what is allowed": (
        lambda: speedup.check_memory(measured(), None, with_limits(max_memory_bytes=80_000_000)),
        Check(
            "peak memory (on)",
            Outcome.PASS,
            "50.0 MB of the 80.0 MB allowed.",
            new=50000000,
            unit="bytes",
            limit=80000000,
        ),
    ),
    "memory without baseline": (
        lambda: speedup.check_memory(measured(), None, LIMITS),
        Check(
            "peak memory (on)",
            Outcome.NO_BASELINE,
            "No baseline. Make one with --update-baselines.",
            new=50000000,
            unit="bytes",
        ),
    ),
    "memory of another target": (
        lambda: speedup.check_memory(measured(), ELSEWHERE, LIMITS, Arm.OFF),
        Check(
            "peak memory (off)",
            Outcome.INVALID,
            "The baseline is of another target (cpu 'Cortex-X5' there, 'Neoverse-V3' "
            "here; os 'BSD' there, 'Linux' here).",
            new=48000000,
            unit="bytes",
        ),
    ),
    "memory under emulation": (
        lambda: speedup.check_memory(emulated(), baseline(), LIMITS),
        Check(
            "peak memory (on)",
            Outcome.INVALID,
            "An emulated process's memory holds the emulator's own and is never compared.",
        ),
    ),
    "no memory measured": (
        lambda: speedup.check_memory(measured(peak_bytes={}), baseline(), LIMITS),
        Check("peak memory (on)", Outcome.INVALID, "It was not measured."),
    ),
    "nothing measured": (
        lambda: speedup.check_memory(measured(peak_bytes=None), baseline(), LIMITS),
        Check("peak memory (on)", Outcome.INVALID, "It was not measured."),
    ),
}


@pytest.mark.parametrize("case", CASES)
def test_whole_check(case: str) -> None:
    make, expected = CASES[case]
    assert_same_check(make(), expected)
