"""Device timings for pytest-benchmark, through its public interface alone.

pytest-benchmark takes any clock. This one is advanced by the durations the device measured, so
its table, JSON, comparison and histogram show the device's times. Registered only where that
plugin is installed; it replaces the fixture of the same name in ``fixtures``.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from pytest_sme2.session.cases import Case
    from pytest_sme2.session.session import Session


class DeviceClock:
    """A clock that stands still until it is moved."""

    def __init__(self) -> None:
        self.seconds = 0.0

    def __call__(self) -> float:
        return self.seconds


@pytest.fixture
def sme2_clock(
    request: pytest.FixtureRequest, sme2_session: Session, sme2_model: Case
) -> DeviceClock:
    """The clock of this test's benchmark; it must be chosen before the benchmark is made."""
    # A benchmark that is made and not used is a warning, so whoever has no times makes none.
    sme2_session.bench.require_timing()
    clock = DeviceClock()
    request.node.add_marker(pytest.mark.benchmark(timer=clock, group=sme2_model.id))
    return clock


@pytest.fixture
def sme2_benchmark(
    sme2_clock: DeviceClock, sme2_session: Session, sme2_model: Case, benchmark: Any
) -> None:
    """Feed the process medians of the case into pytest-benchmark, one round a process."""
    arm = sme2_session.bench.arms[0]
    measured = sme2_session.measured(sme2_model, timed=True)
    medians = (measured.medians_ns or {})[arm]
    durations = iter(medians)

    def step() -> None:
        sme2_clock.seconds += next(durations) / 1e9

    benchmark.extra_info.update(
        model=measured.model,
        variant=measured.variant,
        device=measured.fingerprint.key,
        sme2=str(arm),
        threads=measured.threads,
    )
    if measured.speedup is not None:
        benchmark.extra_info["speedup"] = measured.speedup.value
    benchmark.pedantic(step, rounds=len(medians), iterations=1)
