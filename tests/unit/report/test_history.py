"""The history: written run by run, read whole; damage is named."""

from __future__ import annotations

import concurrent.futures
import contextlib
import shutil
import sqlite3
from collections.abc import Iterator
from pathlib import Path

import pytest

from pytest_sme2.errors import Sme2Error
from pytest_sme2.report.history import (
    FILE,
    add_records,
    read_history,
    write_history,
)
from pytest_sme2.results import Arm
from pytest_sme2.session.run_directory import read_record
from pytest_sme2.system.processes import project_commit
from tests.support.git import git
from tests.support.histories import run
from tests.support.records import toy_run


def test_a_run_is_written_and_read_again(tmp_path: Path) -> None:
    records = [read_record(path) for path in toy_run(tmp_path / "run")[:2]]
    folder, commit = tmp_path / "history", "0123456789ab"
    assert write_history(folder, records, commit) == folder / FILE
    found = read_history(tmp_path / "history")
    assert {record.case for record in found} == {record.id for record in records}
    (first,) = [record for record in found if record.case == records[0].id]
    measured = records[0].measured
    assert first.commit == commit
    assert first.pte_sha256 == measured.pte_sha256
    assert first.device == measured.fingerprint.key
    assert first.threads == measured.threads
    assert first.runner == measured.runner
    value, low, high = first.figures["latency (on)"]
    assert low <= value <= high
    assert first.figures["speedup"][1:] == (
        round(measured.speedup.low, 4),
        round(measured.speedup.high, 4),
    )
    structure = measured.structures[Arm.ON]
    assert first.figures["operators on SME2"] == (structure.sme2, None, None)
    assert first.figures["matrix operators"] == (structure.matrix, None, None)
    # The same run again replaces itself, here and in a copy, so nothing is counted twice.
    write_history(folder, records, commit)
    shutil.copy(tmp_path / "history" / FILE, tmp_path / "history" / "copy.sqlite")
    assert read_history(tmp_path / "history") == found


def test_writers_wait_for_each_other(tmp_path: Path) -> None:
    def add(number: int) -> None:
        add_records(tmp_path / FILE, [run(number, 1e6, case=f"case{n}") for n in range(20)])

    with concurrent.futures.ThreadPoolExecutor(8) as pool:
        list(pool.map(add, range(16)))
    assert len(read_history(tmp_path)) == 16 * 20


@pytest.mark.parametrize(
    "damage",
    [
        "PRAGMA user_version = 2",
        "DROP TABLE records; CREATE VIEW records AS SELECT 1",
        "CREATE TRIGGER other AFTER UPDATE ON records BEGIN SELECT 1; END",
        """UPDATE records SET figures = '{"other": [1, null, null]}'""",
        """UPDATE records SET figures = '{"speedup": [1e300, null, null]}'""",
        """UPDATE records SET figures = '{"speedup": ["1", null, null]}'""",
        """UPDATE records SET figures = '{"speedup": [NaN, null, null]}'""",
        """UPDATE records SET figures = '{"speedup": [1]}'""",
        "UPDATE records SET device = x'00'",
        "UPDATE records SET threads = '1'",
        "UPDATE records SET versions = '[]'",
        "UPDATE records SET versions = '{'",
    ],
)
def test_a_damaged_database_is_named(tmp_path: Path, damage: str) -> None:
    path = tmp_path / FILE
    add_records(path, [run(0, 1)])
    with contextlib.closing(sqlite3.connect(path)) as database, database:
        database.executescript(damage)
    with pytest.raises(Sme2Error, match=r"history\.sqlite"):
        read_history(tmp_path)


@pytest.mark.parametrize("kept", [0, 100, 5000])
def test_half_a_database_is_named(tmp_path: Path, kept: int) -> None:
    path = tmp_path / FILE
    add_records(path, [run(number, 1) for number in range(300)])
    path.write_bytes(path.read_bytes()[:kept])
    with pytest.raises(Sme2Error, match=r"history\.sqlite"):
        read_history(tmp_path)


@pytest.fixture(autouse=True)
def elsewhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    for name in ("GITHUB_SHA", "CI_COMMIT_SHA"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("GIT_CEILING_DIRECTORIES", str(tmp_path.parent))
    monkeypatch.chdir(tmp_path)
    project_commit.cache_clear()
    yield tmp_path
    project_commit.cache_clear()


def test_a_commit_is_that_of_the_folder_or_what_a_ci_says(
    elsewhere: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (elsewhere / "file").write_text("a")
    for words in (("init", "-q"), ("add", "file"), ("commit", "-qm", "First")):
        git(elsewhere, *words)
    commit = git(elsewhere, "rev-parse", "HEAD")
    assert project_commit() == commit[:12]
    (elsewhere / "file").write_text("b")
    project_commit.cache_clear()
    assert project_commit() == f"{commit[:12]}+", "files were changed"
    for name in ("GITHUB_SHA", "CI_COMMIT_SHA"):
        with monkeypatch.context() as given:
            given.setenv(name, "0123456789abcdef" * 2 + "01234567")
            project_commit.cache_clear()
            assert project_commit() == "0123456789ab"


def test_without_a_repository_there_is_none(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GITHUB_SHA", "<script>")
    assert project_commit() is None
    monkeypatch.setenv("PATH", "")
    project_commit.cache_clear()
    assert project_commit() is None
