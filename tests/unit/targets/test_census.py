"""What is made of the emulator's log, with a stand-in for the emulator that writes one."""

from __future__ import annotations

import dataclasses
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from pytest_sme2.errors import RunError, StorageError
from pytest_sme2.results.run import Arm, Artifact, RunRequest
from pytest_sme2.runners.sme2 import Sme2Runner
from pytest_sme2.system.qemu import Qemu
from pytest_sme2.targets.emulated import EmulatedTarget, observed_run, raise_failure
from tests.support.counters import compiled_counter

WHOLE = "IN: kai_run_x_sme2_mopa\n0x0000000000001000:  d503201f  nop\n\n81 exit_group(0)\n"
CUT = "IN: kai_run_x_sme2_mopa\n0x0000000000001000:  d503201f  nop\n"

PROGRAM = """#!{python}
import json, sys
from pathlib import Path

words = sys.argv[1:]
log, result = (words[words.index(name) + 1] for name in ("-D", "--json"))
assert not Path(log).exists()
Path(log).write_text({log!r})
Path(result).write_text(json.dumps({{
    "schema": 1, "sme2": {{"requested": "on", "effective": True}}, "cpu_features": [],
    "load_ns": 1, "warmup_wall_ns": [], "wall_ns": [1], "cpu_ns": [1],
    "peak_rss_load_bytes": None, "peak_rss_bytes": None, "outputs": [],
}}))
"""


def target(folder: Path, log: str) -> EmulatedTarget:
    program = folder / "qemu-aarch64"
    program.write_text(PROGRAM.format(python=sys.executable, log=log))
    program.chmod(0o755)
    return EmulatedTarget(Qemu(program, "11.1"))


@pytest.fixture
def runner(tmp_path: Path) -> Sme2Runner:
    folder = tmp_path / "runner"
    folder.mkdir()
    return Sme2Runner("wheel", "linux-aarch64", "1.5.1", folder)


@pytest.fixture
def request_on(tmp_path: Path) -> RunRequest:
    pte = tmp_path / "toy.pte"
    artifact = Artifact("toy", "fp32", tmp_path, pte, "", (), ())
    return RunRequest(artifact, Arm.ON, warmup=0, runs=1)


def test_the_log_is_read_and_removed(
    tmp_path: Path, runner: Sme2Runner, request_on: RunRequest
) -> None:
    folder = tmp_path / "out"
    folder.mkdir()
    # What a killed run left must not pass for this one's.
    (folder / "qemu.log").write_text("IN: kai_run_old_sme2\n0x0: \n")
    census = observed_run(target(tmp_path, WHOLE), runner, request_on, folder).census
    assert [kernel.name for kernel in census.kernels] == ["kai_run_x_sme2_mopa"]
    assert not (folder / "qemu.log").exists()


def test_a_log_that_was_cut_short_says_nothing_about_kernels(
    tmp_path: Path, runner: Sme2Runner, request_on: RunRequest
) -> None:
    with pytest.raises(StorageError, match=r"qemu\.log.*cut short.*Free space in .*out"):
        observed_run(target(tmp_path, CUT), runner, request_on, tmp_path / "out")
    assert not (tmp_path / "out" / "qemu.log").exists()
    # More runs behind the call than usual do not make it refuse.
    longer = dataclasses.replace(request_on, seed=1)
    late = WHOLE + "82 futex(0x1) = 0\n" * 100
    observed_run(target(tmp_path, late), runner, longer, tmp_path / "out")


pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="QEMU's user mode is Linux's")

PAUSE = """'1 faccessat(-1,"sme2:pause",F_OK,0) = -1\\n'"""
INFERENCE = """'1 faccessat(-1,"sme2:inference",F_OK,0) = -1\\n'"""


def run(
    folder: Path, script: str, added: str = "0"
) -> tuple[subprocess.CompletedProcess[str], str]:
    """What became of it, and what it counted; the script stands in for the emulator."""
    shell = ["/bin/sh", "-c", script]
    finished = subprocess.run(
        [compiled_counter(), folder / "counts", folder / "rest", "0xa1442", added, *shell],
        capture_output=True,
        text=True,
        check=False,
        timeout=600,
    )
    return finished, (folder / "counts").read_text()


def test_it_ends_as_the_emulator_does(tmp_path: Path) -> None:
    finished, _ = run(tmp_path, "echo said; echo line >&3; exit 7")
    assert (finished.returncode, finished.stdout) == (7, "said\n")
    assert (tmp_path / "rest").read_text() == "line\n"
    assert run(tmp_path, "kill -SEGV $$")[0].returncode == -signal.SIGSEGV


def test_a_line_that_is_too_long_is_read_to_its_end(tmp_path: Path) -> None:
    run(tmp_path, "head -c 8388608 /dev/zero | tr '\\0' x >&3; printf '\\nthe next line\\n' >&3")
    assert (tmp_path / "rest").read_bytes().endswith(b"the next line\n")


def test_a_program_that_pauses_goes_on(tmp_path: Path) -> None:
    finished, counts = run(tmp_path, f"printf {PAUSE} >&3; kill -STOP $$; exit 3")
    assert (finished.returncode, counts) == (3, "")


def test_an_emulator_without_the_level_of_the_log_is_told(tmp_path: Path) -> None:
    finished, counts = run(tmp_path, f"printf {PAUSE} >&3; kill -STOP $$", added="0x2020")
    assert finished.returncode == 0
    assert counts == "x the log could not be switched on\n"


def test_a_program_that_does_not_pause_is_told(tmp_path: Path) -> None:
    _, counts = run(tmp_path, f"printf {INFERENCE} >&3", added="0x2020")
    assert "x the runner did not pause before the inference\n" in counts


def test_a_place_that_takes_no_counts_is_the_reason(tmp_path: Path) -> None:
    finished = subprocess.run(
        [
            *(compiled_counter(), "/dev/full", tmp_path / "rest", "0", "0"),
            *("/bin/sh", "-c", f"printf {INFERENCE} >&3"),
        ],
        capture_output=True,
        check=False,
    )
    log = tmp_path / "runner.log"
    log.write_bytes(finished.stderr)
    failure = RunError(f"it ended with exit code {finished.returncode}; its last message: ...")
    with pytest.raises(StorageError, match="No space left on device"):
        raise_failure(failure, log, tmp_path / "counts")


def test_other_failures_are_told_as_they_are(tmp_path: Path) -> None:
    log = tmp_path / "runner.log"
    log.write_text("block_counter: out of memory\n")
    with pytest.raises(RunError, match="counts instructions failed: out of memory"):
        raise_failure(RunError("exit code 121"), log, tmp_path / "counts")
    log.write_text("something else\n")
    with pytest.raises(RunError, match="ended by signal 11"):
        raise_failure(RunError("ended by signal 11"), log, tmp_path / "counts")
