"""The commits of a git repository, and a work tree in which each can be looked at."""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from types import TracebackType

from pytest_sme2.bisect.row import Border
from pytest_sme2.errors import RunError, UsageError
from pytest_sme2.session.settings import Settings
from pytest_sme2.system.git import git


@dataclass(frozen=True)
class Commit:
    digest: str
    subject: str

    @property
    def key(self) -> str:
        return self.digest

    @property
    def short(self) -> str:
        return self.digest[:12]


def repository_of(folder: Path) -> Path:
    try:
        return Path(git(folder, "rev-parse", "--show-toplevel").strip())
    except RunError as error:
        raise UsageError(
            f"{str(folder)!r} is not in a git repository. Type the command in one."
        ) from error


def commits_between(repository: Path, good: str, bad: str) -> list[Commit]:
    """From ``good`` to ``bad``, both of them among it; along the first parents."""
    first, last = (_resolved(repository, name) for name in (good, bad))
    if first == last:
        raise UsageError(f"{good} and {bad} are the same commit. Name two.")
    told = git(
        repository, "log", "--first-parent", "--reverse", "--format=%H %s", f"{first}..{last}"
    )
    later = [Commit(*line.split(" ", 1)) for line in told.splitlines() if " " in line]
    ancestors = git(repository, "rev-list", "--first-parent", last).split()
    if first not in ancestors:
        raise UsageError(
            f"{good} is not among the first parents of {bad}. Name an earlier commit of the same "
            "branch with --good."
        )
    subject = git(repository, "log", "-1", "--format=%s", first).strip()
    return [Commit(first, subject), *later]


def _resolved(repository: Path, name: str) -> str:
    try:
        return git(
            repository, "rev-parse", "--verify", "--quiet", "--end-of-options", f"{name}^{{commit}}"
        ).strip()
    except RunError as error:
        raise UsageError(f"{name!r} is not a commit of this repository.") from error


class WorkTree:
    """A second work tree; the user's own stays as it is."""

    def __init__(self, repository: Path, first: Commit) -> None:
        self.repository = repository
        self._parent = Path(tempfile.mkdtemp(prefix="sme2-bisect-"))
        self.folder = self._parent / "tree"
        try:
            git(repository, "worktree", "add", "--detach", str(self.folder), first.digest)
        except RunError:
            shutil.rmtree(self._parent, ignore_errors=True)
            raise

    def show(self, commit: Commit) -> Path:
        """The work tree as this commit has it."""
        git(self.folder, "checkout", "--quiet", "--force", "--detach", commit.digest)
        # What an earlier commit's model left behind is not of this one.
        git(self.folder, "clean", "-qffdx")
        return self.folder

    def __enter__(self) -> WorkTree:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        shutil.rmtree(self._parent, ignore_errors=True)
        git(self.repository, "worktree", "prune")


@dataclass(frozen=True)
class CommitRow:
    """Commits, each looked at in the work tree."""

    tree: WorkTree
    changes: Sequence[Commit]
    settings: Settings
    """Their folders of models are relative to the repository."""
    noun = "commit"
    backwards = False

    @contextmanager
    def shown(self, number: int) -> Iterator[Settings]:
        tree = self.tree.show(self.changes[number])
        folders = tuple(tree / folder for folder in self.settings.model_folders)
        yield replace(self.settings, model_folders=folders)

    def commands(self, border: Border, run: str) -> Sequence[str]:
        short = self.changes[border.first_bad].short
        return (f"See the change: git show {short}", f"See it run: git checkout {short} && {run}")
