"""A row of changes, and how it is halved until the first bad one is found.

A change is a commit of a git repository, looked at in a work tree, or a version of a package, in a
folder that goes before what is installed.
"""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from types import TracebackType
from typing import Protocol

from pytest_sme2.errors import RunError, UsageError
from pytest_sme2.session.settings import Settings
from pytest_sme2.system.git import git


class Candidate(Protocol):
    """One step of a row."""

    @property
    def key(self) -> str:
        """The name of its folder in the run directory."""
        ...

    @property
    def short(self) -> str:
        """Its name for people."""
        ...

    @property
    def subject(self) -> str:
        """What it says of itself; may be empty."""
        ...


class Row(Protocol):
    """Changes in order, the good one first, the bad one last."""

    @property
    def noun(self) -> str:
        """What one of them is called."""
        ...

    @property
    def backwards(self) -> bool:
        """Whether it goes back in time: then a search finds what made the case better."""
        ...

    @property
    def changes(self) -> Sequence[Candidate]: ...

    def shown(self, number: int) -> AbstractContextManager[Settings]:
        """Within it, the model is as this change has it."""
        ...

    def commands(self, border: Border, run: str) -> Sequence[str]:
        """For a shell, with what they show; ``run`` is the command that runs the case."""
        ...


@dataclass(frozen=True)
class Border:
    """Two neighbours in a row of changes."""

    last_good: int
    first_bad: int

    @property
    def doubtful(self) -> int:
        """How many changes between the two could not be judged."""
        return self.first_bad - self.last_good - 1


def find_border(changes: int, is_bad: Callable[[int], bool | None]) -> Border:
    """The first bad change of a row whose first is good and whose last is bad.

    ``is_bad`` says None of a change that cannot be judged: then one beside it is tried. Where good
    and bad take turns, one of the borders is found.
    """
    good, bad = 0, changes - 1
    passed_over: set[int] = set()
    while True:
        left = [number for number in range(good + 1, bad) if number not in passed_over]
        if not left:
            return Border(good, bad)
        middle = (good + bad) / 2
        chosen = min(left, key=lambda number: abs(number - middle))
        answer = is_bad(chosen)
        if answer is None:
            passed_over.add(chosen)
        elif answer:
            bad = chosen
        else:
            good = chosen


# --- commits --------------------------------------------------------------------------------------


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
