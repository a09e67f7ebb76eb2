"""A phone's heat: what Android says about throttling, and the temperatures that it shows.

Only Android's thermal status decides whether to wait. Kernel zones are named freely: one called
``soc`` may be the battery's state of charge. So they are recorded, and nothing more.
"""

from __future__ import annotations

import time
import warnings
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from pytest_sme2.errors import Sme2Warning
from pytest_sme2.targets.phone.adb import AdbDevice
from pytest_sme2.targets.phone.answers import (
    parse_parts,
    parse_temperature,
    parse_thermal_statuses,
    parse_zones,
)

# One process for all zones; phones have more than a hundred.
_ZONES = "/sys/class/thermal/thermal_zone*"
_READ = f"dumpsys thermalservice; echo ==zones; grep -Hs . {_ZONES}/type {_ZONES}/temp; true"


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
        service, zones = parse_parts(self.device.shell(_READ).text, 2, "==zones\n")
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
