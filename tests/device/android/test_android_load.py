"""A phone whose clock cap falls step by step under a load that nothing pauses."""

from __future__ import annotations

import contextlib
import itertools
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from pytest_sme2.fake_phone.lab import FakePhone
from pytest_sme2.results.run import Arm, Artifact, Run, RunRequest
from pytest_sme2.results.timing import Outcome
from pytest_sme2.session.device import measure_sustained
from pytest_sme2.targets.phone.target import AndroidTarget
from pytest_sme2.verdict.times import check_sustained
from tests.support.gate_examples import measured, with_limits
from tests.support.phones import MakeTarget
from tests.support.sleep_runner import make_sleep_runner

CAP = "sys/devices/system/cpu/cpu{}/cpufreq/scaling_max_freq"
STATUS = "data/system/fake/thermal_status"
# The time of an inference on the phone: 20 ms at 3.6 GHz.
EACH = f"$((72000000 / ($(cat /{CAP.format(0)}) / 1000)))000"
LIMITS = with_limits(max_sustained_loss=0.15)


def bench(target: AndroidTarget, runner: Any, before: Callable[[int], None]) -> Any:
    """What the load needs of it; its clock goes on by what the phone says that it computed.
    ``before`` gets the number of each process, from 0 for the pilot.
    """
    now, numbers = 0.0, itertools.count()

    def run(request: RunRequest, folder: Path) -> Run:
        nonlocal now
        before(next(numbers))
        made = target.run(runner, request, folder)
        now += sum(made.wall_ns) / 1e9
        return made

    return SimpleNamespace(
        target=target,
        settings=SimpleNamespace(sustain_seconds=30.0),
        run=run,
        clock=lambda: now,
        say=lambda line: None,
        cool_down=target.cool_down,
        require_timing=lambda: None,
        exclusively=contextlib.nullcontext,
    )


@pytest.mark.parametrize(
    ("caps", "critical", "verdict", "loss"),
    [
        # 3.6 to 2.0 GHz: 44 % of the speed.
        ({8: 3_200_000, 9: 2_800_000, 10: 2_400_000, 11: 2_000_000}, 99, Outcome.FAILED, 0.444),
        ({}, 99, Outcome.PASS, 0.0),
        ({}, 19, Outcome.INCONCLUSIVE, 0.0),
    ],
)
def test_a_cap_that_falls_step_by_step_is_what_a_user_gets(
    phone: FakePhone, make_target: MakeTarget, artifact: Artifact, tmp_path: Path,
    caps: dict[int, int], critical: int, verdict: Outcome, loss: float,
) -> None:  # fmt: skip
    waited: list[str] = []

    def heat(number: int) -> None:
        for core in target.cores:
            if number in caps:
                phone.write(CAP.format(core.number), f"{caps[number]}\n")
        if number:
            phone.write(STATUS, "4\n" if number >= critical else "3\n")

    target = make_target(phone, emulated=False, progress=waited.append)
    for core in target.cores:
        phone.write(CAP.format(core.number), "3600000\n")
    runner = make_sleep_runner(tmp_path / "runner", 0, EACH)
    used = bench(target, runner, heat)
    found = measure_sustained(used, "toy", RunRequest(artifact, Arm.ON), tmp_path / "out")
    (check,) = check_sustained(measured(sustained=found), LIMITS, asked=True)
    assert check.verdict is verdict, check.message
    assert check.new == pytest.approx(loss, abs=0.001)
    seen = [each.cap_ghz for each in found.moments]
    assert [*dict.fromkeys(seen)] == [3.6, *(cap / 1e6 for cap in caps.values())]
    assert ("critical heat" in check.message) is (critical < 99)
    # Nothing was waited for; what is measured next waits again.
    assert waited == []
    assert target.pauses
