"""The history: written run by run, read whole; damage is named."""

from __future__ import annotations

import concurrent.futures
import json
import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

from pytest_sme2.errors import Sme2Error
from pytest_sme2.report.history import add_records, read_history, write_history
from pytest_sme2.results import Arm
from pytest_sme2.session.run_directory import read_record
from pytest_sme2.system.processes import project_commit
from tests.support.git import git
from tests.support.histories import run
from tests.support.records import toy_run


def test_a_run_is_written_and_read_again(tmp_path: Path) -> None:
    records = [read_record(path) for path in toy_run(tmp_path / "run")[:2]]
    folder, commit = tmp_path / "history", "0123456789ab"
    written = write_history(folder, records, commit)
    assert written == folder / f"{records[0].measured.session}.json"
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
    shutil.copy(written, folder / "copy.json")
    assert read_history(tmp_path / "history") == found


def test_writers_do_not_meet(tmp_path: Path) -> None:
    def add(number: int) -> None:
        add_records(tmp_path, [run(number, 1e6, case=f"case{n}") for n in range(20)])

    with concurrent.futures.ThreadPoolExecutor(8) as pool:
        list(pool.map(add, range(16)))
    assert len(read_history(tmp_path)) == 16 * 20


@pytest.mark.parametrize(
    "damage",
    [
        {"figures": {"other": [1, None, None]}},
        {"figures": {"speedup": [1e300, None, None]}},
        {"figures": {"speedup": ["1", None, None]}},
        {"figures": {"speedup": [float("nan"), None, None]}},
        {"figures": {"speedup": [True, None, None]}},
        {"figures": {"speedup": [1]}},
        {"device": None},
        {"threads": "1"},
        {"versions": []},
    ],
)
def test_a_damaged_record_is_named(tmp_path: Path, damage: dict[str, object]) -> None:
    path = add_records(tmp_path, [run(0, 1)])
    document = json.loads(path.read_text())
    document["records"][0] |= damage
    path.write_text(json.dumps(document))
    with pytest.raises(Sme2Error, match=r"s0\.json"):
        read_history(tmp_path)


@pytest.mark.parametrize(
    ("name", "text"),
    [("s0.json", ""), ("s0.json", '{"schema": 4, "rec'), ("s0.json", "[]"),
     ("s0.json", '{"schema": 3, "records": []}'), ("s0.json", '{"schema": 4}'),
     ("history.sqlite", "SQLite format 3")],
)  # fmt: skip
def test_a_file_that_is_no_history_is_named(tmp_path: Path, name: str, text: str) -> None:
    (tmp_path / name).write_text(text)
    with pytest.raises(Sme2Error, match=name):
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
