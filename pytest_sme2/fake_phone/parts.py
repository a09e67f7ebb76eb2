"""The programs of a fake phone: found on the system, in the cache, or downloaded.

adb and adbd are the real ones. The shell and the tools are of Android's kind: mksh and toybox.
``lab.py`` says how they work together.
"""

from __future__ import annotations

import os
import platform
import shutil
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

from pytest_sme2.errors import TargetError
from pytest_sme2.system.cache import cache_folder, trusted
from pytest_sme2.system.debian_packages import system_archives, unpack_packages, with_suites
from pytest_sme2.system.locks import locked
from pytest_sme2.system.processes import run_process

# adbd is in bookworm-backports, and in the main archive of later releases.
_SUITES = ("bookworm", "bookworm-backports")
_BACKPORTS = (
    *("adb", "adbd", "android-libbase", "android-libboringssl"),
    *("android-libcutils", "android-liblog", "android-libziparchive"),
)
_STABLE = (
    *("mksh", "toybox", "patchelf"),
    *("libcrypt1", "libprotobuf32", "libusb-1.0-0", "libbrotli1", "liblz4-1"),
)
_PROGRAMS = ("adb", "adbd", "mksh", "toybox", "patchelf")


@dataclass(frozen=True)
class Parts:
    """The real programs, and the folders of their libraries."""

    adb: Path
    adbd: Path
    mksh: Path
    toybox: Path
    patchelf: Path
    """Runs on this machine, and tells the phone's programs where their loader is."""
    libraries: tuple[Path, ...] = field(kw_only=True)
    """Folders for ``LD_LIBRARY_PATH``; empty if the system's loader finds everything."""

    @property
    def environment(self) -> dict[str, str]:
        if not self.libraries:
            return {}
        return {"LD_LIBRARY_PATH": os.pathsep.join(map(str, self.libraries))}


def find_parts(progress: Callable[[str], None] | None = None) -> Parts:
    """The parts; if the system does not have them, downloaded once into the cache."""
    if platform.system() != "Linux":
        raise TargetError(
            "A fake phone needs Linux: its adbd is a Linux program. "
            "Use a real phone here, or run this on a Linux machine or in a Linux container."
        )
    found = installed_parts()
    if found is not None:
        return found
    folder = cache_folder() / "fake-phone" / f"programs-{platform.machine()}"
    doing = "downloading the parts of the fake phone"
    with locked(folder.with_suffix(".lock"), doing, say=progress):
        if not folder.is_dir():
            if progress is not None:
                progress(f"downloading {', '.join(_PROGRAMS)} for the fake phone")
            packages = [f"{name}/{_SUITES[1]}" for name in _BACKPORTS] + list(_STABLE)
            unpack_packages(packages, with_suites(system_archives(), _SUITES), folder)
            _make_independent(unpacked_parts(folder))
    return unpacked_parts(trusted(folder, cache_folder()))


def installed_parts() -> Parts | None:
    """The parts from the system's own packages; None if one is missing."""
    tools = "/usr/lib/android-sdk/platform-tools"
    path = os.pathsep.join((os.environ.get("PATH", os.defpath), tools))
    found = [Path(file) for name in _PROGRAMS if (file := shutil.which(name, path=path))]
    return Parts(*found, libraries=()) if len(found) == len(_PROGRAMS) else None


def unpacked_parts(folder: Path) -> Parts:
    triplets = sorted((folder / "usr/lib").glob("*-linux-gnu"))
    libraries = [path for triplet in triplets for path in (triplet / "android", triplet)]
    libraries += sorted((folder / "lib").glob("*-linux-gnu"))
    places = ("usr/lib/android-sdk/platform-tools", "usr/bin", "bin")
    found = []
    for name in _PROGRAMS:
        candidates = [folder / place / name for place in places]
        part = next((path for path in candidates if path.is_file()), None)
        if part is None:
            raise TargetError(f"{name} is missing in {folder}. Delete that folder and try again.")
        found.append(part)
    return Parts(*found, libraries=tuple(libraries))


def _make_independent(parts: Parts) -> None:
    """Let adb find its libraries by itself, so that it works where no other adb is installed."""
    around = parts.adb.parent
    folders = [f"$ORIGIN/{os.path.relpath(folder, around)}" for folder in parts.libraries]
    change = ["--force-rpath", "--set-rpath", ":".join(folders)]
    done = run_process([str(parts.patchelf), *change, str(parts.adb)], timeout_seconds=60)
    if done.returncode != 0:
        raise TargetError(f"patchelf could not change {parts.adb}: {done.stderr.strip()[-300:]}")


def shared_libraries(program: Path, environment: dict[str, str]) -> tuple[Path, list[Path]]:
    """The loader of a program and every library that this loader would load."""
    given = {"PATH": os.environ.get("PATH", ""), "LC_ALL": "C", **environment}
    done = run_process(["ldd", str(program)], timeout_seconds=60, environment=given)
    paths: list[Path] = []
    for line in done.stdout.splitlines():
        name, _, rest = line.strip().partition(" => ")
        if rest.startswith("not found"):
            raise TargetError(
                f"{program.name} needs the library {name}, which is not installed. "
                f"Install the packages {', '.join(_PROGRAMS)}."
            )
        paths.append(Path((rest or name).split(" (")[0].strip()))
    loaders = [path for path in paths if path.name.startswith("ld-linux")]
    if not loaders:
        raise TargetError(f"{program} is not a program that this machine can run.")
    return loaders[-1], [path for path in paths if path.is_absolute() and path not in loaders]
