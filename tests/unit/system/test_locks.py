from __future__ import annotations

import errno
import fcntl
import os
import re
import subprocess
import sys
import threading
from pathlib import Path
from typing import Any

import filelock
import pytest
from packaging.version import Version

from pytest_sme2.errors import BusyError, StorageError
from pytest_sme2.system import locks
from pytest_sme2.system.locks import holder_of, locked, machine_lock, shared_lock


@pytest.fixture
def file(tmp_path: Path) -> Path:
    return tmp_path / "x.lock"


def take(file: Path, **options: Any) -> None:
    with locked(file, "working", **options):
        assert file.is_file()


def is_held(file: Path) -> bool:
    try:
        take(file, timeout_seconds=0)
    except BusyError:
        return True
    return False


def test_waiting_is_reported_once_and_ends_with_the_holder(file: Path) -> None:
    said: list[str] = []
    order: list[str] = []
    waits = threading.Event()

    def say(line: str) -> None:
        said.append(line)
        waits.set()

    def second() -> None:
        with locked(file, "exporting toy fp32", say=say):
            order.append("second")

    other = threading.Thread(target=second)
    with locked(file, "exporting toy fp32"):
        other.start()
        assert waits.wait(60)
        order.append("first")
    other.join(60)
    assert order == ["first", "second"]
    (line,) = said
    holder = r"\(process \d+ of \S+, since \d\d:\d\d:\d\d\)"
    assert re.fullmatch(f"another process is exporting toy fp32 {holder}; waiting for it", line)


@pytest.mark.parametrize("seconds", [0, 0.01])
def test_a_lock_that_stays_held_is_an_error_with_its_file(file: Path, seconds: float) -> None:
    said: list[str] = []
    words = r"^Another process is working \(.*x\.lock\.$"
    with locked(file, "measuring"), pytest.raises(BusyError, match=words) as caught:
        take(file, say=said.append, timeout_seconds=seconds)
    assert ("0.01 s" in str(caught.value)) == bool(seconds)
    assert len(said) == bool(seconds)


def test_a_link_in_place_of_the_file_is_not_followed(tmp_path: Path) -> None:
    target = tmp_path / "precious"
    target.write_text("keep me")
    (tmp_path / "x.lock").symlink_to(target)
    (tmp_path / "y.lock").mkdir()
    for name in ("x.lock", "y.lock"):
        with pytest.raises(StorageError, match=name):
            take(tmp_path / name)
    assert target.read_text() == "keep me"


def test_a_file_with_another_name_is_locked_and_not_written(tmp_path: Path, file: Path) -> None:
    other = tmp_path / "precious"
    other.write_text("keep me")
    file.hardlink_to(other)
    with locked(file, "working"):
        assert is_held(file)
    # The newest filelock for Python 3.10 empties each file that it locks; later ones do not.
    emptied = Version(filelock.__version__) < Version("4.1.1")
    assert other.read_text() == ("" if emptied else "keep me")


def test_it_ends_with_its_process(file: Path) -> None:
    script = (
        "import os, signal, sys; from pathlib import Path; "
        "from pytest_sme2.system.locks import locked; "
        "held = locked(Path(sys.argv[1]), 'x'); held.__enter__(); "
        "os.kill(os.getpid(), signal.SIGKILL)"
    )
    subprocess.run([sys.executable, "-c", script, str(file)], check=False)
    assert "process" in holder_of(file)
    assert not is_held(file)


@pytest.mark.parametrize(
    ("text", "told"),
    [
        *((text, "") for text in (b"", b"[" * 4000, b'{"pid": 1}', b"\xff")),
        (b'{"pid": "x", "user": 1, "since": "y"}', ""),
        (b'{"pid": 1, "user": "\\u001b[2Jann", "since": 0}', "(process 1 of [2Jann, since"),
    ],
)
def test_a_holders_note_is_printed_plain_or_not_at_all(file: Path, text: bytes, told: str) -> None:
    assert holder_of(file) == ""
    file.write_bytes(text)
    assert holder_of(file)[:28].strip() == told


def test_all_users_find_and_may_open_the_same_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    shared = tmp_path / "shared"
    shared.mkdir()
    shared.chmod(0o1777)
    monkeypatch.setattr(locks, "_MACHINE_FOLDERS", (tmp_path / "missing", tmp_path, shared))
    file = machine_lock("measuring")
    monkeypatch.setenv("SME2_CACHE_DIR", str(tmp_path / "another"))
    assert machine_lock("measuring") == file == shared / "pytest-sme2-measuring.lock"
    old = os.umask(0o077)
    try:
        with shared_lock(file, "measuring"):
            assert file.stat().st_mode & 0o777 == 0o666
            assert is_held(file)
    finally:
        os.umask(old)


def test_a_file_system_without_locks_is_named(file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(descriptor: int, operation: int) -> None:
        raise OSError(errno.ENOTSUP, "Operation not supported")

    monkeypatch.setattr(fcntl, "flock", refuse)
    with pytest.raises(StorageError, match=r"x\.lock cannot be locked: .*SME2_CACHE_DIR"):
        take(file)
