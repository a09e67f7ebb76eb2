"""Finds a QEMU that executes SME2, and defines the CPUs that it emulates."""

from __future__ import annotations

import re
import shutil
from dataclasses import dataclass
from pathlib import Path

from packaging.version import Version

from pytest_sme2.errors import TargetError
from pytest_sme2.results import Arm
from pytest_sme2.system.cache import cache_folder
from pytest_sme2.system.processes import ANSWER_SECONDS, run_process

# The CPUs that are emulated. Today's SME2 chips have a streaming vector of 512 bits; QEMU's default
# is 256.
CPUS = {Arm.ON: "max,sme512=on", Arm.OFF: "max,sme=off"}

# The first version that executes SME2.
LEAST_VERSION = Version("10.1")
# The versions that this project's own tests ran with: its kernel log and CPUs can change.
TESTED_VERSIONS = ("11.1",)
REMEDY = (
    f"Run `sme2 provision`, or install QEMU {LEAST_VERSION} or newer (Debian: qemu-user from "
    "forky or later), or name one with --qemu."
)

_NAMES = ("qemu-aarch64", "qemu-aarch64-static")


@dataclass(frozen=True)
class Qemu:
    """A QEMU in user mode for aarch64 that is new enough."""

    path: Path
    version: str

    @property
    def warning(self) -> str:
        """A warning about an untested version; empty for a tested one."""
        if any(f"{self.version}.".startswith(f"{tested}.") for tested in TESTED_VERSIONS):
            return ""
        return (
            f"QEMU {self.version} was not tested with this project (tested: "
            f"{', '.join(TESTED_VERSIONS)}). It may work; please report problems."
        )


def find_qemu(chosen: Path | None = None, *, cache: Path | None = None) -> Qemu:
    """The chosen emulator, else one on PATH, else the one in the cache.

    Raises TargetError if there is none, or only ones that are too old.
    """
    if chosen is not None:
        return check_qemu(chosen)
    found = [Path(path) for path in map(shutil.which, _NAMES) if path]
    kept = (cache or cache_folder()) / "tools" / "qemu" / "usr" / "bin" / "qemu-aarch64"
    problems = []
    for path in [*found, *([kept] if kept.exists() else [])]:
        try:
            return check_qemu(path)
        except TargetError as error:
            problems.append(str(error))
    if problems:
        raise TargetError(problems[0])
    raise TargetError(f"No emulator was found: neither on PATH nor at {kept}. {REMEDY}")


def check_qemu(path: Path) -> Qemu:
    """The emulator at ``path``, or an error that says why it cannot be used."""
    try:
        finished = run_process([str(path), "--version"], timeout_seconds=ANSWER_SECONDS)
    except OSError as error:
        raise TargetError(
            f"The emulator {path} cannot be started: {error.strerror}. {REMEDY}"
        ) from error
    match = re.search(r"qemu-aarch64\S* version (\d+(?:\.\d+)+)", finished.stdout)
    if finished.returncode != 0 or match is None:
        raise TargetError(f"{path} is not QEMU in user mode for aarch64. {REMEDY}")
    if Version(match[1]) < LEAST_VERSION:
        raise TargetError(
            f"The emulator {path} is QEMU {match[1]}, which is too old for SME2. {REMEDY}"
        )
    return Qemu(path=path, version=match[1])
