"""What a case is run with; how many processes of which arm are timed, and which of them count."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path

import pytest

from pytest_sme2.results.run import PAIR, Arm, Run
from pytest_sme2.session.case_result import Timing, measure_case
from pytest_sme2.session.cases import program_case
from pytest_sme2.session.device import HeldDevice, header_lines
from pytest_sme2.session.settings import Settings
from pytest_sme2.targets.base import Job
from pytest_sme2.timing.processes import selfcheck_artifact
from tests.support.pretended_mac import PretendedMac
from tests.support.pretended_target import BASE_NS, PretendedRunner, PretendedTarget, use
from tests.unit.session.test_session import PROGRAM


@pytest.fixture
def measure(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., Timing]:
    def measure(target: PretendedTarget, arms: Sequence[Arm] = PAIR, **choices: float) -> Timing:
        use(target, monkeypatch)
        bench = HeldDevice(Settings(device="linux", **choices), lambda line: None)  # type: ignore[arg-type]
        artifact = program_case(PROGRAM).program
        assert artifact is not None
        requests = {arm: bench.request(artifact, arm, 1) for arm in arms}
        return measure_case(bench, "toy", tmp_path, requests)

    return measure


def folders(target: PretendedTarget, arm: Arm) -> list[Path]:
    return [
        folder
        for request, folder in target.requests
        if request.arm is arm and not request.traced and folder.name != "yardstick"
    ]


def test_both_arms_are_measured_in_pairs_off_against_on(
    measure: Callable[..., Timing], tmp_path: Path
) -> None:
    target = PretendedTarget()
    timing = measure(target)
    found = timing.measurement
    assert (found.reference, found.candidate) == ("off", "on")
    assert found.ratio == pytest.approx(0.5, rel=0.02)
    for arm in PAIR:
        # The first process only warms up.
        used = folders(target, arm)
        assert len(timing.processes[arm]) == len(used) - 1 == len(found.pairs)
        assert len(used) == len(set(used))
        assert {folder.parent for folder in used} == {tmp_path / f"timing_sme2_{arm}"}


class TurningTarget(PretendedTarget):
    def run_in_turns(self, jobs: Sequence[Job]) -> list[Run]:
        return [self.run(job.runner, job.request, job.folder) for job in jobs]


def test_the_first_case_of_a_run_is_measured_in_long_blocks_too(
    measure: Callable[..., Timing], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(PretendedRunner, "takes_turns", True)
    target = TurningTarget()
    first = measure(target)
    assert first.measurement is not None
    assert len(first.measurement.blocks) == 4
    assert first.measurement.carried_over is None
    # They are not processes of the case: neither its medians nor its load times have them.
    for arm in PAIR:
        assert len(first.processes[arm]) == len(first.measurement.pairs)
        assert len(folders(target, arm)) == 1 + len(first.measurement.pairs) + 4


def test_the_yardstick_takes_turns_with_the_arms(
    measure: Callable[..., Timing], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Alone, after a pause, it would tell how fast a clock rises."""
    monkeypatch.setattr(PretendedRunner, "takes_turns", True)
    started: list[list[str]] = []

    class Watched(TurningTarget):
        def run_in_turns(self, jobs: Sequence[Job]) -> list[Run]:
            started.append([job.folder.parent.name for job in jobs])
            return super().run_in_turns(jobs)

    target = Watched(slower={selfcheck_artifact().sha256: 3.0})
    timing = measure(target)
    assert timing.yardstick_ns == pytest.approx(3 * BASE_NS, rel=0.02)
    joined = [names for names in started if len(names) == 3]
    assert len(joined) >= 3
    assert all(name.startswith("timing_") for names in joined for name in names[:2])
    assert all(request.turn for request, folder in target.requests if folder.name == "yardstick")


def test_one_arm_alone_gives_single_processes(measure: Callable[..., Timing]) -> None:
    timing = measure(PretendedTarget(), (Arm.OFF,))
    assert timing.measurement is None
    assert {arm: len(runs) for arm, runs in timing.processes.items()} == {Arm.OFF: 10}
    # At the hard limit there are fewer.
    slow = PretendedTarget(slower={program_case(PROGRAM).program.sha256: 10_000.0})
    timing = measure(slow, (Arm.OFF,), budget_seconds=1.0, limit_seconds=60.0)
    assert 1 <= len(timing.processes[Arm.OFF]) < 10


def test_a_macs_power_and_heat_are_shown_and_warned_about(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    PretendedMac(tmp_path, monkeypatch).power("Battery Power")
    bench = HeldDevice(Settings(device="mac"), lambda _: None)
    first, second, third = header_lines(bench)
    assert first.startswith("sme2: device mac (SME2, timing)")
    assert second == (
        "sme2: Apple M4, macOS 26.1, power battery, power mode normal, thermal pressure nominal"
    )
    assert third == "sme2: warning: it runs on battery: plug it in"
