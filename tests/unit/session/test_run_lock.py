from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from pytest_sme2.errors import StorageError, UsageError
from pytest_sme2.session.run_lock import LOCK, RunLock


def test_another_run_is_refused_and_named(tmp_path: Path) -> None:
    first = RunLock(tmp_path / "out", "run-1")
    with pytest.raises(UsageError, match=r"out is in use by another run \(run-1\).*--sme2-out"):
        RunLock(tmp_path / "out", "run-2")
    # Having asked has changed nothing.
    with pytest.raises(UsageError, match="run-1"):
        RunLock(tmp_path / "out", "run-2")
    first.leave()
    RunLock(tmp_path / "out", "run-2").leave()


def test_the_processes_of_one_run_hold_it_together(tmp_path: Path) -> None:
    first, second = RunLock(tmp_path, "run-1"), RunLock(tmp_path, "run-1")
    first.leave()
    first.leave()
    with pytest.raises(UsageError, match="run-1"):
        RunLock(tmp_path, "run-2")
    second.leave()
    RunLock(tmp_path, "run-2").leave()


def test_a_file_with_another_name_is_not_written(tmp_path: Path) -> None:
    other = tmp_path / "precious"
    other.write_text("keep me")
    (tmp_path / "out").mkdir()
    (tmp_path / "out" / LOCK).hardlink_to(other)
    with pytest.raises(UsageError, match=r"run\.lock has another name .* Remove it"):
        RunLock(tmp_path / "out", "run-1")
    assert other.read_text() == "keep me"


def test_it_ends_with_its_process(tmp_path: Path) -> None:
    script = (
        "import os, signal, sys; from pathlib import Path; "
        "from pytest_sme2.session.run_lock import RunLock; "
        "kept = RunLock(Path(sys.argv[1]), 'killed'); os.kill(os.getpid(), signal.SIGKILL)"
    )
    subprocess.run([sys.executable, "-c", script, str(tmp_path)], check=False)
    assert (tmp_path / LOCK).read_text() == "killed"
    RunLock(tmp_path, "next").leave()


def test_it_ends_with_its_owner(tmp_path: Path) -> None:
    kept = RunLock(tmp_path, "run-1")
    assert (tmp_path / LOCK).is_file()
    del kept
    RunLock(tmp_path, "run-2").leave()


def test_a_folder_that_cannot_be_made_is_named(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(StorageError, match=r"file.*cannot be written.*--sme2-out"):
        RunLock(tmp_path / "file" / "out", "run-1")


def test_git_ignores_a_new_run_directory_and_leaves_others_alone(tmp_path: Path) -> None:
    RunLock(tmp_path / "out", "me").leave()
    assert (tmp_path / "out" / ".gitignore").read_text().endswith("\n*\n")
    used = tmp_path / "used"
    used.mkdir()
    (used / "mine.txt").touch()
    RunLock(used, "me").leave()
    assert not (used / ".gitignore").exists()
