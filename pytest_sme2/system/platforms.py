"""The platforms of runners, and the platform of this machine."""

from __future__ import annotations

import platform
import sys
from pathlib import Path

from pytest_sme2.errors import TargetError
from pytest_sme2.system.macos import is_translated

LINUX_AARCH64 = "linux-aarch64"
LINUX_X86_64 = "linux-x86_64"
MACOS_ARM64 = "macos-arm64"
ANDROID_ARM64 = "android-arm64"
PLATFORMS = (LINUX_AARCH64, LINUX_X86_64, MACOS_ARM64, ANDROID_ARM64)

_MACHINES = {
    ("linux", "aarch64"): LINUX_AARCH64,
    ("linux", "arm64"): LINUX_AARCH64,
    ("linux", "x86_64"): LINUX_X86_64,
    ("linux", "amd64"): LINUX_X86_64,
    ("darwin", "arm64"): MACOS_ARM64,
}

_KERNEL = Path("/proc/sys/kernel/arch")


def emulated_on() -> str | None:
    """The architecture of the real machine, where an emulator runs all programs of this Linux.

    Containers for another architecture work like that. Kernels before 6.1 do not tell.
    """
    try:
        kernel = _KERNEL.read_text(encoding="ascii").strip()
    except (OSError, ValueError):
        return None
    return None if kernel == platform.machine() else kernel


def host_platform() -> str:
    """The platform of this machine."""
    machine = platform.machine().lower()
    try:
        return _MACHINES[(sys.platform, machine)]
    except KeyError:
        if sys.platform == "darwin" and is_translated():
            raise TargetError(
                "This Python is an Intel one, which macOS translates (Rosetta). The CPU is Apple "
                "silicon: use a Python for arm64, for example from python.org or `brew install "
                "python` in a terminal that is not translated."
            ) from None
        raise TargetError(
            f"ExecuTorch programs cannot run on this machine ({sys.platform}, {machine}). "
            "Use Linux on aarch64 or x86_64, or macOS on Apple silicon."
        ) from None
