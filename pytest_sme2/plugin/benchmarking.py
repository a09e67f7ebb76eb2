"""Device timings for pytest-benchmark, through its public interface alone.

pytest-benchmark takes any clock. This one is advanced by the durations the device measured, so
its table, JSON, comparison and histogram show the device's times. Registered only where that
plugin is installed; it replaces the fixture of the same name in ``fixtures``.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from pytest_sme2.plugin.watch import session_of

if TYPE_CHECKING:
    from pytest_sme2.results.run import Arm
    from pytest_sme2.session.cases import Case
    from pytest_sme2.session.session import Session


class DeviceClock:
    """A clock that stands still until it is moved."""

    def __init__(self) -> None:
        self.seconds = 0.0

    def __call__(self) -> float:
        return self.seconds


def benchmarked_arms(session: Session) -> tuple[Arm, ...]:
    """Those with a benchmark of their own, as far as known at collection; none if there is one."""
    from pytest_sme2.errors import Sme2Error
    from pytest_sme2.results.run import PAIR

    if session.emulated:
        return ()
    if session.settings.device != "android":
        try:
            if not session.bench.chosen.capabilities().switches:
                return ()
        except Sme2Error:
            return ()  # for the first test that needs the device to say
    return PAIR


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """One benchmark per arm: pytest-benchmark takes one per test."""
    if "sme2_arm" not in metafunc.fixturenames or "sme2_model" not in metafunc.fixturenames:
        return
    arms = benchmarked_arms(session_of(metafunc.config))
    if arms:
        ids = [f"sme2_{arm}" for arm in arms]
        metafunc.parametrize("sme2_arm", arms, indirect=True, ids=ids)


@pytest.fixture
def sme2_arm(request: pytest.FixtureRequest, sme2_session: Session) -> Arm:
    """The arm of this test's benchmark."""
    arms = sme2_session.bench.arms
    arm: Arm = getattr(request, "param", arms[0])
    if arm not in arms:
        sme2_session.bench.require_sme2()
    return arm


@pytest.fixture
def sme2_clock(
    request: pytest.FixtureRequest, sme2_session: Session, sme2_model: Case
) -> DeviceClock:
    """The clock of this test's benchmark; it must be chosen before the benchmark is made."""
    # An unused benchmark fixture is a warning, so do not make one without times.
    sme2_session.bench.require_timing()
    clock = DeviceClock()
    request.node.add_marker(pytest.mark.benchmark(timer=clock, group=sme2_model.id))
    return clock


@pytest.fixture
def sme2_benchmark(
    sme2_clock: DeviceClock, sme2_session: Session, sme2_model: Case, sme2_arm: Arm, benchmark: Any
) -> None:
    """Feed the process medians of one arm into pytest-benchmark, one round per process."""
    measured = sme2_session.measured(sme2_model, timed=True)
    medians = (measured.medians_ns or {})[sme2_arm]
    durations = iter(medians)

    def step() -> None:
        sme2_clock.seconds += next(durations) / 1e9

    # A saved run must be readable by another: plain values in place of the case itself.
    benchmark.params = {
        "model": measured.model,
        "variant": measured.variant,
        "threads": measured.threads,
        "sme2": str(sme2_arm),
    }
    benchmark.extra_info.update(benchmark.params, device=measured.fingerprint.key)
    if measured.speedup is not None:
        benchmark.extra_info["speedup"] = measured.speedup.value
    benchmark.pedantic(step, rounds=len(medians), iterations=1)
