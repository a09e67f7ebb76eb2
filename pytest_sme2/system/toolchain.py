"""Finds CMake, Ninja and a compiler."""

from __future__ import annotations

import importlib
import os
import re
import shutil
from dataclasses import dataclass
from pathlib import Path

from packaging.version import Version

from pytest_sme2.errors import BuildError
from pytest_sme2.system.platforms import LINUX_AARCH64, MACOS_ARM64, host_platform
from pytest_sme2.system.processes import ANSWER_SECONDS, answer_of, run_process

CROSS_COMPILER = "aarch64-linux-gnu-g++"
# Older versions write $ORIGIN wrongly into the binary's search path.
LEAST_CMAKE = Version("3.28")


@dataclass(frozen=True)
class Compiler:
    cxx: str
    version: str
    """The first line of its ``--version``."""
    cross: bool


def find_cmake() -> str:
    """A CMake that is new enough: from the Python package, else from PATH."""
    candidates = _from_package("cmake", "CMAKE_BIN_DIR", "cmake"), shutil.which("cmake")
    seen = []
    for candidate in filter(None, candidates):
        match = re.search(r"cmake version (\d+(?:\.\d+)+)", answer_of([candidate, "--version"]))
        if match and Version(match[1]) >= LEAST_CMAKE:
            return candidate
        seen.append(f"{candidate} is {match[1] if match else 'unknown'}")
    raise BuildError(
        f"Building the runner needs CMake {LEAST_CMAKE} or newer; "
        f"{'; '.join(seen) or 'none was found'}. "
        "Install it with: pip install 'pytest-sme2[build]'"
    )


def find_ninja() -> str:
    found = _from_package("ninja", "BIN_DIR", "ninja") or shutil.which("ninja")
    if found is None:
        raise BuildError(
            "Building the runner needs Ninja, which was not found. "
            "Install it with: pip install 'pytest-sme2[build]'"
        )
    return found


def _from_package(package: str, attribute: str, program: str) -> str | None:
    try:
        module = importlib.import_module(package)
    except ImportError:
        return None
    # A folder of that name in the working directory can be imported too, but has no such folder.
    path = Path(getattr(module, attribute, None) or "") / program
    return str(path) if path.is_absolute() and path.is_file() else None


def find_compiler(platform: str) -> Compiler:
    """The compiler that builds for ``platform`` here, or an error that says what to install."""
    host = host_platform()
    cross = platform != host
    if not cross:
        names = filter(None, (os.environ.get("CXX"), "c++", "g++", "clang++"))
        cxx = next(filter(None, map(shutil.which, names)), None)
        remedy = "xcode-select --install" if host == MACOS_ARM64 else "apt-get install g++"
    elif platform == LINUX_AARCH64 and host.startswith("linux-"):
        cxx = shutil.which(CROSS_COMPILER)
        remedy = "apt-get install g++-aarch64-linux-gnu"
    else:
        raise BuildError(
            f"A runner for {platform} cannot be built from a wheel on this machine ({host})."
        )
    if not cxx:
        raise BuildError(
            f"Building the runner for {platform} needs a C++17 compiler, but none "
            f"was found. Install one, for example with: {remedy}"
        )
    problem = compiler_problem(cxx)
    if problem:
        raise BuildError(f"Building the runner for {platform} needs a C++17 compiler. {problem}")
    version = answer_of([cxx, "--version"]).partition("\n")[0]
    return Compiler(cxx=cxx, version=version, cross=cross)


def compiler_problem(cxx: str) -> str:
    """Why a compiler that is there does not work, in its own words, and what to do about that.

    On a Mac ``/usr/bin/c++`` is always there; without the command line tools, or before Xcode's
    licence was accepted, it only says so.
    """
    try:
        finished = run_process([cxx, "--version"], timeout_seconds=ANSWER_SECONDS)
    except OSError as error:
        said = str(error)
    else:
        if finished.returncode == 0 and finished.stdout.strip():
            return ""
        lines = [line.strip() for line in finished.stderr.splitlines() if line.strip()]
        said = " ".join(lines[:3]) or f"it ended with exit code {finished.returncode}"
    remedy = "Reinstall it, or name another with CXX"
    if re.search("licen[cs]e", said, re.IGNORECASE):
        remedy = "Run: sudo xcodebuild -license accept"
    elif "xcode-select" in said or "xcrun" in said:
        remedy = "Run: xcode-select --install"
    return f"{cxx} is there but does not work. It says: {said.rstrip('.')}. {remedy}"
