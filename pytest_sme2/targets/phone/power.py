"""A phone's heat, and what keeps it awake. Every change is restored.

Before the first change, what was there is written to a note on the phone. The note is removed when
that is restored. A note that is found belongs to an interrupted run, and is restored first. What a
phone does not take back is reported with its old value, and the note goes: it must not keep the
phone from every later run.
"""

from __future__ import annotations

import json
import time
import warnings
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from pytest_sme2.errors import Sme2Warning, TargetError
from pytest_sme2.system.files import json_value
from pytest_sme2.targets.phone.adb import AdbDevice
from pytest_sme2.targets.phone.answers import (
    parse_battery,
    parse_governors,
    parse_parts,
    parse_screen,
    parse_temperature,
    parse_thermal_status,
)

THROTTLES = 2
"""From this thermal status on (moderate) a phone is slower. At 1 its skin is warm, no more."""
CRITICAL = 4
"""From this one on, it has nothing left to slow down."""


@dataclass(frozen=True)
class Heat:
    """What the phone reports."""

    status: int | None
    """Android's thermal status: 0 none, 1 light, 2 moderate, 3 severe and up; None unknown."""
    celsius: float | None = None
    """The hottest CPU or skin temperature that Android names; None if it names none."""

    @property
    def cool(self) -> bool:
        """Whether to measure."""
        return (self.status or 0) < THROTTLES

    def __str__(self) -> str:
        status = "unknown" if self.status is None else str(self.status)
        degrees = "" if self.celsius is None else f", {self.celsius:.1f} °C"
        return f"thermal status {status}{degrees}"


class Thermometer:
    """Reads the heat of one phone, and waits for it to cool down."""

    def __init__(
        self,
        device: AdbDevice,
        progress: Callable[[str], None] | None,
        event: Callable[[str], None],
    ) -> None:
        """``event`` gets what belongs into the report."""
        self.device, self.progress, self.event = device, progress, event
        self._given_up = self._silent = False
        self.waited_seconds = 0.0
        """For all waits so far."""

    def read(self) -> Heat:
        service = self.device.shell("dumpsys -t 2 thermalservice").text
        status = parse_thermal_status(service)
        if status is None and not self._silent:
            self._silent = True
            self.event("does not tell its thermal status: only its clock caps show that it is slow")
        return Heat(status, parse_temperature(service))

    def wait_until_cool(self, seconds: float) -> None:
        """Wait for the phone to cool down, and warn if it does not.

        A phone that stayed warm is not waited for again until it was cool once.
        """
        begun = time.monotonic()
        try:
            self._wait(seconds, begun + seconds)
        finally:
            self.waited_seconds += time.monotonic() - begun

    def _wait(self, seconds: float, deadline: float) -> None:
        while not (heat := self.read()).cool:
            left = deadline - time.monotonic()
            if self._given_up:
                return
            if left <= 0:
                self._given_up = True
                said = f"was still warm after a wait of {seconds:g} s ({heat})"
                self.event(said)
                text = (
                    f"{self.device.serial} {said}. It is measured all the same, and throttled "
                    "pairs are repeated. Let it cool down out of its case, away from a fast "
                    "charger."
                )
                warnings.warn(Sme2Warning(text), stacklevel=2)
                return
            if self.progress is not None:
                self.progress(f"{self.device.serial}: waiting to cool down ({heat}), {left:.0f} s")
            time.sleep(min(2.0, left))
        self._given_up = False


# Beside the folder that gets cleaned, so that cleaning does not remove it.
NOTE = "/data/local/tmp/pytest-sme2-restore.json"

SETTING = "stay_on_while_plugged_in"
_UNSET = "null"
"""What Android says of a setting without a value, which is off."""
# svc writes that setting. With its full path, because a shell may have another command called svc.
_STAY_ON = ("/system/bin/svc", "power", "stayon", "true")
# Phones that refuse ``settings put`` may let svc change it, which knows fewer values.
_STAY_ON_WORDS = {_UNSET: "false", "0": "false", "1": "ac", "2": "usb", "4": "wireless"}
_STAY_ON_WORDS |= {"8": "dock", "7": "true", "15": "true"}
# Android's numbers of two keys that do what they say, whatever the power key would do.
_WAKE, _SLEEP = ("input", "keyevent", "224"), ("input", "keyevent", "223")
SCREEN = "dumpsys power 2>/dev/null | grep -m1 mWakefulness="


