"""Two real runners that take turns on this machine, and what is said when one of them fails."""

from __future__ import annotations

import os
import subprocess
import time
from pathlib import Path

import pytest

from pytest_sme2.errors import RunError
from pytest_sme2.results import Arm, RunRequest, Turn
from pytest_sme2.runners.sme2 import RUNNER_SOURCES, Sme2Runner
from pytest_sme2.system.platforms import host_platform
from pytest_sme2.system.provision import find_compiler
from pytest_sme2.targets.base import Job, command_here, make_place
from pytest_sme2.targets.local import LocalTarget
from pytest_sme2.timing.pairs import measure_pairs
from pytest_sme2.timing.processes import SamplingPlan, starter_on
from pytest_sme2.timing.selfcheck import selfcheck_artifact
from tests.device.conftest import artifact

PARTS = ("turns", "machine", "failure")


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


def test_missing_runner_is_an_error(local_runner: Sme2Runner, tmp_path: Path) -> None:
    empty = Sme2Runner("wheel", local_runner.platform, "1.5.1", tmp_path)
    with pytest.raises(RunError, match="could not be started"):
        LocalTarget().run_in_turns([job(empty, tmp_path / name) for name in "ab"])


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


SPINNING = """
#include <atomic>
#include <cstdio>
#include <ctime>
#include <thread>
#include "turns.h"

int main() {
  std::atomic<bool> begun{false}, done{false};
  std::thread busy([&] {
    begun = true;
    timespec now{};
    do {
      clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
    } while (now.tv_sec == 0 && now.tv_nsec < 100000000);
    done = true;
  });
  while (!begun) {
  }
  sme2::wait_until_still();
  std::puts(done ? "still" : "works");
  busy.join();
}
"""


@pytest.mark.skipif(not Path("/proc/self/task").is_dir(), reason="states of threads are Linux's")
def test_a_pool_that_still_looks_for_work_is_waited_for(tmp_path: Path) -> None:
    """The wheel's pool may rest at once, so here is a thread that works for 0.1 s of CPU time."""
    program = tmp_path / "spinning"
    sources = [tmp_path / "main.cpp", *(RUNNER_SOURCES / f"{name}.cpp" for name in PARTS)]
    sources[0].write_text(SPINNING, "utf-8")
    compiler = find_compiler(host_platform()).cxx
    words: list[str | Path] = [
        compiler,
        "-std=c++17",
        "-pthread",
        "-I",
        RUNNER_SOURCES,
        *sources,
        "-o",
        program,
    ]
    subprocess.run(words, check=True, timeout=600)
    assert subprocess.run([program], check=True, capture_output=True).stdout == b"still\n"


def cpu_ns(pid: int) -> int:
    """What all threads of a process have worked."""
    texts = [path.read_text("utf-8") for path in Path(f"/proc/{pid}/task").glob("*/schedstat")]
    return sum(int(text.split()[0]) for text in texts)
