"""A phone's heat: what Android says about throttling, and the temperatures that it shows.

Only Android's thermal status decides whether to wait. Kernel zones are named freely: one called
``soc`` may be the battery's state of charge. So they are recorded, and nothing more.
"""

from __future__ import annotations

import re
import time
import warnings
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from pytest_sme2.errors import Sme2Warning
from pytest_sme2.targets.phone.adb import AdbDevice

# One process for all zones; phones have more than a hundred.
_ZONES = "/sys/class/thermal/thermal_zone*"
_READ = f"dumpsys thermalservice; echo ==zones; grep -Hs . {_ZONES}/type {_ZONES}/temp; true"
# android.os.Temperature: of what its temperatures are. Others are batteries, modems, percentages.
_CPU, _SKIN = 0, 3
# The HAL's temperatures of this moment come after a title; those before it may be old.
_CURRENT = "Current temperatures from HAL:"


@dataclass(frozen=True)
class Heat:
    """What the phone reports."""

    status: int | None
    """Android's thermal status: 0 none, 1 light, 2 moderate, 3 severe and up; None unknown."""
    celsius: float | None = None
    """The hottest CPU or skin temperature that Android names; None if it names none."""
    zones: Mapping[str, float] = field(default_factory=dict)
    """The kernel's zones, as they are: not all of them are temperatures."""

    @property
    def throttled(self) -> bool:
        return bool(self.status)

    def cool(self, limit: float | None) -> bool:
        """Whether to measure; a ``limit`` in degrees is one that the user asked for."""
        if self.throttled:
            return False
        return limit is None or self.celsius is None or self.celsius <= limit

    def __str__(self) -> str:
        status = "unknown" if self.status is None else str(self.status)
        degrees = "" if self.celsius is None else f", {self.celsius:.1f} °C"
        return f"thermal status {status}{degrees}"


def parse_thermal_statuses(text: str) -> tuple[int, ...]:
    """From the output of one or several ``dumpsys thermalservice``."""
    return tuple(
        int(word) for word in re.findall(r"^Thermal Status: (\d{1,3})", text, re.MULTILINE)
    )


def parse_temperature(text: str) -> float | None:
    """The hottest CPU or skin of one ``dumpsys thermalservice``."""
    found = re.findall(r"Temperature\{mValue=(-?\d+(?:\.\d+)?), mType=(\d{1,3}),", _current(text))
    degrees = [float(value) for value, kind in found if int(kind) in (_CPU, _SKIN)]
    return max((value for value in degrees if 0 < value < 150), default=None)


def _current(text: str) -> str:
    """The part with this moment's values, without the thresholds that follow."""
    _, title, after = text.partition(_CURRENT)
    return re.split(r"^\S", after, maxsplit=1, flags=re.MULTILINE)[0] if title else text


def parse_zones(text: str) -> dict[str, float]:
    """Zones by name, from lines of ``…/thermal_zone7/temp:41200``; two of a name get numbers."""
    read: dict[str, dict[str, str]] = {}
    for line in text.splitlines():
        match = re.fullmatch(r".*/thermal_zone(\d{1,5})/(type|temp):(.*)", line)
        if match:
            read.setdefault(match[1], {})[match[2]] = match[3].strip()
    zones: dict[str, float] = {}
    for number in sorted(read, key=int):
        kind, value = read[number].get("type", ""), read[number].get("temp", "")
        if kind and re.fullmatch(r"-?\d{1,9}", value):
            name = kind if kind not in zones else f"{kind} ({number})"
            # Most kernels report thousandths of a degree, some report degrees.
            zones[name] = int(value) / 1000 if abs(int(value)) >= 1000 else float(value)
    return zones


class Thermometer:
    """Reads the heat of one phone, and waits for it to cool down."""

    def __init__(
        self,
        device: AdbDevice,
        *,
        progress: Callable[[str], None] | None = None,
        event: Callable[[str], None] = lambda _: None,
    ) -> None:
        """``event`` gets what belongs into the report."""
        self.device = device
        self.progress = progress
        self.event = event
        self._given_up = False

    def read(self) -> Heat:
        service, _, zones = self.device.shell(_READ).text.partition("==zones\n")
        status = max(parse_thermal_statuses(service), default=None)
        return Heat(status, parse_temperature(service), parse_zones(zones))

    def wait_until_cool(
        self, *, celsius: float | None, seconds: float, interval: float = 2.0
    ) -> Heat:
        """Wait for the phone to cool down, and warn if it does not.

        A phone that stayed warm is not waited for again until it was cool once.
        """
        deadline = time.monotonic() + seconds
        while not (heat := self.read()).cool(celsius):
            left = deadline - time.monotonic()
            if left <= 0 or self._given_up:
                self._give_up(heat, seconds)
                return heat
            if self.progress is not None:
                self.progress(f"{self.device.serial}: waiting to cool down ({heat}), {left:.0f} s")
            time.sleep(min(interval, left))
        self._given_up = False
        return heat

    def _give_up(self, heat: Heat, seconds: float) -> None:
        if self._given_up:
            return
        self._given_up = True
        said = f"was still warm after a wait of {seconds:g} s ({heat})"
        self.event(said)
        text = (
            f"{self.device.serial} {said}. It is measured all the same, and throttled pairs are "
            "repeated. Let it cool down out of its case, away from a fast charger."
        )
        warnings.warn(Sme2Warning(text), stacklevel=3)
