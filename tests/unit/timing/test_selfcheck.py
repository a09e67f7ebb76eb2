"""The yardstick: taken often enough, and not too often."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path

from pytest_sme2.timing import processes as selfcheck
from tests.support.pretended_machine import make_run


@dataclass
class Target:
    """A clock, and processes that take a given time."""

    seconds: float = 0.0
    now: float = 0.0
    times: list[float] = field(default_factory=lambda: [1.0e6, 3.0e6, 1.2e6])

    def run(self, runner, request, folder):
        self.now += self.seconds
        assert request.artifact.pte == selfcheck.PROGRAM
        time = self.times.pop(0) if len(self.times) > 1 else self.times[0]
        return make_run([time] * request.runs)

    def clock(self):
        return self.now


def yardstick_of(target: Target, tmp_path: Path) -> selfcheck.Yardstick:
    return selfcheck.Yardstick(target, None, tmp_path, clock=target.clock)  # type: ignore[arg-type]


def test_a_slow_device_is_asked_now_and_then_only(tmp_path: Path) -> None:
    target = Target(seconds=1.0)
    yardstick = yardstick_of(target, tmp_path)
    for _ in range(100):
        target.now += 1.0
        if yardstick.due:
            yardstick.take()
    assert selfcheck.FEWEST_TAKEN < len(yardstick.times_ns) <= 12
