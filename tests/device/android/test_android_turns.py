"""Two processes that take turns on a phone, given by a program there, over a real adbd."""

from __future__ import annotations

import re
import shlex
import shutil
from pathlib import Path

import pytest

from pytest_sme2.errors import RunError, TargetError
from pytest_sme2.fake_phone.lab import FakeLab, FakePhone
from pytest_sme2.results.run import PAIR, Arm, Artifact, RunRequest, Turn
from pytest_sme2.runners.sme2 import Sme2Runner
from pytest_sme2.runners.stock import PairRunner, pair_runner
from pytest_sme2.targets.base import Job, TakesTurns
from pytest_sme2.targets.phone.adb import AdbDevice
from pytest_sme2.targets.phone.target import AndroidTarget
from pytest_sme2.timing.pairs import measure_pairs
from pytest_sme2.timing.processes import SamplingPlan, starter_on
from pytest_sme2.trace.etdump import read_etdump
from tests.device import provision
from tests.support.phones import MakeTarget, leftovers, make_artifact


@pytest.fixture
def phone(sme2_lab: FakeLab) -> FakePhone:
    return sme2_lab.add()


def jobs(runner: Sme2Runner, toy: Artifact, folder: Path, **choices: object) -> list[Job]:
    facts = {"warmup": 0, "runs": 5, "turn": Turn(2, lead=1), **choices}
    return [
        Job(runner, RunRequest(toy, arm, **facts), folder / str(arm))  # type: ignore[arg-type]
        for arm in PAIR
    ]


def test_both_have_all_runs_and_their_own_files(
    phone: FakePhone, target: AndroidTarget, bundle: Sme2Runner, toy: Artifact, tmp_path: Path
) -> None:
    assert isinstance(target, TakesTurns)
    assert bundle.takes_turns
    runs = dict(zip(PAIR, target.run_in_turns(jobs(bundle, toy, tmp_path)), strict=True))
    for arm, run in runs.items():
        assert len(run.wall_ns) == 5
        assert run.sme2_effective is (arm is Arm.ON)
        log = (tmp_path / str(arm) / "runner.log").read_text()
        assert "--turn-descriptor" in log
        assert log.endswith("[exit 0]\n")
    target.restore()
    assert leftovers(phone) == []


