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

    seconds: float
    now: float = 0.0
    times: list[float] = field(default_factory=lambda: [1.0e6, 3.0e6, 1.2e6])

    def run(self, runner, request, folder):
        self.now += self.seconds
        assert request.artifact.pte == PROGRAM
        return (
            make_run([self.times[0]] * request.runs)
            if len(self.times) == 1
            else make_run([self.times.pop(0)] * request.runs)
        )

    def clock(self):
        return self.now


def yardstick_of(target: Target, tmp_path: Path) -> Yardstick:
    return Yardstick(target, None, tmp_path, clock=target.clock)  # type: ignore[arg-type]


def test_it_is_the_median_of_what_was_taken(tmp_path: Path) -> None:
    target = Target(seconds=0.0)
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


class SharedCores(Target):
    """Each process gets half of a core."""

    def run(self, runner, request, folder):
        return make_run([1.0e6] * request.runs, cpu_ns=[0.5e6] * request.runs)


def test_several_cores_are_busy_if_as_many_processes_at_once_wait(tmp_path: Path) -> None:
    target = SharedCores(seconds=0.0)
    alone = yardstick_of(target, tmp_path)
    alone.take()
    assert alone.interference is None
    several = Yardstick(target, None, tmp_path, clock=target.clock, at_once=2)  # type: ignore[arg-type]
    several.take()
    assert several.interference == pytest.approx(1.0)


def test_without_cpu_time_nobody_knows_whether_cores_are_busy(tmp_path: Path) -> None:
    target = Target(seconds=0.0, times=[1.0e6])
    target.run = lambda runner, request, folder: make_run([1.0e6] * request.runs, cpu_ns=[])  # type: ignore[method-assign]
    yardstick = Yardstick(target, None, tmp_path, clock=target.clock, at_once=2)  # type: ignore[arg-type]
    yardstick.take()
    assert yardstick.interference is None
