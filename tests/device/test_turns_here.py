"""Two real runners that take turns on this machine, and what is said when one of them fails."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path

import pytest

from pytest_sme2.errors import RunError
from pytest_sme2.results.run import Arm, RunRequest, Turn
from pytest_sme2.runners.base import Player, read_ends
from pytest_sme2.runners.sme2 import Sme2Runner
from pytest_sme2.system.processes import run_process
from pytest_sme2.targets.base import Job, command_here, make_place
from pytest_sme2.targets.local import LocalTarget
from pytest_sme2.timing.pairs import measure_pairs
from pytest_sme2.timing.processes import SamplingPlan, selfcheck_artifact, starter_on
from tests.device.conftest import artifact


def job(runner: Sme2Runner, folder: Path, **choices: object) -> Job:
    request = RunRequest(selfcheck_artifact(), Arm.OFF, warmup=1, runs=5, turn=Turn(2, lead=1))
    return Job(runner, RunRequest(**{**vars(request), **choices}), folder)


def test_each_process_has_all_runs_and_its_own_files(
    local_runner: Sme2Runner, tmp_path: Path
) -> None:
    jobs = [job(local_runner, tmp_path / name, keep_outputs=True) for name in "ab"]
    runs = LocalTarget().run_in_turns(jobs)
    assert [len(run.wall_ns) for run in runs] == [5, 5]
    assert runs[0].outputs[0].sha256 == runs[1].outputs[0].sha256
    assert {run.log for run in runs} == {tmp_path / name / "runner.log" for name in "ab"}
    text = (tmp_path / "a" / "runner.log").read_text()
    assert "--turn" in text
    assert text.endswith("[exit 0]\n")


def test_the_one_that_fails_is_named(local_runner: Sme2Runner, tmp_path: Path) -> None:
    broken = tmp_path / "broken.pte"
    broken.write_bytes(b"no program at all, but long enough to be read as one")
    jobs = [
        job(local_runner, tmp_path / "good"),
        job(local_runner, tmp_path / "bad", artifact=artifact(broken)),
    ]
    with pytest.raises(RunError, match=r"^toy \(fp32\) failed on .*bad.runner\.log"):
        LocalTarget().run_in_turns(jobs)


PARTICIPANT = """
import os, sys
name, turns = sys.argv[1], int(sys.argv[2])
def note(text):
    with open("journal", "a") as file:
        file.write(f"{name} {text}\\n")
note("warm")
for turn in range(turns):
    os.write(3, b".")
    if not os.read(0, 1):
        note("left alone")
        sys.exit(7)
    note(f"begins {turn}")
    note(f"ends {turn}")
