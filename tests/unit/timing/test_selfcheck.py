"""The machine against itself, and the yardstick: taken often enough, and not too often."""

from __future__ import annotations

import argparse
import hashlib
import json
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from pytest_sme2.cli.commands import doctor as command
from pytest_sme2.errors import TargetError, UsageError
from pytest_sme2.results import Capabilities, Outcome
from pytest_sme2.session.settings import Settings
from pytest_sme2.timing import selfcheck
from pytest_sme2.timing.processes import Starter
from tests.support.pretended_machine import Machine, make_run


@pytest.fixture(autouse=True)
def no_governor(monkeypatch, tmp_path):
    """What the host's governor is must not matter here."""
    monkeypatch.setattr(selfcheck, "GOVERNOR", tmp_path / "none")


def check(machine, seconds=60.0, **choices):
    starter = Starter(machine, clock=machine.clock)
    return selfcheck.check_machine(starter, "linux", seconds=seconds, **choices)


def test_a_quiet_machine_is_called_quiet():
    machine = Machine(cv=0.003)
    result = check(machine)
    assert len(result.measurements) >= 4
    assert machine.now <= 60.0
    assert result.false_alarms == 0
    assert result.count(Outcome.PASS) == len(result.measurements)
    assert result.noise_floor == pytest.approx(0.003, rel=0.3)
    assert result.detectable[0] > result.detectable[-1] > result.threshold
    assert result.advice == ()
    assert command.noise_code(result) == 0


def test_a_noisy_machine_gets_advice_and_its_own_exit_code():
    result = check(Machine(cv=0.1), seconds=20.0)
    assert result.count(Outcome.INCONCLUSIVE) == len(result.measurements)
    assert "No single cause" in result.advice[0]
    assert "will mostly go unseen" in result.advice[-1]
    assert command.noise_code(result) == 3


def test_advice_names_the_cause_that_was_seen():
    stolen = {number: 0.2 + 0.1 * (number % 7) for number in range(1000)}
    result = check(Machine(cv=0.1, stolen=stolen), seconds=20.0)
    assert "Other programs take the cores" in result.advice[0]
    governed = selfcheck.SelfCheck("linux", 0.02, result.measurements, "powersave")
    assert any("'powersave'" in line for line in governed.advice)
    assert not any("governor" in line for line in result.advice)


def test_a_difference_between_equals_is_a_false_alarm():
    machine = Machine(slowdown=0.08)

    def run_arm(arm, *, warmup, runs):
        """The second label is as slow as the machine's B."""
        return machine("B" if arm == "A again" else "A", warmup=warmup, runs=runs)

    result = selfcheck.check_machine(Starter(run_arm, clock=machine.clock), "linux", seconds=8.0)
    assert result.false_alarms == len(result.measurements) > 0
    assert command.noise_code(result) == 1


def test_too_little_time_says_so():
    result = check(Machine(base_ns=1e9), seconds=0.2)
    assert len(result.measurements) == 1
    assert result.detectable == ()
    assert "give more --minutes" in result.advice[0]


def test_progress_and_results_are_told_as_they_come():
    steps = []
    result = check(
        Machine(), seconds=20.0, progress=lambda line: steps.append(line.split(" of ")[0])
    )
    assert steps[:2] == ["measurement 1: pair 1", "measurement 1: pair 2"]
    assert steps[-1].startswith(f"measurement {len(result.measurements)}: ")
    # The document is JSON and holds the raw medians.
    document = json.loads(json.dumps(command.noise_document(result)))
    assert document["false_alarms"] == 0
    assert document["measurements"][0]["pairs"][0]["reference_ns"] > 0


def test_the_program_is_part_of_the_package():
    artifact = selfcheck.selfcheck_artifact()
    assert artifact.pte == selfcheck.PROGRAM
    assert artifact.sha256 == hashlib.sha256(selfcheck.PROGRAM.read_bytes()).hexdigest()
    assert selfcheck.PROGRAM.read_bytes()[4:8] == b"ET12"


@pytest.mark.parametrize("minutes", [0.0, -1.0, float("nan"), float("inf")])
def test_minutes_must_be_a_number_above_zero(minutes):
    with pytest.raises(UsageError, match="--minutes takes"):
        command.run(argparse.Namespace(device=None, minutes=minutes, json=False))


def test_a_device_that_cannot_measure_time_is_refused(monkeypatch):
    class Emulator:
        name = "emulated"

        def capabilities(self):
            return Capabilities(timing=False, sme2=True, reason="the CPU is emulated.")

    monkeypatch.setattr(command, "choose_target", lambda settings: Emulator())
    with pytest.raises(TargetError) as told:
        command._measure_noise(Settings(device="emulated"), 0.5, Path())
    assert "cannot measure time: the CPU is emulated" in str(told.value)


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


def test_it_is_the_median_of_what_was_taken(tmp_path: Path) -> None:
    target = Target()
    yardstick = yardstick_of(target, tmp_path)
    for _ in range(3):
        if yardstick.due:
            yardstick.take()
    assert yardstick.median_ns == pytest.approx(1.2e6)


def test_a_slow_device_is_asked_now_and_then_only(tmp_path: Path) -> None:
    target = Target(seconds=1.0)
    yardstick = yardstick_of(target, tmp_path)
    for _ in range(100):
        target.now += 1.0
        if yardstick.due:
            yardstick.take()
    assert selfcheck.FEWEST < len(yardstick.times_ns) <= 12
