"""What may change the speed of this machine from one day to the next, as the system shows it.

Nothing here is needed to measure; it helps to explain why the same program is slower than it was.
"""

from __future__ import annotations

import platform
from pathlib import Path

SYSTEM = Path("/sys")
VECTOR_LENGTH = Path("/proc/sys/abi/sme_default_vector_length")


def local_conditions(system: Path = SYSTEM) -> dict[str, str]:
    """Kernel, governor, clock and temperature; what the system does not show is left out."""
    frequency = system / "devices" / "system" / "cpu" / "cpu0" / "cpufreq"
    found = {
        "kernel": f"{platform.system()} {platform.release()}",
        "governor": _read(frequency / "scaling_governor"),
        "clock": _scaled(_read(frequency / "scaling_cur_freq"), 1e3, "MHz"),
        "temperature": _temperature(system),
    }
    return {name: value for name, value in found.items() if value}


def sme_vector_bits(path: Path = VECTOR_LENGTH) -> int | None:
    """The streaming vector length that Linux gives a new process; None where there is no SME."""
    text = _read(path)
    return 8 * int(text) if text.isdigit() and int(text) > 0 else None


def _temperature(system: Path) -> str:
    """Of the hottest zone that is named after the CPU."""
    zones = sorted((system / "class" / "thermal").glob("thermal_zone*"))
    values = [_read(zone / "temp") for zone in zones if "cpu" in _read(zone / "type").lower()]
    known = [int(value) for value in values if value.isdigit()]
    return _scaled(str(max(known)), 1e3, "C") if known else ""


def _scaled(text: str, unit: float, name: str) -> str:
    return f"{int(text) / unit:.0f} {name}" if text.isdigit() else ""


def _read(path: Path) -> str:
    try:
        return path.read_text("utf-8").strip()
    except (OSError, UnicodeDecodeError):
        return ""