"""
CRASH = "import os, sys\nos.write(3, b'.')\nos.read(0, 1)\nsys.exit('broken')\n"


def given(runner: Sme2Runner, folder: Path, *programs: Sequence[str]) -> tuple[dict[int, int], str]:
    """How those programs ended that took three turns in the folder, and what they noted."""
    players = [
        Player(str(folder / f"log{place}"), str(folder), [sys.executable, "-c", *words])
        for place, words in enumerate(programs)
    ]
    done = run_process(runner.turn_giver(3, players), timeout_seconds=600, folder=runner.folder)
    journal = folder / "journal"
    return read_ends(done.stdout.encode())[0], journal.read_text() if journal.exists() else ""


def test_one_runs_while_the_other_rests_and_the_first_alternates(
    local_runner: Sme2Runner, tmp_path: Path
) -> None:
    programs = [(PARTICIPANT, name, "3") for name in "ab"]
    assert given(local_runner, tmp_path, *programs) == (
        {0: 0, 1: 0},
        "a warm\nb warm\n"
        "a begins 0\na ends 0\nb begins 0\nb ends 0\n"
        "b begins 1\nb ends 1\na begins 1\na ends 1\n"
        "a begins 2\na ends 2\nb begins 2\nb ends 2\n",
    )


def test_the_one_that_ends_too_early_or_too_late_is_told(
    local_runner: Sme2Runner, tmp_path: Path
) -> None:
    good, endless = (PARTICIPANT, "a", "3"), (PARTICIPANT, "b", "9")
    assert given(local_runner, tmp_path, good, (CRASH,))[0] == {1: 1}
    assert "broken" in (tmp_path / "log1").read_text()
    assert given(local_runner, tmp_path, ("raise SystemExit(3)",), good)[0] == {0: 3}
    killed = ("import os; os.kill(os.getpid(), 11)",)
    assert given(local_runner, tmp_path, killed)[0] == {0: -11}
    ends, journal = given(local_runner, tmp_path, good, endless)
    assert (ends, journal.endswith("b left alone\n")) == ({1: 7}, True)


def test_a_time_limit_ends_both(local_runner: Sme2Runner, tmp_path: Path) -> None:
    choices = {"runs": 1_000_000, "timeout_seconds": 2.0}
    jobs = [job(local_runner, tmp_path / name, **choices) for name in "ab"]
    with pytest.raises(RunError, match="did not finish within 2 s"):
        LocalTarget().run_in_turns(jobs)
    for name in "ab":
        assert (tmp_path / name / "runner.log").read_text().endswith("[time limit]\n")


@pytest.mark.skipif(not hasattr(os, "sched_getaffinity"), reason="this system cannot pin")
def test_each_is_kept_on_its_own_cores(local_runner: Sme2Runner, tmp_path: Path) -> None:
    every = sorted(os.sched_getaffinity(0))
    ends = every[0], every[-1]
    jobs = [
        job(local_runner, tmp_path / f"{place}", cpus=(core,)) for place, core in enumerate(ends)
    ]
    ran = [{*run.ran_on} for run in LocalTarget().run_in_turns(jobs)]
    assert ran == [{core} for core in ends]
    jobs = [job(local_runner, tmp_path / name, cpus=(every[-1],)) for name in "ab"]
    together = {core for run in LocalTarget().run_in_turns(jobs) for core in run.ran_on}
    assert together == {every[-1]}


def test_a_giver_that_cannot_start_is_told(
    local_runner: Sme2Runner, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    jobs = [job(local_runner, tmp_path / name) for name in "ab"]
    monkeypatch.setattr(Sme2Runner, "turn_giver", lambda *_: ("./no-such-program",))
    with pytest.raises(RunError, match=r"could not be started: .*no-such-program"):
        LocalTarget().run_in_turns(jobs)
    monkeypatch.setattr(Sme2Runner, "turn_giver", lambda *_: ("./sme2_runner", "--give-turns", "0"))
    with pytest.raises(RunError, match="--give-turns takes a whole number"):
        LocalTarget().run_in_turns(jobs)


def test_unequal_turns_are_refused(local_runner: Sme2Runner, tmp_path: Path) -> None:
    jobs = [job(local_runner, tmp_path / "a"), job(local_runner, tmp_path / "b", turn=Turn(1))]
    with pytest.raises(ValueError, match="equal"):
        LocalTarget().run_in_turns(jobs)


def test_a_measurement_in_turns(local_runner: Sme2Runner, tmp_path: Path) -> None:
    """Only that it works: what it finds on a busy machine is for the benchmarks to say."""
    target = LocalTarget()
    jobs = {label: job(local_runner, tmp_path / label, turn=None) for label in "AB"}
    starter = starter_on(target, jobs)
    plan = SamplingPlan(runs=6, warmup=1, looks=(3,), split=(1.0,))
    result = measure_pairs(starter, "A", "B", plan)
    assert len(result.pairs) == 3
    assert result.turn is not None
    assert len(starter.runs["A"]) == len(starter.runs["B"]) >= 4
    assert starter_on(target, jobs, turns=False).in_turns is None


@pytest.mark.skipif(not Path("/proc/self/task").is_dir(), reason="CPU times of threads are Linux's")
def test_no_thread_of_a_process_that_waits_works(local_runner: Sme2Runner, tmp_path: Path) -> None:
    """Its pool looks for work after an inference; the other's turn must not pay for that."""
    one = job(local_runner, tmp_path, threads=2, runs=6)
    waiting, giving = os.pipe()
    resting, saying = os.pipe()
    make_place(one, "linux", emulated=False)
    command = command_here(one, saying)
    process = subprocess.Popen(command, stdin=waiting, pass_fds=(saying,), cwd=local_runner.folder)
    try:
        os.close(saying)
        for _ in range(3):
            assert os.read(resting, 1)
            before = cpu_ns(process.pid)
            time.sleep(0.05)
            # What is left is the way into the system call that waits.
            assert cpu_ns(process.pid) - before < 1e6
            os.write(giving, b".")
        assert process.wait(600) == 0
    finally:
        process.kill()
        process.wait()
        for descriptor in (waiting, giving, resting):
            os.close(descriptor)


def cpu_ns(pid: int) -> int:
    """What all threads of a process have worked."""
    texts = [path.read_text("utf-8") for path in Path(f"/proc/{pid}/task").glob("*/schedstat")]
    return sum(int(text.split()[0]) for text in texts)
