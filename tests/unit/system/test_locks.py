from __future__ import annotations

import threading
from pathlib import Path

import pytest

from pytest_sme2.errors import BusyError, StorageError
from pytest_sme2.system.locks import locked


def test_missing_folder_is_made_and_a_free_lock_is_not_mentioned(tmp_path: Path) -> None:
    said: list[str] = []
    file = tmp_path / "deep" / "folder" / "x.lock"
    with locked(file, "working", say=said.append):
        assert file.is_file()
    with locked(file, "working", say=said.append):
        pass
    assert said == []


def test_waiting_is_said_once_and_ends_with_the_holder(tmp_path: Path) -> None:
    said: list[str] = []
    order: list[str] = []
    file = tmp_path / "x.lock"
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
    assert said == ["another process is exporting toy fp32; waiting for it"]


@pytest.mark.parametrize("seconds", [0, 0.01])
def test_a_lock_that_stays_held_is_an_error_with_its_file(tmp_path: Path, seconds: float) -> None:
    said: list[str] = []
    file = tmp_path / "x.lock"
    with (
        locked(file, "measuring"),
        pytest.raises(BusyError, match=r"^Another process is measuring\..*x\.lock\.$") as caught,
        locked(file, "measuring", say=said.append, timeout_seconds=seconds),
    ):
        raise AssertionError("the lock was given twice")
    assert ("0.01 s" in str(caught.value)) == bool(seconds)
    assert len(said) == bool(seconds)


def test_a_place_that_cannot_be_written_is_named_with_the_remedy(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("not a folder")
    with (
        pytest.raises(StorageError, match="SME2_CACHE_DIR"),
        locked(tmp_path / "file" / "x.lock", "working"),
    ):
        raise AssertionError("there is no such folder")


def test_an_error_inside_is_passed_on_and_frees_the_lock(tmp_path: Path) -> None:
    file = tmp_path / "x.lock"
    with pytest.raises(FileNotFoundError), locked(file, "working"):
        raise FileNotFoundError
    with locked(file, "working", timeout_seconds=0):
        pass
