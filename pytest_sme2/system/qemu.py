"""Finds a QEMU that executes SME2, and defines the CPUs that it emulates."""

from __future__ import annotations

import re
import shutil
import sys
from dataclasses import dataclass, replace
from pathlib import Path

from packaging.version import Version

from pytest_sme2.errors import TargetError, UsageError
from pytest_sme2.results.run import Arm
from pytest_sme2.system.cache import find_cache, trusted
from pytest_sme2.system.processes import ANSWER_SECONDS, run_process

VECTOR_BITS = (128, 256, 512)


@dataclass(frozen=True)
class EmulatedCpu:
    """One CPU that QEMU is asked to be; docs/measuring.md names the sources."""

    name: str
    features: tuple[str, ...] = ()
    """Beyond SME2, as QEMU's properties of its CPU ``max``; the same with SME2 on and off."""
    vector_bits: int = 512
    """Length of a streaming vector. Today's SME2 chips have 512 bits; QEMU's own choice is 256."""
    sme1: bool = False
    """Whether it is a chip without SME2. QEMU cannot leave SME2 out: the runner hides it."""

    def model(self, arm: Arm) -> str:
        """The value of QEMU's ``-cpu``.

        Without FEAT_SME_FA64, as on every real one: with it, NEON code in streaming mode would run
        here and end with SIGILL there.
        """
        sme = ("sme=off",) if arm is Arm.OFF else (f"sme{self.vector_bits}=on", "sme_fa64=off")
        return ",".join(("max", *sme, *self.features))

    def __str__(self) -> str:
        return self.name if self.vector_bits == 512 else f"{self.name}:{self.vector_bits}"


# The one place that says what is emulated; the first is the default.
CPUS = (
    EmulatedCpu("strict"),
    EmulatedCpu("apple-m4", ("sve=off",)),
    EmulatedCpu("arm-c1", ("sve128=on",)),
    EmulatedCpu("sme1", sme1=True),
)
DEFAULT_CPU = CPUS[0]


def parse_cpu(value: str) -> EmulatedCpu:
    """``NAME`` or ``NAME:BITS``, as in ``arm-c1`` or ``strict:256``."""
    name, colon, bits = value.strip().partition(":")
    named = {cpu.name: cpu for cpu in CPUS}
    if name not in named:
        raise UsageError(
            f"{value!r} is not an emulated CPU. Choose one of: {', '.join(named)}; "
            "NAME:BITS chooses its vector length, as in strict:256."
        )
    if not colon:
        return named[name]
    if bits not in map(str, VECTOR_BITS):
        raise UsageError(
            f"{bits!r} is not a vector length. Choose one of: {', '.join(map(str, VECTOR_BITS))}."
        )
    return replace(named[name], vector_bits=int(bits))


# The first version that executes SME2.
LEAST_VERSION = Version("10.1")
REMEDY = (
    f"Run `sme2 provision`, or install QEMU {LEAST_VERSION} or newer (Debian: qemu-user from "
    "forky or later), and put it on PATH."
)

NOT_ON_MACOS = (
    "QEMU's user mode does not exist on macOS. Use a Mac with SME2 (M4 or newer), a phone, or "
    "Debian in a virtual machine or container."
)

_NAMES = ("qemu-aarch64", "qemu-aarch64-static")


def checked_cpu(value: str) -> str:
    """The name as it was given, once it is known to be one."""
    parse_cpu(value)
    return value


@dataclass(frozen=True)
class Qemu:
    """A QEMU in user mode for aarch64 that is new enough."""

    path: Path
    version: str


def find_qemu(*, cache: Path | None = None) -> Qemu:
    """The emulator on PATH, else the cached one; TargetError if none is new enough."""
    cache = cache or find_cache()
    found = [Path(path) for path in map(shutil.which, _NAMES) if path]
    kept = cache / "tools" / "qemu" / "usr" / "bin" / "qemu-aarch64"
    if kept.exists():
        found.append(trusted(kept, cache))
    problems = []
    for path in found:
        try:
            return check_qemu(path)
        except TargetError as error:
            problems.append(error)
    if problems:
        raise problems[0]
    if sys.platform == "darwin":
        raise TargetError(NOT_ON_MACOS)
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
