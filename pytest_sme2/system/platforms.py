"""The platforms of runners, and the platform of this machine."""

from __future__ import annotations

import platform
import re
import sys
from dataclasses import dataclass
from pathlib import Path

from pytest_sme2.errors import TargetError
from pytest_sme2.system.processes import answer_of

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
    machine = platform.machine().lower()
    try:
        return _MACHINES[(sys.platform, machine)]
    except KeyError:
        if sys.platform == "darwin" and sysctl("sysctl.proc_translated") == "1":
            raise TargetError(
                "This Python is an Intel one, which macOS translates (Rosetta). The CPU is Apple "
                "silicon: use a Python for arm64, for example from python.org or `brew install "
                "python` in a terminal that is not translated."
            ) from None
        raise TargetError(
            f"ExecuTorch programs cannot run on this machine ({sys.platform}, {machine}). "
            "Use Linux on aarch64 or x86_64, or macOS on Apple silicon."
        ) from None


SYSCTL = "/usr/sbin/sysctl"
PMSET = "/usr/bin/pmset"
NOTIFYUTIL = "/usr/bin/notifyutil"
CAFFEINATE = "/usr/bin/caffeinate"

UNKNOWN = "unknown"
# The levels of OSThermalNotification.h. Above the first the system slows the chip down.
_PRESSURE = ("nominal", "moderate", "heavy", "trapping", "sleeping")
_POWER_MODES = {"0": "normal", "1": "low", "2": "high"}


def sysctl(name: str) -> str:
    """One value; ``unknown`` where the system has none of that name."""
    return answer_of([SYSCTL, "-n", name]).strip() or UNKNOWN


def macos_version() -> str:
    """As ``26.1``. Python's own answer depends on how that Python was built: 16 or 26."""
    return sysctl("kern.osproductversion")


def is_virtual_machine() -> bool:
    return sysctl("kern.hv_vmm_present") == "1"


def vector_bits() -> int | None:
    """The longest streaming vector of SME; None where there is none."""
    text = sysctl("hw.optional.arm.sme_max_svl_b")
    return 8 * int(text) if text.isdigit() and int(text) > 0 else None


@dataclass(frozen=True)
class Power:
    """What a Mac may be slower for."""

    source: str
    """``AC power``, ``battery`` or ``unknown``."""
    mode: str
    """``normal``, ``low``, ``high`` or ``unknown``; a Mac without a battery may have one too."""
    pressure: str
    """How much the system slows the chip down against heat: ``nominal`` is not at all."""

    @property
    def warnings(self) -> tuple[str, ...]:
        """What to change before times are believed."""
        heat = f"thermal pressure is {self.pressure}: the chip is slowed down"
        known = {
            "low power mode is on: times are not those of normal use": self.mode == "low",
            "it runs on battery: plug it in": self.source == "battery",
            heat: slows_down(self.pressure),
        }
        return tuple(text for text, holds in known.items() if holds)

    def facts(self) -> dict[str, str]:
        return {"power": self.source, "power mode": self.mode, "thermal pressure": self.pressure}


def read_power() -> Power:
    return Power(
        parse_source(answer_of([PMSET, "-g", "batt"])),
        parse_mode(answer_of([PMSET, "-g"])),
        read_pressure(),
    )


def slows_down(pressure: str) -> bool:
    return pressure not in (_PRESSURE[0], UNKNOWN)


def read_pressure() -> str:
    return parse_pressure(answer_of([NOTIFYUTIL, "-g", "com.apple.system.thermalpressurelevel"]))


def parse_source(text: str) -> str:
    match = re.search(r"Now drawing from '(.+?)'", text)
    known = {"AC Power": "AC power", "Battery Power": "battery"}
    return known.get(match[1], match[1]) if match else UNKNOWN


def parse_mode(text: str) -> str:
    """``lowpowermode`` is 0 or 1; where a Mac also has a high one it is called ``powermode``."""
    match = re.search(r"^\s*(?:low)?powermode\s+(\d)\s*$", text, re.MULTILINE)
    return _POWER_MODES.get(match[1], UNKNOWN) if match else UNKNOWN


def parse_pressure(text: str) -> str:
    match = re.search(r"thermalpressurelevel\s+(\d+)\s*$", text.strip())
    if match is None:
        return UNKNOWN
    level = int(match[1])
    return _PRESSURE[level] if level < len(_PRESSURE) else f"level {level}"
