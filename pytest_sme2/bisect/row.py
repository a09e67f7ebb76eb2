"""A row of changes, and how it is halved until the first bad one is found.

A change is a commit of a git repository, looked at in a work tree, or a version of a package, in a
folder that goes before what is installed.
"""

from __future__ import annotations

import importlib.metadata
import os
import shlex
import sys
import tempfile
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from pathlib import Path

from packaging.specifiers import SpecifierSet
from packaging.version import InvalidVersion, Version

from pytest_sme2.errors import BuildError, RunError, UsageError
from pytest_sme2.session.settings import Settings
from pytest_sme2.system.files import is_program
from pytest_sme2.system.pip import Pin, known_versions, package_folder, parse_pin
from pytest_sme2.system.processes import git
from pytest_sme2.system.terminal import Say
from pytest_sme2.system.wording import split_list


@dataclass(frozen=True)
class RowEntry:
    key: str
    """The name of its folder in the run directory."""
    short: str
    """Its name for people."""
    subject: str = ""
    """What it says of itself."""


@dataclass(frozen=True)
class Border:
    """Two neighbours in a row of changes."""

    last_good: int
    first_bad: int
    figure: str = ""
    """What tells them apart."""

    @property
    def doubtful(self) -> int:
        """How many changes between the two could not be judged."""
        return self.first_bad - self.last_good - 1


def find_border(changes: int, is_bad: Callable[[int], bool | None], first: int = 0) -> Border:
    """The first bad change of a row whose ``first`` is good and whose last is bad; any such where
    good and bad take turns. ``is_bad`` says None where it cannot judge: one beside it is tried.
    """
    good, bad = first, changes - 1
    passed_over: set[int] = set()
    while left := [number for number in range(good + 1, bad) if number not in passed_over]:
        middle = (good + bad) / 2
        chosen = min(left, key=lambda number: abs(number - middle))
        answer = is_bad(chosen)
        if answer is None:
            passed_over.add(chosen)
        elif answer:
            bad = chosen
        else:
            good = chosen
    return Border(good, bad)


def repository_of(folder: Path) -> Path:
    try:
        return Path(git(folder, "rev-parse", "--show-toplevel").strip())
    except RunError as error:
        raise UsageError(
            f"{str(folder)!r} is not in a git repository. Type the command in one."
        ) from error


def commits_between(repository: Path, good: str, bad: str) -> list[RowEntry]:
    """From ``good`` to ``bad``, both of them among it; along the first parents."""
    first, last = (_resolved(repository, name) for name in (good, bad))
    if first == last:
        raise UsageError(f"{good} and {bad} are the same commit. Name two.")
    told = git(repository, "log", "--first-parent", "--format=%H %s", last)
    commits = [line.partition(" ") for line in told.strip("\n").split("\n")]
    digests = [digest for digest, _, _ in commits]
    if first not in digests:
        raise UsageError(
            f"{good} is not among the first parents of {bad}. Name an earlier commit of the same "
            "branch with --good."
        )
    row = reversed(commits[: digests.index(first) + 1])
    return [RowEntry(digest, digest[:12], subject) for digest, _, subject in row]


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


@contextmanager
def work_tree(repository: Path, commit: RowEntry) -> Iterator[Path]:
    """A second work tree; the user's own stays as it is."""
    try:
        with tempfile.TemporaryDirectory(
            prefix="sme2-bisect-", ignore_cleanup_errors=True
        ) as parent:
            folder = Path(parent, "tree")
            git(repository, "worktree", "add", "--detach", str(folder), commit.key)
            yield folder
    finally:
        git(repository, "worktree", "prune")


@dataclass(frozen=True)
class CommitRow:
    """Commits in order, the good one first, the bad one last; each looked at in the work tree."""

    tree: Path
    changes: Sequence[RowEntry]
    settings: Settings
    """Their folders of models, and a program, are relative to the repository."""
    noun = "commit"
    backwards = False

    @contextmanager
    def shown(self, number: int) -> Iterator[Settings]:
        """Within it, the model is as this change has it."""
        git(self.tree, "checkout", "--quiet", "--force", "--detach", self.changes[number].key)
        # What an earlier commit's model left behind is not of this one.
        git(self.tree, "clean", "-qffdx")
        names = self.settings.models
        models = (str(self.tree / name) if is_program(name) else name for name in names)
        folders = tuple(self.tree / folder for folder in self.settings.model_folders)
        yield replace(self.settings, model_folders=folders, models=tuple(models))

    def commands(self, border: Border, run: str) -> Sequence[str]:
        """For a shell, with what they show; ``run`` is the command that runs the case."""
        short = self.changes[border.first_bad].short
        return (f"See the change: git show {short}", f"See it run: git checkout {short} && {run}")


EXECUTORCH = "executorch"
PACKAGES = (EXECUTORCH, "torch", "torchao")
"""Those that change an export; ExecuTorch also changes the runner."""


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
    try:
        return Pin(package, importlib.metadata.version(package))
    except importlib.metadata.PackageNotFoundError:
        raise UsageError(
            f"{package} is not installed. Name a version with --bad, as in --bad {package}==1.2.3."
        ) from None