class PhonePower:
    """What keeps one phone awake."""

    def __init__(self, device: AdbDevice, event: Callable[[str], None]) -> None:
        """``event`` gets what belongs into the report."""
        self.device, self.event = device, event

    def apply(self) -> None:
        """Switch the screen on, and keep it on: with it off, clocks are others. The note is
        complete before the first change.
        """
        self.restore()
        before = self._stays_on()
        note = {"asleep": self.screen() == "off"}
        self._write_note({**note, SETTING: before})
        if not self._can_return(before) or self.device.shell(list(_STAY_ON)).code != 0:
            # A phone that forbids it is measured as it is.
            self.event("could not be kept awake: its shell may not change settings")
            self._write_note(note)
        if note["asleep"]:
            self.wake()

    def _can_return(self, before: str | None) -> bool:
        """Whether what keeps the phone awake can be undone: by svc, or by putting what is there."""
        if before is None or before in _STAY_ON_WORDS:
            return before is not None
        return self.device.shell(_put_back(before)).code == 0

    def restore(self) -> bool:
        """Restore the values of a note, and remove the note. False if there was none."""
        text = self.device.shell(["cat", NOTE])
        if text.code != 0:
            return False
        before, asleep = parse_note(text.text, self.device.serial)
        if before is not None:
            self._restore_stays_on(before)
        if asleep:
            self.sleep()
        self.device.check(["rm", "-f", NOTE])
        return True

    def _restore_stays_on(self, value: str) -> None:
        """Put it back; by svc where the phone refuses that."""
        word = _STAY_ON_WORDS.get(value)
        ways = [_put_back(value), *([[*_STAY_ON[:-1], word]] if word else [])]
        for command in ways:
            done = self.device.shell([*command])
            found = self._stays_on()
            # Where the phone does not tell, its exit code decides.
            off = {found, value} <= {_UNSET, "0"}
            if done.code == 0 if found is None else off or found == value:
                return
        said = f"did not take back {SETTING}: it was {_shown(value)}"
        self.event(said)
        text = f"{self.device.serial} {said}. Set it on the phone by hand."
        warnings.warn(Sme2Warning(text), stacklevel=3)

    def _stays_on(self) -> str | None:
        """The setting; None where the phone does not tell it."""
        done = self.device.shell(["settings", "get", "global", SETTING])
        lines = done.text.splitlines()
        return lines[0] if done.code == 0 and len(lines) == 1 else None

    def _write_note(self, note: dict[str, Any]) -> None:
        self.device.push(json.dumps({"version": 1, **note}).encode(), f"{NOTE}.new")
        self.device.check(["mv", f"{NOTE}.new", NOTE])

    def screen(self) -> str:
        """Whether the screen is on, as far as Android says."""
        return parse_screen(self.device.shell(SCREEN).text)

    def wake(self) -> None:
        self.device.shell(list(_WAKE))

    def sleep(self) -> None:
        self.device.shell(list(_SLEEP))

    def charging(self) -> str:
        """From where; ``no`` where from nowhere."""
        return parse_battery(self.device.shell("dumpsys battery").text)["charging"]

    def observe(self) -> dict[str, str]:
        """Battery, charging, screen, governors and settings, for the run's manifest."""
        done = self.device.shell(
            f"dumpsys battery; echo ==; {SCREEN}; echo ==; "
            "cat /sys/devices/system/cpu/cpu*/cpufreq/scaling_governor 2>/dev/null"
        )
        battery, power, governors = parse_parts(done.text, 3)
        setting = self._stays_on()
        return {
            **parse_battery(battery),
            "screen": parse_screen(power),
            "governor": parse_governors(governors),
            **({} if setting is None else {SETTING: _shown(setting)}),
        }


def _shown(setting: str) -> str:
    return "unset" if setting == _UNSET else setting


def parse_note(text: str, serial: str) -> tuple[str | None, bool]:
    """The setting that a note on a phone keeps, and whether its screen was off."""
    where = f"The note {NOTE} on {serial}"
    remedy = "Its settings cannot be restored. Read it, restore them by hand, and remove it."
    note = json_value(text, where, remedy=remedy, error=TargetError)
    value = note.get(SETTING) if isinstance(note, dict) else note
    # Other programs can write to this place, so only what a note of ours can say is done.
    known = isinstance(value, str) and value.isprintable() and len(value) < 100
    if not isinstance(note, dict) or not (value is None or known):
        raise TargetError(f"{where} cannot be read: it has other things than settings. {remedy}")
    return value, bool(note.get("asleep"))


def _put_back(value: str) -> list[str]:
    words = ["delete", "global", SETTING] if value == _UNSET else ["put", "global", SETTING, value]
    return ["settings", *words]
