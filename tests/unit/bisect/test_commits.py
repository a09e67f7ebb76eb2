"""Commits of a real repository, and a work tree of its own for each."""

from __future__ import annotations

from pathlib import Path

import pytest

from pytest_sme2.bisect.row import WorkTree, commits_between, repository_of
from pytest_sme2.errors import UsageError
from tests.support.git import git


@pytest.fixture
def repository(tmp_path: Path) -> Path:
    root = tmp_path / "a repository"
    root.mkdir()
    git(root, "init", "-q", "-b", "main")
    for number in range(5):
        (root / "file").write_text(str(number))
        git(root, "add", "file")
        git(root, "commit", "-q", "-m", f"change {number}")
    return root


def test_the_ends_are_among_the_commits(repository: Path) -> None:
    found = commits_between(repository, "HEAD~3", "HEAD")
    assert [commit.subject for commit in found] == [f"change {number}" for number in (1, 2, 3, 4)]
    assert found[-1].digest == git(repository, "rev-parse", "HEAD")


def test_a_merge_counts_as_one_change(repository: Path) -> None:
    git(repository, "checkout", "-q", "-b", "side", "HEAD~1")
    git(repository, "commit", "-q", "--allow-empty", "-m", "on the side")
    git(repository, "checkout", "-q", "main")
    git(repository, "merge", "-q", "--no-ff", "-m", "merged", "side")
    found = commits_between(repository, "HEAD~1", "main")
    assert [commit.subject for commit in found] == ["change 4", "merged"]
    with pytest.raises(UsageError, match="not among the first parents"):
        commits_between(repository, "side", "main")


@pytest.mark.parametrize("name", ["gone", "-q", "--output=x", "HEAD:file", ""])
def test_a_name_that_is_not_a_commit_is_refused(repository: Path, name: str) -> None:
    with pytest.raises(UsageError, match="is not a commit of this repository"):
        commits_between(repository, name, "HEAD")


def test_one_commit_is_not_enough(repository: Path) -> None:
    with pytest.raises(UsageError, match="are the same commit"):
        commits_between(repository, "HEAD", "main")


def test_a_folder_without_a_repository_is_refused(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="is not in a git repository"):
        repository_of(tmp_path)


def test_the_users_own_work_tree_stays_as_it_is(repository: Path, tmp_path: Path) -> None:
    (repository / "file").write_text("work that is not committed")
    hook = repository / ".git" / "hooks" / "post-checkout"
    hook.write_text(f"#!/bin/sh\ntouch '{tmp_path}/hook-ran'\n")
    hook.chmod(0o755)
    commits = commits_between(repository, "HEAD~3", "HEAD")
    with WorkTree(repository, commits[0]) as tree:
        (tree.folder / "left behind").write_text("")
        for commit in commits:
            folder = tree.show(commit)
            assert (folder / "file").read_text() == commit.subject[-1]
            assert not (folder / "left behind").exists()
    assert (repository / "file").read_text() == "work that is not committed"
    assert git(repository, "worktree", "list").count("\n") == 0
    assert not tree.folder.exists()
    assert not (tmp_path / "hook-ran").exists()