def test_it_is_one_round_trip(
    target: AndroidTarget, bundle: Sme2Runner, toy: Artifact, tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:  # fmt: skip
    pair = jobs(bundle, toy, tmp_path, runs=2)
    target.run_in_turns(pair)
    scripts: list[str] = []
    shell = AdbDevice.shell

    def listen(self: AdbDevice, command: str, **options: float) -> object:
        scripts.append(command)
        return shell(self, command, **options)

    monkeypatch.setattr(AdbDevice, "shell", listen)
    target.run_in_turns(pair)
    assert len(scripts) == 1
    # All of the fastest kind are allowed; the two share one of them.
    (mask,) = re.findall(r"taskset ([0-9a-f]+) ", scripts[0])
    assert int(mask, 16).bit_count() == 1
    # Named pipes are denied to Android's shell.
    assert "mkfifo" not in scripts[0]


def test_outputs_are_those_of_a_run_alone(
    target: AndroidTarget, bundle: Sme2Runner, toy: Artifact, tmp_path: Path
) -> None:
    together = target.run_in_turns(jobs(bundle, toy, tmp_path, keep_outputs=True, runs=2))
    alone = target.run(bundle, RunRequest(toy, Arm.ON, warmup=0, runs=1), tmp_path / "alone")
    files = [output.file for run in together for output in run.outputs]
    assert files
    assert all(file is not None and file.stat().st_size > 0 for file in files)
    on = dict(zip(PAIR, together, strict=True))[Arm.ON]
    assert [output.sha256 for output in on.outputs] == [output.sha256 for output in alone.outputs]


def test_the_one_that_fails_is_named_and_the_other_is_ended(
    phone: FakePhone, target: AndroidTarget, bundle: Sme2Runner, toy: Artifact, tmp_path: Path
) -> None:
    broken = tmp_path / "broken.pte"
    broken.write_bytes(b"not a program at all, but long enough to be read as one")
    good, _ = jobs(bundle, toy, tmp_path)
    bad = Job(
        bundle,
        RunRequest(make_artifact(broken), Arm.OFF, warmup=0, runs=5, turn=Turn(2, lead=1)),
        tmp_path / "bad",
    )
    with pytest.raises(RunError, match=r"with SME2 off: .*not.*Its log is .*bad.runner\.log"):
        target.run_in_turns([good, bad])
    assert leftovers(phone, prepared=True) == []


def test_a_time_limit_ends_both(
    phone: FakePhone, target: AndroidTarget, bundle: Sme2Runner, toy: Artifact, tmp_path: Path
) -> None:
    target.run_in_turns(jobs(bundle, toy, tmp_path, runs=2))  # so that nothing is pushed below
    long = jobs(bundle, toy, tmp_path, runs=1_000_000, timeout_seconds=5.0)
    with pytest.raises(RunError, match="did not finish within 5 s"):
        target.run_in_turns(long)
    for job in long:
        assert (job.folder / "runner.log").read_text().endswith("[time limit]\n")
    assert leftovers(phone, prepared=True) == []


def test_a_measurement_in_turns(
    phone: FakePhone, make_target: MakeTarget, bundle: Sme2Runner, toy: Artifact, tmp_path: Path
) -> None:
    # Only a real phone's times are latency, so this one claims to be one.
    target = make_target(phone, emulated=False)
    jobs = {str(arm): Job(bundle, RunRequest(toy, arm), tmp_path / arm) for arm in PAIR}
    starter = starter_on(target, jobs)
    assert starter.in_turns is not None
    plan = SamplingPlan(runs=4, warmup=0, looks=(2,), split=(1.0,), redo_limit=0)
    result = measure_pairs(starter, "off", "on", plan)
    assert len(result.pairs) == 2
    # The first is the pilot, alone.
    assert all(len(runs) == 3 for runs in starter.runs.values())
    assert all(run.request.turn for runs in starter.runs.values() for run in runs[1:])


def test_what_the_giver_refuses(target: AndroidTarget, bundle: Sme2Runner) -> None:
    home = target.storage.put({path.name: path for path in bundle.files(Arm.ON)})
    program = bundle.turn_giver(1, [])[:-2]
    for arguments, words in {
        "--give-turns": "no value follows",
        "--give-turns 0 log -- true": "from 1 to 1000000, not '0'",
        "--give-turns 2 -- true": "a log for each command",
        "--give-turns 2 log --": "a log for each command",
        "--give-turns 2 one two -- true": "a log for each command",
    }.items():
        command = [*target._launcher(), *program, *shlex.split(arguments)]
        done = target.device.shell(f"cd {home} && {shlex.join(command)}")
        assert (done.code, words in done.error_text) == (2, True), done.error_text


def test_a_command_that_is_not_there_is_told(
    target: AndroidTarget, bundle: Sme2Runner, toy: Artifact, tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:  # fmt: skip
    monkeypatch.setattr(Sme2Runner, "turn_giver", lambda *_: ("./no-such-program",))
    with pytest.raises(TargetError, match=r"could not run its processes: .*exit code 1 \("):
        target.run_in_turns(jobs(bundle, toy, tmp_path))


@pytest.fixture(scope="module")
def pair(tmp_path_factory: pytest.TempPathFactory) -> PairRunner:
    provision.runner()
    folder = tmp_path_factory.mktemp("stock")
    binaries = provision.build_stock_pair(provision.stock_request(folder))
    cache = tmp_path_factory.mktemp("cache")
    made = pair_runner(binaries[Arm.ON], binaries[Arm.OFF], cache=cache)
    # A phone has no glibc: the pair brings its loader, as the bundle does.
    shutil.copy2(provision.runner().folder / "ld-linux-aarch64.so.1", made.folder)
    return made


def test_a_stock_pair_shows_sme2_on_and_off(
    sme2_lab: FakeLab, make_target: MakeTarget, pair: PairRunner, toy: Artifact, tmp_path: Path
) -> None:
    phone = sme2_lab.add()
    target = make_target(phone)
    names = {}
    for arm in PAIR:
        run = target.run(pair, RunRequest(toy, arm, warmup=1, runs=2), tmp_path / str(arm))
        assert run.runner == "pair"
        assert len(run.wall_ns) == 2
        assert len(run.warmup_wall_ns) == 1
        names[arm] = set(read_etdump(run.etdump).names)
    assert any("PF32" in name for name in names[Arm.ON])
    assert not any("PF32" in name for name in names[Arm.OFF])
    assert leftovers(phone, prepared=True) == []
