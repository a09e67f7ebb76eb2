"""A row of changes, and how it is halved until the first bad one is found.

A change is a commit of a git repository, looked at in a work tree, or a version of a package, in a
folder that goes before what is installed.
"""

from __future__ import annotations

import importlib.metadata
import os
import shlex
import shutil
import sys
import tempfile
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from types import TracebackType
from typing import Protocol

from packaging.specifiers import SpecifierSet
from packaging.version import InvalidVersion, Version

from pytest_sme2.errors import RunError, UsageError
from pytest_sme2.session.settings import Settings
from pytest_sme2.system.files import is_program
from pytest_sme2.system.pip import Pin, package_folder, parse_pin
from pytest_sme2.system.processes import git
from pytest_sme2.system.terminal import Say


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


def find_border(changes: int, is_bad: Callable[[int], bool | None], first: int = 0) -> Border:
    """The first bad change of a row whose ``first`` is good and whose last is bad.

    ``is_bad`` says None of a change that cannot be judged: then one beside it is tried. Where good
    and bad take turns, one of the borders is found.
    """
    good, bad = first, changes - 1
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


def tracked(repository: Path, file: Path) -> Path:
    """The file's path in the repository, whose commits change it."""
    root, place = repository.resolve(), file.resolve()
    if not place.is_relative_to(root) or not git(root, "ls-files", "--", str(place)).strip():
        raise UsageError(
            f"{file} is not a file of this repository, so no commit changes it. Add it with git, "
            f"name a model, or versions of the runtime: --good {EXECUTORCH}==1.5.0"
        )
    return place.relative_to(root)


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
    """Their folders of models, and a program, are relative to the repository."""
    noun = "commit"
    backwards = False

    @contextmanager
    def shown(self, number: int) -> Iterator[Settings]:
        tree = self.tree.show(self.changes[number])
        folders = tuple(tree / folder for folder in self.settings.model_folders)
        models = (str(tree / name) if is_program(name) else name for name in self.settings.models)
        yield replace(self.settings, model_folders=folders, models=tuple(models))

    def commands(self, border: Border, run: str) -> Sequence[str]:
        short = self.changes[border.first_bad].short
        return (f"See the change: git show {short}", f"See it run: git checkout {short} && {run}")


# --- versions of a package ------------------------------------------------------------------------


PACKAGES = ("executorch", "torch", "torchao")
"""Those that change an export; ExecuTorch also changes the runner."""
EXECUTORCH = PACKAGES[0]


@dataclass(frozen=True)
class Release:
    """One version of a package."""

    pin: Pin

    @property
    def key(self) -> str:
        return f"{self.pin.package}-{self.pin.version}"

    @property
    def short(self) -> str:
        return str(self.pin)

    @property
    def subject(self) -> str:
        return ""


def parse_release(text: str) -> Pin | None:
    """``executorch==1.5.0``; None where it is not written like that."""
    pin = parse_pin(text)
    if pin is None:
        return None
    if pin.package not in PACKAGES:
        raise UsageError(
            f"{pin.package!r} is not a package whose versions can be searched. "
            f"Choose one of: {', '.join(PACKAGES)}."
        )
    _version(pin.version)
    return pin


def _version(text: str) -> Version:
    try:
        return Version(text)
    except InvalidVersion:
        raise UsageError(f"{text!r} is not a version. Give one such as 1.5.0.") from None


def installed_pin(package: str) -> Pin:
    """The installed version of a package."""
    try:
        return Pin(package, importlib.metadata.version(package))
    except importlib.metadata.PackageNotFoundError:
        raise UsageError(
            f"{package} is not installed. Name a version with --bad, as in --bad {package}==1.2.3."
        ) from None


def check_ends(good: Pin, bad: Pin) -> None:
    """Raises UsageError where nothing can lie between the two."""
    if good.package != bad.package:
        raise UsageError(
            f"{good} and {bad} are versions of two packages. Search one after the other."
        )
    if _version(good.version) == _version(bad.version):
        raise UsageError(f"{good} and {bad} are the same version. Name two.")


def releases_between(good: Pin, bad: Pin, known: Iterable[str]) -> list[Release]:
    """From ``good`` to ``bad``, both of them among it; back in time where the bad one is older."""
    ends = first, last = sorted((_version(good.version), _version(bad.version)))
    # Builds for something else (as in 2.13.0+cpu) are only taken where an end is one.
    builds = {end.local for end in ends}
    between = {
        version
        for version in map(_version, known)
        if first < version < last
        and version.local in builds
        and version.public not in (first.public, last.public)
    }
    row = sorted(between, reverse=_version(good.version) == last)
    middle = (Pin(good.package, str(version)) for version in row)
    return [Release(pin) for pin in (good, *middle, bad)]


def named_versions(good: Pin, bad: Pin, words: Sequence[str]) -> list[str]:
    """Versions that were given by hand: each must lie between the two ends, or be one."""
    first, last = sorted((_version(good.version), _version(bad.version)))
    for word in words:
        if not first <= _version(word) <= last:
            raise UsageError(
                f"--versions: {word} does not lie between {good} and {bad}. Leave it out."
            )
    return list(words)


@dataclass(frozen=True)
class ReleaseRow:
    """Versions of a package, each in a folder of its own; all else stays as it is installed."""

    changes: Sequence[Release]
    settings: Settings
    say: Say
    noun = "version"

    @property
    def backwards(self) -> bool:
        first, last = (_version(self.changes[end].pin.version) for end in (0, -1))
        return last < first

    @contextmanager
    def shown(self, number: int) -> Iterator[Settings]:
        folder = self._folder(number)
        if folder is None:
            yield self.settings
            return
        before = list(sys.path)
        sys.path.insert(0, str(folder))
        try:
            yield self.settings
        finally:
            sys.path[:] = before

    def _folder(self, number: int) -> Path | None:
        """None where this version is the installed one."""
        pin = self.changes[number].pin
        try:
            installed = importlib.metadata.version(pin.package)
        except importlib.metadata.PackageNotFoundError:
            installed = None
        if installed is not None and SpecifierSet(f"=={pin.version}").contains(
            installed, prereleases=True
        ):
            return None
        return package_folder(pin, progress=self.say)

    def commands(self, border: Border, run: str) -> Sequence[str]:
        return (
            f"See it run: {self._run(border.first_bad, run)}",
            f"Before it: {self._run(border.last_good, run)}",
        )

    def _run(self, number: int, run: str) -> str:
        folder, settings = self._folder(number), self.settings
        environment = ""
        if folder is not None:
            others = ':"$PYTHONPATH"' if os.environ.get("PYTHONPATH") else ""
            environment = f"PYTHONPATH={shlex.quote(str(folder))}{others} "
        if settings.runtime is None:
            return f"{environment}{run}"
        # Only the export is of that version.
        export = ["sme2", "export", *settings.models, "--variant", str(settings.variants[0])]
        for models in settings.model_folders:
            export += ["--models-folder", str(models)]
        return f'sme2 run "$({environment}{shlex.join(export)})" --device {settings.device}'
