"""The commit of the project that was measured."""

from __future__ import annotations

import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from pytest_sme2.report.history import project_commit


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
