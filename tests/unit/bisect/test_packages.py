"""Versions of a package in a row."""

from __future__ import annotations

import importlib.metadata
import math
import sys
from dataclasses import replace
from pathlib import Path

import pytest

from pytest_sme2.bisect import row as rows
from pytest_sme2.bisect.row import (
    Border,
    Release,
    ReleaseRow,
    WorkTree,
    check_ends,
    commits_between,
    find_border,
    installed_pin,
    named_versions,
    parse_release,
    releases_between,
    repository_of,
)
from pytest_sme2.errors import UsageError
from pytest_sme2.export.variant import parse_variant
from pytest_sme2.session.settings import Settings
from pytest_sme2.system.pip import Pin
from tests.support.git import git


def row(good: str, bad: str, known: list[str]) -> list[str]:
    found = releases_between(Pin("torch", good), Pin("torch", bad), known)
    return [release.pin.version for release in found]


def test_versions_are_in_order_with_both_ends() -> None:
    known = ["2.13.0", "2.9.1", "2.12.1", "2.12.0", "2.10.0", "2.8.0"]
    assert row("2.9.1", "2.13.0", known) == ["2.9.1", "2.10.0", "2.12.0", "2.12.1", "2.13.0"]
    # An end that pip does not list may be in a folder of wheels.
    assert row("2.11.9", "2.12.2", known) == ["2.11.9", "2.12.0", "2.12.1", "2.12.2"]


def test_an_older_bad_end_is_searched_for_back_in_time() -> None:
    assert row("2.12.1", "2.9.1", ["2.10.0", "2.12.0"]) == ["2.12.1", "2.12.0", "2.10.0", "2.9.1"]
    ends = [Release(Pin("torch", version)) for version in ("2.12.1", "2.9.1")]
    assert ReleaseRow(ends, Settings(), lambda line: None).backwards
    assert not ReleaseRow(ends[::-1], Settings(), lambda line: None).backwards


def test_builds_for_something_else_are_left_out() -> None:
    known = ["2.13.0+cpu", "2.13.0", "2.12.1", "2.12.1+cpu", "2.12.0+cu130"]
    assert row("2.11.0", "2.13.0", known) == ["2.11.0", "2.12.1", "2.13.0"]
    assert row("2.11.0+cpu", "2.13.0+cpu", known) == ["2.11.0+cpu", "2.12.1+cpu", "2.13.0+cpu"]
    # The same version in another build is no version between.
    assert row("2.12.1", "2.13.0+cpu", known) == ["2.12.1", "2.13.0+cpu"]


def test_only_packages_that_change_something_are_taken() -> None:
    assert parse_release("executorch==1.5.0") == Pin("executorch", "1.5.0")
    assert parse_release("v1.0") is None
    with pytest.raises(UsageError, match=r"'numpy' is not .*one of: executorch, torch, torchao"):
        parse_release("numpy==2.0")
    with pytest.raises(UsageError, match=r"'1\.x' is not a version"):
        parse_release("torch==1.x")


@pytest.mark.parametrize(
    ("good", "bad", "message"),
    [
        (Pin("torch", "2.13.0"), Pin("torchao", "0.18.0"), "two packages"),
        (Pin("torch", "2.13.0"), Pin("torch", "2.13"), "are the same version"),
    ],
)
def test_ends_with_nothing_between_are_refused(good: Pin, bad: Pin, message: str) -> None:
    with pytest.raises(UsageError, match=message):
        check_ends(good, bad)


def test_versions_by_hand_lie_between_the_ends() -> None:
    good, bad = Pin("executorch", "1.5.0"), Pin("executorch", "1.6.0")
    assert named_versions(good, bad, ["1.5.1", "1.6.0"]) == ["1.5.1", "1.6.0"]
    with pytest.raises(UsageError, match=r"--versions: 1\.4\.0 does not lie between"):
        named_versions(good, bad, ["1.4.0"])


def test_a_package_that_is_not_installed_needs_a_bad_end(monkeypatch: pytest.MonkeyPatch) -> None:
    def missing(name: str) -> str:
        raise importlib.metadata.PackageNotFoundError(name)

    monkeypatch.setattr(importlib.metadata, "version", missing)
    with pytest.raises(UsageError, match="torch is not installed"):
        installed_pin("torch")


def test_another_version_goes_before_the_installed_one(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    about = tmp_path / "pytest-0.1.dist-info"
    about.mkdir()
    (about / "METADATA").write_text("Metadata-Version: 2.1\nName: pytest\nVersion: 0.1\n")
    monkeypatch.setattr(rows, "package_folder", lambda pin, progress: tmp_path)
    monkeypatch.delenv("PYTHONPATH", raising=False)
    before = list(sys.path)
    installed = importlib.metadata.version("pytest")
    releases = [Release(Pin("pytest", version)) for version in ("0.1", installed)]
    made = ReleaseRow(releases, Settings(), lambda line: None)
    with made.shown(0):
        assert importlib.metadata.version("pytest") == "0.1"
    with made.shown(1):
        assert importlib.metadata.version("pytest") == installed
        assert sys.path == before
    assert sys.path == before
    assert made.commands(Border(0, 1), "sme2 run x") == (
        "See it run: sme2 run x",
        f"Before it: PYTHONPATH={tmp_path} sme2 run x",
    )
    kept = replace(
        made,
        settings=Settings(
            device="emulated",
            models=("x",),
            variants=(parse_variant("int8"),),
            model_folders=(Path("m"),),
            runtime="1.5.1",
        ),
    )
    export = "sme2 export x --variant int8 --models-folder m"
    assert kept.commands(Border(0, 1), "sme2 run x") == (
        f'See it run: sme2 run "$({export})" --device emulated',
        f'Before it: sme2 run "$(PYTHONPATH={tmp_path} {export})" --device emulated',
    )


@pytest.mark.parametrize("changes", [2, 3, 10, 64, 65])
def test_every_step_is_found_in_few_looks(changes: int) -> None:
    for step in range(1, changes):
        asked: list[int] = []

        def is_bad(number: int, step: int = step, asked: list[int] = asked) -> bool:
            asked.append(number)
            return number >= step

        assert find_border(changes, is_bad) == Border(step - 1, step)
        assert len(asked) <= math.ceil(math.log2(changes - 1)) if changes > 2 else not asked
        assert len(set(asked)) == len(asked)


def test_what_cannot_be_judged_is_passed_over() -> None:
    broken = {4, 5, 6}
    found = find_border(11, lambda number: None if number in broken else number >= 8)
    assert (found, found.doubtful) == (Border(7, 8), 0)


def test_where_the_border_is_among_them_it_is_said_so() -> None:
    broken = {4, 5, 6}
    found = find_border(11, lambda number: None if number in broken else number >= 5)
    assert (found, found.doubtful) == (Border(3, 7), 3)


def test_neighbours_need_no_look() -> None:
    def never(number: int) -> bool:
        raise AssertionError(number)

    assert find_border(2, never) == Border(0, 1)


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