def check_ends(good: Pin, bad: Pin, named: Sequence[str] = ()) -> None:
    """Raises UsageError where nothing can lie between the two, or one that was named does not."""
    if good.package != bad.package:
        raise UsageError(
            f"{good} and {bad} are versions of two packages. Search one after the other."
        )
    first, last = sorted((_version(good.version), _version(bad.version)))
    if first == last:
        raise UsageError(f"{good} and {bad} are the same version. Name two.")
    for word in named:
        if not first <= _version(word) <= last:
            raise UsageError(
                f"--versions: {word} does not lie between {good} and {bad}. Leave it out."
            )


def releases_between(good: Pin, bad: Pin, known: Iterable[str]) -> list[Pin]:
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
    return [good, *(Pin(good.package, str(version)) for version in row), bad]


@dataclass(frozen=True)
class ReleaseRow:
    """Versions of a package, each in a folder of its own; all else stays as it is installed."""

    pins: Sequence[Pin]
    settings: Settings
    say: Say
    noun = "version"

    @property
    def changes(self) -> list[RowEntry]:
        return [RowEntry(f"{pin.package}-{pin.version}", str(pin)) for pin in self.pins]

    @property
    def backwards(self) -> bool:
        """Whether it goes back in time: then a search finds what made the case better."""
        return _version(self.pins[-1].version) < _version(self.pins[0].version)

    @contextmanager
    def shown(self, number: int) -> Iterator[Settings]:
        folder, before = self._folder(number), list(sys.path)
        if folder is not None:
            sys.path.insert(0, str(folder))
        try:
            yield self.settings
        finally:
            sys.path[:] = before

    def _folder(self, number: int) -> Path | None:
        """None where this version is the installed one."""
        pin = self.pins[number]
        with suppress(importlib.metadata.PackageNotFoundError):
            installed = importlib.metadata.version(pin.package)
            if SpecifierSet(f"=={pin.version}").contains(installed, prereleases=True):
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


Row = CommitRow | ReleaseRow


@contextmanager
def open_row(
    good: str,
    bad: str | None,
    settings: Settings,
    versions: str | None,
    keep_runner: bool,
    say: Say,
) -> Iterator[Row]:
    """What lies between the ends that a user named, with the one model of ``settings``."""
    first, last = parse_release(good), None if bad is None else parse_release(bad)
    if first is not None:
        if bad is not None and last is None:
            raise UsageError(
                f"{bad!r} is not a version, and --good names one. Write it as "
                f"{first.package}==1.2.3."
            )
        last = last or installed_pin(first.package)
        yield _releases(first, last, settings, versions, keep_runner, say)
        return
    if last is not None:
        raise UsageError(
            f"--bad names a version of a package, and --good does not. Write it as "
            f"{EXECUTORCH}==1.5.0, too."
        )
    if versions is not None or keep_runner:
        option = "--keep-runner" if keep_runner else "--versions"
        raise UsageError(
            f"{option} belongs to the versions of a package: --good {EXECUTORCH}==1.5.0"
        )
    repository = repository_of(Path.cwd())
    (model,), (folder,) = settings.models, settings.model_folders
    if is_program(model):
        program = str(tracked(repository, Path(model)))
        settings = replace(settings, models=(program,), model_folders=())
    else:
        root, place = repository.resolve(), folder.resolve()
        if not place.is_relative_to(root):
            raise UsageError(
                f"{str(folder)!r} is not in this repository, so its commits do not change it. Name "
                "a folder inside of it."
            )
        settings = replace(settings, model_folders=(place.relative_to(root),))
    commits = commits_between(repository, good, bad or "HEAD")
    with work_tree(repository, commits[0]) as tree:
        yield CommitRow(tree, commits, settings)


def _releases(
    good: Pin, bad: Pin, settings: Settings, versions: str | None, keep_runner: bool, say: Say
) -> ReleaseRow:
    known: Sequence[str] = split_list(versions or "")
    check_ends(good, bad, known)
    (model,) = settings.models
    if is_program(model) and (good.package != EXECUTORCH or keep_runner):
        raise UsageError(
            f"{model} is run as it is, so only the runner of {EXECUTORCH} makes a difference. Name "
            "a model, or let the runner change."
        )
    if settings.device_bundle is not None and good.package == EXECUTORCH and not keep_runner:
        raise UsageError(
            "--phone bundle=FILE has one runner, so all versions would run on it. Leave it out, or "
            "say that this is meant: --keep-runner"
        )
    if versions is None:
        say(f"asking pip for the versions of {good.package}")
        try:
            known = known_versions(good.package)
        except BuildError as error:
            raise BuildError(f"{error} Or name them: --versions 1.2.3,1.2.4") from error
    runtime = installed_pin(EXECUTORCH).version if keep_runner else None
    return ReleaseRow(releases_between(good, bad, known), replace(settings, runtime=runtime), say)
