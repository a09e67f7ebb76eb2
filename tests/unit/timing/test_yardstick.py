"""The yardstick: taken often enough to tell, seldom enough not to hold up."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path

import pytest

from pytest_sme2.timing.selfcheck import FEWEST, PROGRAM, Yardstick
from tests.support.pretended_machine import make_run


@dataclass
class Target:
    """A clock, and processes that take a given time."""

    seconds: float = 0.0
    cpu_ns: float | None = 1.0e6
    """Of each run; None where the runner does not tell."""
    now: float = 0.0
    times: list[float] = field(default_factory=lambda: [1.0e6, 3.0e6, 1.2e6])

    def run(self, runner, request, folder):
        self.now += self.seconds
        assert request.artifact.pte == PROGRAM
        time = self.times.pop(0) if len(self.times) > 1 else self.times[0]
        cpu = [] if self.cpu_ns is None else [self.cpu_ns] * request.runs
        return make_run([time] * request.runs, cpu_ns=cpu)

    def clock(self):
        return self.now


def yardstick_of(target: Target, tmp_path: Path, at_once: int = 1) -> Yardstick:
    return Yardstick(target, None, tmp_path, clock=target.clock, at_once=at_once)  # type: ignore[arg-type]


def test_it_is_the_median_of_what_was_taken(tmp_path: Path) -> None:
    target = Target()
    yardstick = yardstick_of(target, tmp_path)
    for _ in range(3):
        yardstick.take()
    assert yardstick.median_ns == pytest.approx(1.2e6)


def test_a_slow_device_is_asked_now_and_then_only(tmp_path: Path) -> None:
    target = Target(seconds=1.0)
    yardstick = yardstick_of(target, tmp_path)
    for _ in range(100):
        target.now += 1.0
        yardstick.take()
    assert FEWEST < len(yardstick.times_ns) <= 12


@pytest.mark.parametrize(
    ("at_once", "cpu_ns", "interference"),
    [(1, 0.5e6, None), (2, 0.5e6, pytest.approx(1.0)), (2, None, None)],
)
def test_several_cores_are_busy_if_as_many_processes_at_once_wait(
    tmp_path: Path, at_once: int, cpu_ns: float | None, interference: object
) -> None:
    """Each process gets half of a core; without CPU time nobody knows."""
    yardstick = yardstick_of(Target(cpu_ns=cpu_ns, times=[1.0e6]), tmp_path, at_once)
    yardstick.take()
    assert yardstick.interference == interference
