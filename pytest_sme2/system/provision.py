"""Finds or fetches the tools this platform needs; says what it did and what is missing.

Everything that can live in the cache folder goes there and needs no root. Only compilers are
installed system-wide, and only through the system's own package manager.
"""

from __future__ import annotations

import os
import platform
import re
import shutil
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from packaging.version import Version

from pytest_sme2.errors import BuildError, Sme2Error, TargetError
from pytest_sme2.system.cache import cache_folder
from pytest_sme2.system.debian_packages import (
    MAIN,
    Archive,
    Package,
    reason_of,
    system_archives,
    unpack_packages,
    with_suites,
)
from pytest_sme2.system.locks import locked
from pytest_sme2.system.processes import run_process
from pytest_sme2.system.qemu import LEAST_VERSION, NOT_ON_MACOS, Qemu, find_qemu
from pytest_sme2.system.terminal import Say
from pytest_sme2.system.toolchain import compiler_problem, find_cmake, find_ninja


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
    warning: str = ""
    """What to know about one that was found."""


COMPILER, CROSS, QEMU, BROWSER = "C++ compiler", "Arm cross compiler", "QEMU", "browser"
# The command of each family of systems, and what it calls the tools.
_COMMANDS = {"debian": "apt-get install", "fedora": "dnf install", "arch": "pacman -S"}
_NAMES = {
    ("debian", COMPILER): "g++",
    ("debian", CROSS): "g++-aarch64-linux-gnu",
    ("debian", BROWSER): "chromium",
    ("fedora", COMPILER): "gcc-c++",
    ("fedora", QEMU): "qemu-user",
    ("fedora", BROWSER): "chromium",
    ("arch", COMPILER): "gcc",
    ("arch", CROSS): "aarch64-linux-gnu-gcc",
    ("arch", QEMU): "qemu-user",
    ("arch", BROWSER): "chromium",
}
_ELSEWHERE = {
    ("fedora", CROSS): (
        "Fedora's cross compiler has no C library. Use a container of Debian or Ubuntu, "
        "or an Arm machine."
    ),
    ("darwin", COMPILER): "Run: xcode-select --install",
    ("darwin", QEMU): NOT_ON_MACOS,
    ("darwin", BROWSER): "Run: brew install --cask chromium",
}


def install_hint(tool: str) -> str:
    """What to type on this system to get a tool; which tool, where the system is not known."""
    for family in _families():
        if (family, tool) in _ELSEWHERE:
            return _ELSEWHERE[family, tool]
        if (family, tool) in _NAMES:
            return f"Run: sudo {_COMMANDS[family]} {_NAMES[family, tool]}"
    return f"Install the {tool} with this system's package manager."


def _families() -> list[str]:
    """This system and those that it is like, the nearest first."""
    if platform.system() == "Darwin":
        return ["darwin"]
    try:
        release = platform.freedesktop_os_release()
    except OSError:
        return []
    return [release.get("ID", ""), *release.get("ID_LIKE", "").split()]


def _sudo() -> list[str] | None:
    """What to put before a command that needs root; None where root is not to be had."""
    if os.geteuid() == 0:
        return []
    if shutil.which("sudo") is None:
        return None
    asked = run_process(["sudo", "-n", "true"], timeout_seconds=30)
    return ["sudo", "-n"] if asked.returncode == 0 else None


def apt_install(package: str, say: Say) -> None:
    """Install a package system-wide, or raise with the line the user can type."""
    line = f"apt-get install {package}"
    prefix = _sudo()
    if prefix is None:
        raise BuildError(f"Installing needs root. Run: sudo {line}")
    say(f"installing {package} with apt-get")
    environment = {**os.environ, "DEBIAN_FRONTEND": "noninteractive", "LC_ALL": "C"}
    # An archive of somebody else that cannot be reached does not matter if the packages come.
    said = ""
    for arguments in (["update", "-qq"], ["install", "-y", "-qq", package]):
        done = run_process(
            [*prefix, "apt-get", *arguments], timeout_seconds=900, environment=environment
        )
        said += done.stderr or done.stdout
    if done.returncode != 0:
        raise BuildError(f"`{line}` failed: {reason_of(said)}")


