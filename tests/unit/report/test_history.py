"""The history: written run by run, read whole; damage is named."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from pytest_sme2.cli.main import main
from pytest_sme2.errors import Sme2Error, UsageError
from pytest_sme2.report import history
from pytest_sme2.report.history import project_commit, read_history, write_history
from pytest_sme2.results import Arm
from pytest_sme2.session.run_directory import read_record
from pytest_sme2.system.files import encode
from tests.support.histories import run
from tests.support.records import toy_run


def test_a_run_is_written_and_read_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(history, "project_commit", lambda: "0123456789ab")
    records = [read_record(path) for path in toy_run(tmp_path / "run")[:2]]
    path = write_history(tmp_path / "history", records)
    assert len(path.read_text().splitlines()) == 2
    found = read_history(tmp_path / "history")
    assert {record.case for record in found} == {record.id for record in records}
    (first,) = [record for record in found if record.case == records[0].id]
    measured = records[0].measured
    assert first.commit == "0123456789ab"
    assert first.pte_sha256 == measured.pte_sha256
    assert first.device == measured.fingerprint.key
    assert first.threads == measured.threads
    assert first.runner == measured.runner
    low, high = first.latency_interval_ms[Arm.ON]
    assert low <= first.latency_ms[Arm.ON] <= high
    assert first.speedup_interval == (
        round(measured.speedup.low, 4),
        round(measured.speedup.high, 4),
    )
    structure = measured.structures[Arm.ON]
    assert (first.sme2_operators, first.matrix_operators) == (structure.sme2, structure.matrix)
    # The same run again replaces its own file, so nothing is counted twice.
    write_history(tmp_path / "history", records)
    assert len(read_history(tmp_path / "history")) == 2


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("{", "not valid JSON"),
        ("[]", "is damaged"),
        ('{"schema": 2}', "has schema 2"),
        ('{"schema": 1, "case": "a"}', "is damaged"),
        ('{"schema": 1, "pte_bytes": 1e400}', "a number that no figure has"),
        ('{"schema": 1, "peak_bytes": {"on": 1' + 30 * "0" + "}}", "a number that no figure has"),
    ],
)
def test_damage_is_named_with_its_line(tmp_path: Path, line: str, message: str) -> None:
    path = tmp_path / "a.jsonl"
    path.write_text(f"{json.dumps(encode(run(0, 1)))}\n{line}\n")
    with pytest.raises(Sme2Error, match=message) as caught:
        read_history(tmp_path)
    assert f"{path}:2" in str(caught.value)


def test_the_command(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    lines = [json.dumps(encode(run(number, 1e6 * 1.01**number))) for number in range(2)]
    (tmp_path / "a.jsonl").write_text("\n".join(lines) + "\n")
    assert main(["history", str(tmp_path), "--case", "toy*"]) == 0
    assert "+1.00%  c0000..c0001" in capsys.readouterr().out
    page = tmp_path / "history.html"
    assert main(["history", str(tmp_path), "--html", str(page)]) == 0
    assert "toy-fp32 on emulated" in page.read_text("utf-8")
    capsys.readouterr()
    assert main(["history", str(tmp_path), "--html", "history.pdf"]) == 2
    assert "ends in .html" in capsys.readouterr().err
    assert main(["history", str(tmp_path), "--json"]) == 0
    assert len(capsys.readouterr().out.splitlines()) == 2
    assert main(["history", str(tmp_path), "--case", "other"]) == 2
    assert main(["history", str(tmp_path / "none")]) == 2
    assert "--sme2-history" in capsys.readouterr().err


def test_a_folder_that_is_not_there_is_a_usage_error(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="There is no folder"):
        read_history(tmp_path / "none")


@pytest.fixture(autouse=True)
def elsewhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    for name in ("GITHUB_SHA", "CI_COMMIT_SHA"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("GIT_CEILING_DIRECTORIES", str(tmp_path.parent))
    monkeypatch.chdir(tmp_path)
    project_commit.cache_clear()
    yield tmp_path
    project_commit.cache_clear()


def git(*words: str) -> str:
    made = ("-c", "user.name=a", "-c", "user.email=a@b", "-c", "init.defaultBranch=main")
    return subprocess.run(
        ["git", *made, *words], capture_output=True, text=True, check=True
    ).stdout.strip()


def test_it_is_that_of_the_folder_and_marked_where_files_changed(elsewhere: Path) -> None:
    git("init", "-q")
    (elsewhere / "file").write_text("a")
    git("add", "file")
    git("commit", "-qm", "First")
    commit = git("rev-parse", "HEAD")
    assert project_commit() == commit[:12]
    (elsewhere / "file").write_text("b")
    project_commit.cache_clear()
    assert project_commit() == f"{commit[:12]}+"


@pytest.mark.parametrize("name", ["GITHUB_SHA", "CI_COMMIT_SHA"])
def test_a_ci_says_which_it_is(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(name, "0123456789abcdef" * 2 + "01234567")
    assert project_commit() == "0123456789ab"


def test_without_a_repository_there_is_none(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GITHUB_SHA", "<script>")
    assert project_commit() is None
    monkeypatch.setenv("PATH", "")
    project_commit.cache_clear()
    assert project_commit() is None
