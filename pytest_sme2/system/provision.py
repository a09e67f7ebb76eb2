"""Finds or fetches the tools this platform needs; says what it did and what is missing.

Everything that can live in the cache folder goes there and needs no root. Only compilers are
installed system-wide, and only through the system's own package manager.
"""

from __future__ import annotations

import os
import platform
import shutil
import subprocess
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from pytest_sme2.errors import BuildError, Sme2Error
from pytest_sme2.system.cache import cache_folder
from pytest_sme2.system.debian_packages import unpack_packages
from pytest_sme2.system.locks import locked

Say = Callable[[str], None]


@dataclass(frozen=True)
class Provided:
    """One tool: where it is, or what its absence costs."""

    name: str
    found: str | None
    """A path and version; None where it is missing."""
    action: str = "found"
    """``found``, ``installed`` or ``missing``."""
    cost: str = ""
    """The features that are lost without it."""
    remedy: str = ""


def _release() -> dict[str, str]:
    """The fields of os-release, empty where there is none."""
    try:
        return platform.freedesktop_os_release()
    except OSError:
        return {}


def _sudo() -> list[str] | None:
    """What to put before a command that needs root; None where root is not to be had."""
    if os.geteuid() == 0:
        return []
    if shutil.which("sudo") is None:
        return None
    asked = subprocess.run(["sudo", "-n", "true"], capture_output=True, check=False, timeout=30)
    return ["sudo", "-n"] if asked.returncode == 0 else None


def apt_install(packages: list[str], say: Say) -> None:
    """Install packages system-wide, or raise with the line the user can type."""
    line = f"apt-get install {' '.join(packages)}"
    prefix = _sudo()
    if shutil.which("apt-get") is None:
        raise BuildError(f"This system has no apt-get. Install: {' '.join(packages)}")
    if prefix is None:
        raise BuildError(f"Installing needs root. Run: sudo {line}")
    say(f"installing {' '.join(packages)} with apt-get")
    environment = {**os.environ, "DEBIAN_FRONTEND": "noninteractive", "LC_ALL": "C"}
    for arguments in (["update", "-qq"], ["install", "-y", "-qq", *packages]):
        done = subprocess.run(
            [*prefix, "apt-get", *arguments],
            capture_output=True,
            text=True,
            check=False,
            env=environment,
            timeout=900,
        )
        if done.returncode != 0:
            last = (done.stderr or done.stdout).strip().splitlines()[-1:]
            raise BuildError(f"`{line}` failed: {' '.join(last)}")


def _program(
    name: str, programs: tuple[str, ...], packages: list[str], cost: str, say: Say, check: bool
) -> Provided:
    """A program on PATH; installed by apt where it is missing and that is possible."""

    def path() -> str | None:
        return next(filter(None, map(shutil.which, programs)), None)

    found = path()
    if found:
        return Provided(name, found)
    remedy = f"apt-get install {' '.join(packages)}"
    if check:
        return Provided(name, None, "missing", cost, remedy)
    try:
        apt_install(packages, say)
    except Sme2Error as error:
        return Provided(name, None, "missing", cost, str(error))
    found = path()
    if found:
        return Provided(name, found, "installed")
    return Provided(name, None, "missing", cost, remedy)


def compiler(say: Say, check: bool) -> Provided:
    """A C++ compiler for this machine."""
    cost = "no runner can be built: nothing can be run on this machine"
    if platform.system() == "Darwin":
        found = shutil.which("c++")
        if found:
            return Provided("C++ compiler", found)
        return Provided("C++ compiler", None, "missing", cost, "xcode-select --install")
    return _program("C++ compiler", ("c++", "g++", "clang++"), ["g++"], cost, say, check)


def cross_compiler(say: Say, check: bool) -> Provided:
    """On Linux machines that are not Arm: what builds the runner the emulator executes."""
    return _program(
        "Arm C++ compiler",
        ("aarch64-linux-gnu-g++",),
        ["g++-aarch64-linux-gnu"],
        "no runner for the SME2 emulator: --device=emulated cannot be used",
        say,
        check,
    )


# The suites whose QEMU executes SME2 (10.1 and newer), newest release first.
_QEMU_SUITES = {"debian": ("forky", "sid"), "ubuntu": ("resolute", "questing")}


def qemu(say: Say, check: bool) -> Provided:
    """A QEMU that executes SME2: on PATH, in the cache, or fetched into the cache."""
    from pytest_sme2.system.qemu import find_qemu

    name = "QEMU with SME2"
    cost = "no SME2 on a machine without it: --device=emulated cannot be used"
    try:
        emulator = find_qemu()
    except Sme2Error as error:
        problem = str(error)
    else:
        return Provided(name, f"{emulator.path} ({emulator.version})")
    release = _release()
    families = [release.get("ID", ""), *release.get("ID_LIKE", "").split()]
    suites = next((_QEMU_SUITES[family] for family in families if family in _QEMU_SUITES), ())
    if check or not suites:
        return Provided(name, None, "missing", cost, problem)
    for suite in suites:
        say(f"fetching QEMU from {suite} into the cache (70 MB)")
        try:
            _fetch(["qemu-user"], suite, tools_folder() / "qemu")
            emulator = find_qemu()
        except Sme2Error as error:
            problem = str(error)
        else:
            return Provided(name, f"{emulator.path} ({emulator.version})", "installed")
    return Provided(name, None, "missing", cost, problem)


def _fetch(packages: list[str], suite: str, folder: Path) -> None:
    with locked(Path(f"{folder}.lock"), f"fetching {', '.join(packages)}"):
        unpack_packages(packages, [suite], folder)


def build_tools(say: Say, check: bool) -> Provided:
    """CMake and Ninja, which come with this package from PyPI."""
    from pytest_sme2.system.toolchain import find_cmake, find_ninja

    try:
        cmake, ninja = find_cmake(), find_ninja()
    except Sme2Error as error:
        return Provided("CMake and Ninja", None, "missing", "no runner can be built", str(error))
    return Provided("CMake and Ninja", f"{cmake}, {ninja}")


def chromium(say: Say, check: bool) -> Provided:
    """The browser in which the tests look at the HTML report; nothing else needs one."""
    return _program(
        "Chromium",
        ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable"),
        ["chromium"],
        "the HTML report is not tested in a browser",
        say,
        check,
    )


# What each purpose needs on top of what everybody needs.
PURPOSES = ("use", "tests")


def provision(say: Say, *, check: bool = False, purpose: str = PURPOSES[0]) -> tuple[Provided, ...]:
    """Find or fetch everything this platform can use; with ``check`` nothing is changed."""
    parts = [build_tools, compiler]
    if purpose == "tests":
        parts.append(chromium)
    if platform.system() == "Linux":
        parts.append(qemu)
        if platform.machine() != "aarch64":
            parts.append(cross_compiler)
    cache_folder().mkdir(parents=True, exist_ok=True)
    return tuple(part(say, check) for part in parts)


def tools_folder() -> Path:
    """Where fetched tools are unpacked."""
    return cache_folder() / "tools"
