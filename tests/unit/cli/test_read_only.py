"""A run directory that cannot be written can be reported on; looking creates nothing."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from pytest_sme2.cli.main import main
from pytest_sme2.session.run_directory import SHARD_SCHEMA, Shard, write_shard
from pytest_sme2.system.processes import project_commit
from tests.support import Command, records
from tests.support.git import git


def test_a_report_that_goes_elsewhere_leaves_the_run_directory(
    tmp_path: Path, sme2: Command
) -> None:
    records.toy_run(tmp_path / "run")
    before = {path: path.stat().st_mtime_ns for path in (tmp_path / "run").rglob("*")}
    html, text = tmp_path / "r.html", tmp_path / "r.md"
    sme2("report", tmp_path / "run", "--html", html, "--markdown", text)
    assert html.is_file()
    assert text.is_file()
    assert {path: path.stat().st_mtime_ns for path in (tmp_path / "run").rglob("*")} == before


@pytest.fixture
def repository(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A run directory that is a git directory, too, whose configuration names programs to run."""
    folder = tmp_path / "run"
    records.toy_run(folder)
    write_shard(folder, Shard(SHARD_SCHEMA, 0, {}, ()))
    git(tmp_path, "init", "-q", "made")
    git(tmp_path / "made", "commit", "-q", "--allow-empty", "-m", "First")
    for part in ("HEAD", "objects", "refs"):
        (tmp_path / "made" / ".git" / part).rename(folder / part)
    program = f"touch {tmp_path / 'ran'}; false"
    (folder / "config").write_text(
        "[core]\nrepositoryformatversion = 0\nbare = false\nworktree = .\n"
        f'fsmonitor = "{program}"\n[filter "x"]\nclean = "{program}"\n'
    )
    (folder / ".gitattributes").write_text("* filter=x\n")
    for name in ("GITHUB_SHA", "CI_COMMIT_SHA"):
        monkeypatch.delenv(name, raising=False)
    project_commit.cache_clear()
    monkeypatch.chdir(folder)
    return folder


def test_reading_a_run_runs_no_program_that_it_names(
    repository: Path, tmp_path: Path, sme2: Command
) -> None:
    for path in repository.rglob("manifest.json"):
        path.write_text(json.dumps(json.loads(path.read_text()) | {"commit": "feedbeef"}))
    page = tmp_path / "report.html"
    sme2("report", ".")
    sme2("report", ".", "--html", page)
    history = ("--history", tmp_path / "history")
    sme2("merge", ".", "--out", tmp_path / "merged", *history)
    sme2("history", tmp_path / "history")
    sme2("history", tmp_path / "history", "--since", "HEAD", code=2)
    sme2("report", "--check", ".")
    assert not (tmp_path / "ran").exists()
    # git itself would have run it.
    git(repository, "status", "--porcelain")
    assert (tmp_path / "ran").exists()


@pytest.mark.slow
def test_doctor_creates_no_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SME2_CACHE_DIR", str(tmp_path / "cache"))
    main(["doctor", "--json"])
    assert not (tmp_path / "cache").exists()
