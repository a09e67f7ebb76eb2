"""The counter as the parent of an emulator: it ends as that does, and its own failures are told."""

from __future__ import annotations

import signal
import subprocess
import sys
from pathlib import Path

import pytest

from pytest_sme2.errors import RunError, StorageError
from pytest_sme2.targets.census import raise_failure
from tests.support.counters import compiled_counter

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
