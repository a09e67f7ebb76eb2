"""The lines that changed since a baseline was committed, asked of a real git."""

from __future__ import annotations

from pathlib import Path

import pytest

from pytest_sme2.results.run import ChangedLines, Frame, Origin
from pytest_sme2.session.session import changed_lines
from pytest_sme2.verdict.cost import Cause
from tests.support.git import git

SOURCE = "one\ntwo\nthree\nfour\nfive\n"


@pytest.fixture
def tree(tmp_path: Path) -> Path:
    """A repository with a model and its baseline; two commits, since one may come after it."""
    root = tmp_path / "tree"
    (root / "net").mkdir(parents=True)
    git(root, "init", "-q")
    for name in ("net/model.py", "net/parts.py", "net.json"):
        (root / name).write_text(SOURCE, "utf-8")
    git(root, "add", ".")
    git(root, "commit", "-qm", "a")
    (root / "other").write_text("x", "utf-8")
    git(root, "add", ".")
    git(root, "commit", "-qm", "b")
    return root


def edits(root: Path) -> dict[str, list[tuple[list[int], list[int]]]]:
    sources = [root / "net" / name for name in ("model.py", "parts.py", "gone.py")]
    found = changed_lines(root / "net.json", sources)
    return {each.file.name: [(list(old), list(new)) for old, new in each.edits] for each in found}


def test_what_changed_in_the_working_tree_and_in_later_commits(tree: Path) -> None:
    assert edits(tree) == {}
    (tree / "net" / "parts.py").write_text(SOURCE.replace("two\n", ""), "utf-8")
    git(tree, "commit", "-qam", "c")
    (tree / "net" / "model.py").write_text(SOURCE.replace("four", "4\n4.5"), "utf-8")
    assert edits(tree) == {"model.py": [([4], [4, 5])], "parts.py": [([2], [])]}


@pytest.mark.parametrize("how", ["updated since", "not committed", "no repository", "no git"])
def test_without_the_baseline_s_commit_nothing_is_said(
    how: str, tree: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tree / "net" / "model.py").write_text("else", "utf-8")
    if how == "updated since":
        (tree / "net.json").write_text("{}", "utf-8")
    elif how == "not committed":
        git(tree, "rm", "-q", "--cached", "net.json")
        git(tree, "commit", "-qm", "c")
        (tree / "net.json").write_text("{}", "utf-8")
    elif how == "no repository":
        (tree / ".git").rename(tree / "was.git")
    else:
        monkeypatch.setenv("PATH", "")
    assert edits(tree) == {}


def test_no_program_runs_that_the_repository_names(tree: Path, tmp_path: Path) -> None:
    trap, sprung = tmp_path / "trap", tmp_path / "sprung"
    trap.write_text(f"#!/bin/sh\necho $0 >>{sprung}\ncat\n", "utf-8")
    trap.chmod(0o755)
    for name in (
        "core.fsmonitor", "core.sshCommand", "core.pager", "core.editor", "diff.external",
        "diff.odd.command", "diff.odd.textconv", "filter.odd.clean", "filter.odd.smudge",
        "filter.odd.process", "gpg.program", "credential.helper", "uploadpack.packObjectsHook",
        "alias.rev-list", "alias.cat-file", "core.alternateRefsCommand",
    ):  # fmt: skip
        git(tree, "config", name, f"!{trap}" if name.startswith("alias") else str(trap))
    git(tree, "config", "log.showSignature", "true")
    hooks = tree / ".git" / "hooks"
    hooks.mkdir(exist_ok=True)
    for name in ("post-index-change", "post-checkout", "reference-transaction"):
        (hooks / name).write_bytes(trap.read_bytes())
        (hooks / name).chmod(0o755)
    (tree / ".git" / "info").mkdir(exist_ok=True)
    (tree / ".git" / "info" / "attributes").write_text("* diff=odd filter=odd\n", "utf-8")
    (tree / "net" / "model.py").write_text(SOURCE + "six\n", "utf-8")
    assert edits(tree) == {"model.py": [([], [6])]}
    assert not sprung.exists()
    # A command that asks more of git does run them.
    git(tree, "status")
    assert sprung.exists()


def test_a_place_among_the_changed_lines_is_sure(tmp_path: Path) -> None:
    file = tmp_path / "net" / "model.py"
    way = (Frame(str(file), 45, "forward"), Frame(str(file), 17, "scan"))
    cause = Cause("Add added", "near `x` at model.py:17", Origin("", file=str(file), line=17,
                  near=True, way=way))  # fmt: skip

    def told(*edits: tuple[range, range], cause: Cause = cause) -> str:
        return cause.among([ChangedLines(file, edits)])

    nothing = range(9, 9)
    assert cause.among(()) == cause.where
    assert told((nothing, range(16, 18))) == "`x` at model.py:17"
    assert told((nothing, range(45, 46))) == "`x` at model.py:17", "the line that leads to it"
    assert told((nothing, range(31, 33)), (nothing, range(40, 40))) == (
        "changed: model.py:31-32, model.py:40; the cost is near `x` at model.py:17"
    )
    kept = Origin("", file="net/model.py", line=20)
    gone = Cause("Add removed", "at net/model.py:20", kept, gone=True)
    assert told((range(20, 21), nothing), cause=gone) == "at net/model.py:20"
