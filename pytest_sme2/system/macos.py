"""What macOS tells about itself: chip, version, power and heat. An answer may be missing."""

from __future__ import annotations

import re
from dataclasses import dataclass

from pytest_sme2.system.processes import ANSWER_SECONDS, run_process

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
    return _answer([SYSCTL, "-n", name]).strip() or UNKNOWN


def macos_version() -> str:
    """As ``26.1``. Python's own answer depends on how that Python was built: 16 or 26."""
    return sysctl("kern.osproductversion")


def is_translated() -> bool:
    """Whether this process is an Intel one that Rosetta translates."""
    return sysctl("sysctl.proc_translated") == "1"


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
        found = []
        if self.mode == "low":
            found.append("low power mode is on: times are not those of normal use")
        if self.source == "battery":
            found.append("it runs on battery: plug it in")
        if slows_down(self.pressure):
            found.append(f"thermal pressure is {self.pressure}: the chip is slowed down")
        return tuple(found)

    def facts(self) -> dict[str, str]:
        return {"power": self.source, "power mode": self.mode, "thermal pressure": self.pressure}


def read_power() -> Power:
    return Power(
        parse_source(_answer([PMSET, "-g", "batt"])),
        parse_mode(_answer([PMSET, "-g"])),
        read_pressure(),
    )


def slows_down(pressure: str) -> bool:
    return pressure not in (_PRESSURE[0], UNKNOWN)


def read_pressure() -> str:
    return parse_pressure(_answer([NOTIFYUTIL, "-g", "com.apple.system.thermalpressurelevel"]))


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


def _answer(arguments: list[str]) -> str:
    try:
        finished = run_process(arguments, timeout_seconds=ANSWER_SECONDS)
    except OSError:
        return ""
    return finished.stdout if finished.returncode == 0 else ""