def _program(
    name: str, programs: tuple[str, ...], tool: str, cost: str, say: Say, check: bool
) -> Provided:
    """A program on PATH; installed by apt where it is missing and that is possible."""

    def path() -> str | None:
        return next(filter(None, map(shutil.which, programs)), None)

    if found := path():
        return Provided(name, found)
    remedy = install_hint(tool)
    if not check and shutil.which("apt-get") is not None:
        try:
            apt_install(_NAMES["debian", tool], say)
        except Sme2Error as error:
            remedy = str(error)
        if found := path():
            return Provided(name, found, "installed")
    return Provided(name, None, "missing", cost, remedy)


def compiler(say: Say, check: bool) -> Provided:
    cost = "no runner can be built: nothing can be run on this machine"
    found = _program("C++ compiler", ("c++", "g++", "clang++"), COMPILER, cost, say, check)
    problem = compiler_problem(found.found) if found.found is not None else ""
    return Provided(found.name, None, "missing", cost, problem) if problem else found


def cross_compiler(say: Say, check: bool) -> Provided:
    """On Linux machines that are not Arm: what builds the runner the emulator executes."""
    cost = "no runner for the SME2 emulator: --device=emulated cannot be used"
    return _program("Arm C++ compiler", ("aarch64-linux-gnu-g++",), CROSS, cost, say, check)


# The suites whose QEMU executes SME2, newest release first, and the component that has it.
_QEMU_SUITES = {
    "ubuntu": (("resolute", "questing"), "universe"),
    "debian": (("forky", "sid"), MAIN),
}


def qemu(say: Say, check: bool) -> Provided:
    """A QEMU that executes SME2: on PATH, in the cache, or fetched into the cache."""
    name = "QEMU with SME2"
    cost = "no SME2 on a machine without it: --device=emulated cannot be used"
    try:
        return _described(name, find_qemu())
    except Sme2Error as error:
        problem = str(error)
    archives = system_archives()
    if not archives:
        problem = f"{problem} {install_hint(QEMU)}"
    if check or not archives:
        return Provided(name, None, "missing", cost, problem)
    newer = [
        with_suites(archives, [suite], [component])
        for family in _families()
        for suites, component in [_QEMU_SUITES.get(family, ((), MAIN))]
        for suite in suites
    ]
    for wanted in (*newer, archives):
        try:
            _fetch_qemu(wanted, say)
            return _described(name, find_qemu(), "installed")
        except TargetError as error:
            problem = str(error)
            say(problem)
    return Provided(name, None, "missing", cost, problem)


def _described(name: str, emulator: Qemu, action: str = "found") -> Provided:
    found = f"{emulator.path} ({emulator.version})"
    return Provided(name, found, action, warning=emulator.warning)


def _fetch_qemu(archives: Sequence[Archive], say: Say) -> None:
    suites = " ".join(dict.fromkeys(suite for archive in archives for suite in archive.suites))
    say(f"asking this machine's archives for {suites}")

    def approve(offered: Sequence[Package]) -> None:
        for package in offered:
            numbers = re.match(r"\d+(?:\.\d+)+", package.version)
            if numbers is None or Version(numbers[0]) < LEAST_VERSION:
                raise TargetError(
                    f"The archives of this machine offer {package.file_name}, which is too old "
                    f"for SME2: it came with QEMU {LEAST_VERSION}."
                )
            size = f"({package.bytes / 1e6:.1f} MB to download)"
            say(f"fetching QEMU {package.version} into the cache {size}")

    folder = cache_folder() / "tools" / "qemu"
    with locked(Path(f"{folder}.lock"), "fetching QEMU", say=say):
        unpack_packages(["qemu-user"], archives, folder, approve)


def build_tools(say: Say, check: bool) -> Provided:
    """CMake and Ninja, which come with this package from PyPI."""
    try:
        cmake, ninja = find_cmake(), find_ninja()
    except Sme2Error as error:
        return Provided("CMake and Ninja", None, "missing", "no runner can be built", str(error))
    return Provided("CMake and Ninja", f"{cmake}, {ninja}")


def chromium(say: Say, check: bool) -> Provided:
    """The browser in which the tests look at the HTML report; nothing else needs one."""
    programs = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable")
    cost = "the HTML report is not tested in a browser"
    return _program("Chromium", programs, BROWSER, cost, say, check)


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
    return tuple(part(say, check) for part in parts)
