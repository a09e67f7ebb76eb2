"""What holds for every check."""

from __future__ import annotations

from pytest_sme2.results import Arm, Category, Outcome
from pytest_sme2.verdict import ratios, times
from tests.support.every_check import check_all
from tests.support.gate_examples import EMULATED, LIMITS, baseline, emulated, measured, medians


def test_emulated_times_are_never_compared() -> None:
    now = emulated(medians_ns={Arm.ON: medians(10)})
    for found in (
        times.check_latency(now, baseline(fingerprint=EMULATED), LIMITS),
        times.check_load(now, baseline(), LIMITS),
        ratios.check_speedup(now, baseline(), LIMITS),
        ratios.check_share(now, baseline(), LIMITS, Category.CONV),
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
        ratios.check_share(now, baseline(), LIMITS, Category.CONV),
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
