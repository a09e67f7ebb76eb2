"""The benchmark of turns on phones: its runner on a real adbd, and what it makes of verdicts."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import pytest

from benchmarks.phone_turns import KINDS, NANOSECONDS, Kind, build, claims_of, program
from pytest_sme2.errors import TargetError
from pytest_sme2.fake_phone.lab import fake_target
from pytest_sme2.results import Arm, Outcome, RunRequest, Turn
from pytest_sme2.system.qemu import find_qemu
from pytest_sme2.targets.base import Job
from tests.support.phones import start_lab


def test_its_runner_takes_turns_and_has_two_speeds(tmp_path: Path) -> None:
    try:
        emulator = find_qemu().path
    except TargetError as error:
        pytest.skip(str(error))
    runner = build(tmp_path / "runner")
    assert runner.takes_turns
    with start_lab(emulator=emulator) as lab:
        target = fake_target(lab.add(), emulated=False)
        target.prepare()
        jobs = [
            Job(
                runner,
                RunRequest(program(tmp_path, nanoseconds), Arm.OFF, warmup=1, runs=4, turn=Turn(2)),
                tmp_path / str(nanoseconds),
            )
            for nanoseconds in (NANOSECONDS, 2 * NANOSECONDS)
        ]
        runs = target.run_in_turns(jobs)
        target.restore()
    for run, nanoseconds in zip(runs, (NANOSECONDS, 2 * NANOSECONDS), strict=True):
        assert len(run.wall_ns) == 4
        for value in run.wall_ns:
            assert any(0.98 < value / (speed * nanoseconds) < 1.02 for speed in (1.0, 1.4))


def test_what_is_claimed() -> None:
    found = {kind: Counter({Outcome.PASS: 10}) for kind in KINDS}
    found[Kind(slower=True, turns=True)] = Counter({Outcome.REGRESSED: 9, Outcome.SUSPECTED: 1})
    found[Kind(slower=False, turns=False)] = Counter({Outcome.REGRESSED: 1, Outcome.PASS: 9})
    claims = {claim.key: claim for claim in claims_of(found)}
    assert claims["caught in turns"].value == 0.9
    assert claims["caught in turns"].met is False
    assert claims["caught one process after the other"].met is None
    assert claims["alarms in turns"].met is True
    assert claims["alarms one process after the other"].met is False
