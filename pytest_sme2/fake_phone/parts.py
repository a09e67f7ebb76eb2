"""The programs of a fake phone: found on the system, in the cache, or downloaded.

adb, adbd and busybox are the real ones. ``lab.py`` says how they work together.
"""

from __future__ import annotations

import os
import platform
import shutil
import subprocess
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from pytest_sme2.errors import TargetError
from pytest_sme2.system.apt_sources import system_archives, with_suites
from pytest_sme2.system.cache import cache_folder, trusted
from pytest_sme2.system.debian_packages import unpack_packages
from pytest_sme2.system.elf import is_elf, read_needs
from pytest_sme2.system.locks import locked

# adbd is in bookworm-backports, and in the main archive of later releases.
_SUITES = ("bookworm", "bookworm-backports")
_BACKPORTS = (
    "adb",
    "adbd",
    "android-libbase",
    "android-libboringssl",
    "android-libcutils",
    "android-liblog",
    "android-libziparchive",
)
_STABLE = ("busybox-static", "libprotobuf32", "libusb-1.0-0", "libbrotli1", "liblz4-1")


@dataclass(frozen=True)
class Parts:
    """The real programs, and the folders of their libraries."""

    adb: Path
    adbd: Path
    busybox: Path
    libraries: tuple[Path, ...]
    """Folders for ``LD_LIBRARY_PATH``; empty if the system's loader finds everything."""

    @property
    def environment(self) -> dict[str, str]:
        if not self.libraries:
            return {}
        return {"LD_LIBRARY_PATH": os.pathsep.join(str(folder) for folder in self.libraries)}


def find_parts(
    *, cache: Path | None = None, progress: Callable[[str], None] | None = None
) -> Parts:
    """The parts; if the system does not have them, downloaded once into the cache."""
    if platform.system() != "Linux":
        raise TargetError(
            "A fake phone needs Linux: its adbd is a Linux program. "
            "Use a real phone here, or run this on a Linux machine or in a Linux container."
        )
    found = installed_parts()
    if found is not None:
        return found
    folder = (cache or cache_folder()) / "fake-phone" / f"parts-{platform.machine()}"
    doing = "downloading the parts of the fake phone"
    with locked(folder.with_suffix(".lock"), doing, say=progress):
        if not folder.is_dir():
            if progress is not None:
                progress("downloading adb, adbd and busybox for the fake phone")
            packages = [f"{name}/{_SUITES[1]}" for name in _BACKPORTS] + list(_STABLE)
            unpack_packages(packages, with_suites(system_archives(), _SUITES), folder)
    return unpacked_parts(trusted(folder, cache or cache_folder()))


def installed_parts() -> Parts | None:
    """The parts from the system's own packages; None if one is missing."""
    tools = Path("/usr/lib/android-sdk/platform-tools")
    adb = shutil.which("adb")
    adbd = shutil.which("adbd") or (str(tools / "adbd") if (tools / "adbd").is_file() else None)
    busybox = shutil.which("busybox")
    if adb is None or adbd is None or busybox is None or not is_static(Path(busybox)):
        return None
    return Parts(Path(adb), Path(adbd), Path(busybox), ())


def unpacked_parts(folder: Path) -> Parts:
    tools = folder / "usr/lib/android-sdk/platform-tools"
    triplets = sorted((folder / "usr/lib").glob("*-linux-gnu"))
    libraries = tuple(path for triplet in triplets for path in (triplet / "android", triplet))
    busybox = next(
        (path for path in (folder / "bin/busybox", folder / "usr/bin/busybox") if path.is_file()),
        folder / "bin/busybox",
    )
    parts = Parts(tools / "adb", tools / "adbd", busybox, libraries)
    for part in (parts.adb, parts.adbd, parts.busybox):
        if not part.is_file():
            raise TargetError(f"{part} is missing. Delete {folder} and try again.")
    return parts


def is_static(program: Path) -> bool:
    """Whether an ELF file needs no interpreter, so that it runs without libraries."""
    return is_elf(program) and read_needs(program).interpreter is None


def shared_libraries(program: Path, environment: dict[str, str]) -> tuple[Path, list[Path]]:
    """The loader of a program and every library that this loader would load."""
    done = subprocess.run(
        ["ldd", str(program)],
        env={"PATH": os.environ.get("PATH", ""), "LC_ALL": "C", **environment},
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    loader: Path | None = None
    libraries: list[Path] = []
    for line in done.stdout.splitlines():
        name, _, rest = line.strip().partition(" => ")
        if rest.startswith("not found"):
            raise TargetError(
                f"{program.name} needs the library {name}, which is not installed. "
                "Install the packages adb and adbd."
            )
        path = (rest or name).split(" (")[0].strip()
        if not path.startswith("/"):
            continue
        if Path(path).name.startswith("ld-linux"):
            loader = Path(path)
        else:
            libraries.append(Path(path))
    if loader is None:
        raise TargetError(f"{program} is not a program that this machine can run.")
    return loader, libraries
