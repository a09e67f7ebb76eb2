"""The versions of a package, and a folder for each that goes before what is installed."""

from __future__ import annotations

import importlib.metadata
import os
import shlex
import sys
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from packaging.specifiers import SpecifierSet
from packaging.version import InvalidVersion, Version

from pytest_sme2.bisect.row import Border
from pytest_sme2.errors import UsageError
from pytest_sme2.session.settings import Settings
from pytest_sme2.system.pip import Pin, package_folder, parse_pin
from pytest_sme2.system.terminal import Say

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
