"""The yardstick: taken often enough to tell, seldom enough not to hold up."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path

import pytest

from pytest_sme2.timing.selfcheck import PROGRAM
from pytest_sme2.timing.yardstick import FEWEST, Yardstick
from tests.support.pretended_machine import make_run


@dataclass
class Target:
    """A clock, and processes that take a given time."""

    seconds: float
    now: float = 0.0
    files: list[Path] = field(default_factory=list)
    times: list[float] = field(default_factory=lambda: [1.0e6, 3.0e6, 1.2e6])

    def put(self, files):
        self.files += files

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
    assert target.files == [PROGRAM]
    assert yardstick.median_ns == pytest.approx(1.2e6)


def test_a_slow_device_is_asked_now_and_then_only(tmp_path: Path) -> None:
    target = Target(seconds=1.0)
    yardstick = yardstick_of(target, tmp_path)
    for _ in range(100):
        target.now += 1.0
        yardstick.take()
    assert FEWEST < len(yardstick.times_ns) <= 12
