"""A phone's heat, and its power settings. Every change is restored.

Before the first change, the old values are written to a note on the phone. The note is removed when
the values are restored. A note that is found belongs to an interrupted run; its values are restored
first. Some makers let a shell do only part of that. What such a phone does not take back is
reported with its old value, and the note goes: it must not keep the phone from every later run.
"""

from __future__ import annotations

import json
import time
import warnings
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from pytest_sme2.errors import ConnectionLostError, DeviceTimeoutError, Sme2Warning, TargetError
from pytest_sme2.system.reading import json_value
from pytest_sme2.targets.phone.adb import AdbDevice, quote
from pytest_sme2.targets.phone.answers import (
    last_line,
    parse_battery,
    parse_governors,
    parse_number,
    parse_parts,
    parse_screen,
    parse_settings,
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

    def cool(self, limit: float | None) -> bool:
        """Whether to measure; a ``limit`` in degrees is one that the user asked for."""
        fits = limit is None or self.celsius is None or self.celsius <= limit
        return fits and (self.status or 0) < THROTTLES

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

    def wait_until_cool(self, *, celsius: float | None, seconds: float) -> None:
        """Wait for the phone to cool down, and warn if it does not.

        A phone that stayed warm is not waited for again until it was cool once.
        """
        begun = time.monotonic()
        try:
            self._wait(celsius, seconds, begun + seconds)
        finally:
            self.waited_seconds += time.monotonic() - begun

    def _wait(self, celsius: float | None, seconds: float, deadline: float) -> None:
        while not (heat := self.read()).cool(celsius):
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

_STAYS_ON = "stay_on_while_plugged_in"
_SCALES = ("window_animation_scale", "transition_animation_scale", "animator_duration_scale")
# svc writes stay_on_while_plugged_in, so these are all settings to restore.
SETTINGS = ("low_power", _STAYS_ON, *_SCALES)
_SET = ("settings", "put", "global")
# With its full path, because a shell may have another command called svc.
_STAY_ON = ("/system/bin/svc", "power", "stayon", "true")
POWER_COMMANDS: dict[str, tuple[tuple[str, ...], ...]] = {
    "boost": (
        (*_SET, "low_power", "0"),
        (*_SET, _STAYS_ON, "15"),
        _STAY_ON,
        *((*_SET, name, "0") for name in _SCALES),
    ),
    "app": (
        (*_SET, _STAYS_ON, "1"),
        *((*_SET, name, "1") for name in _SCALES),
        (*_SET, "low_power", "0"),
        _STAY_ON,
    ),
    # A phone whose screen goes off in the middle of a run becomes another phone.
    "keep": (_STAY_ON,),
}
# Phones that refuse ``settings put`` may let svc change this one, which knows fewer values.
_STAY_ON_WORDS = {"0": "false", "1": "ac", "2": "usb", "4": "wireless", "8": "dock"}
_STAY_ON_WORDS |= {"7": "true", "15": "true"}
# Android's numbers of two keys that do what they say, whatever the power key would do.
_WAKE, _SLEEP = ("input", "keyevent", "224"), ("input", "keyevent", "223")
SCREEN = "dumpsys power 2>/dev/null | grep -m1 mWakefulness="
_FIXED = ("cmd", "power", "set-fixed-performance-mode-enabled")


class PhonePower:
    """The settings of one phone."""

    def __init__(self, device: AdbDevice, event: Callable[[str], None]) -> None:
        """``event`` gets what belongs into the report."""
        self.device, self.event = device, event
        self.fixed_performance = False
        """Whether we switched fixed-performance mode on."""

    def apply(self, mode: str, *, fixed_performance: bool = False) -> None:
        """Switch to a mode, and the screen on: with it off, clocks are others. The note is complete
        before the first change.
        """
        self.restore()
        before = self._changing(mode)
        note = {"fixed_performance": fixed_performance, "asleep": self.screen() == "off"}
        if before or fixed_performance or note["asleep"]:
            self._write_note({**note, "settings": before})
        if mode != "keep":
            for command in POWER_COMMANDS[mode]:
                done = self.device.shell(list(command))
                if done.code != 0:
                    raise self._not_accepted(mode, f"{quote(command)} ({last_line(done.said)})")
        elif not self._can_return(before) or self.device.shell(list(_STAY_ON)).code != 0:
            # The user asked for no change, so measure a phone that forbids it as it is.
            self.event("could not be kept awake: its shell may not change settings")
            self._write_note({**note, "settings": {}})
        if note["asleep"]:
            self.wake()
        if fixed_performance:
            # A phone without the mode does not change; the manifest says which it was.
            self.fixed_performance = self.device.shell([*_FIXED, "true"]).code == 0
        self._check_applied(mode)

    def _changing(self, mode: str) -> dict[str, str | None]:
        """The settings that a mode changes, as they are now."""
        if mode != "keep":
            return self._read_settings()
        found = self._settings_if_told()
        return {_STAYS_ON: found[_STAYS_ON]} if found else {}

    def _can_return(self, before: Mapping[str, str | None]) -> bool:
        """Whether what keeps the phone awake can be undone: by svc, or by putting what is there."""
        if _STAYS_ON not in before:
            return False
        value = before[_STAYS_ON]
        known = value is None or value in _STAY_ON_WORDS
        return known or self.device.shell(_put_back(_STAYS_ON, value)).code == 0

    def restore(self) -> bool:
        """Restore the values of a note, and remove the note. False if there was none."""
        text = self.device.shell(["cat", NOTE])
        if text.code != 0:
            return False
        before, fixed, asleep = parse_note(text.text, self.device.serial)
        commands = {name: _put_back(name, value) for name, value in before.items()}
        wrong = self._put_and_compare(before, commands)
        word = _STAY_ON_WORDS.get(before.get(_STAYS_ON) or "0")
        if _STAYS_ON in wrong and word:
            stayed = {_STAYS_ON: before[_STAYS_ON]}
            del wrong[_STAYS_ON]
            wrong |= self._put_and_compare(stayed, {_STAYS_ON: [*_STAY_ON[:-1], word]})
        for name, said in wrong.items():
            self._tell(f"did not take back {name}: it was {before[name] or 'unset'}{said}")
        if fixed:
            # Android cannot report this one; phones start with it off.
            done = self.device.shell([*_FIXED, "false"])
            if done.code != 0 and self.fixed_performance:
                self._tell(f"did not leave fixed-performance mode ({last_line(done.said)})")
            self.fixed_performance = False
        if asleep:
            self.sleep()
        self.device.check(["rm", "-f", NOTE])
        return True

    def _put_and_compare(
        self, before: Mapping[str, str | None], commands: Mapping[str, Sequence[str]]
    ) -> dict[str, str]:
        """Run the commands; the settings that are not as before, with what is known of why."""
        refusals = {}
        for name, command in commands.items():
            done = self.device.shell(list(command))
            refusals[name] = "" if done.code == 0 else f" ({last_line(done.said)})"
        found = self._settings_if_told() if before else {}
        if found is None:
            # Where the phone does not tell, its exit codes decide.
            return {name: said for name, said in refusals.items() if said}
        return {
            name: f", and is {found[name] or 'unset'}{refusals[name]}"
            for name, value in before.items()
            if not _same(name, found[name], value)
        }

    def _tell(self, said: str) -> None:
        self.event(said)
        text = f"{self.device.serial} {said}. Set it on the phone by hand."
        warnings.warn(Sme2Warning(text), stacklevel=3)

    def _settings_if_told(self) -> dict[str, str | None] | None:
        try:
            return self._read_settings()
        except (ConnectionLostError, DeviceTimeoutError):
            raise
        except TargetError:
            return None

    def _read_settings(self) -> dict[str, str | None]:
        command = "; ".join(quote(["settings", "get", "global", name]) for name in SETTINGS)
        return parse_settings(self.device.serial, self.device.check(command), SETTINGS)

    def _write_note(self, note: dict[str, Any]) -> None:
        self.device.push(json.dumps({"version": 1, **note}).encode(), f"{NOTE}.new")
        self.device.check(["mv", f"{NOTE}.new", NOTE])

    def _check_applied(self, mode: str) -> None:
        wanted = {command[3]: command[4] for command in POWER_COMMANDS[mode] if command[:3] == _SET}
        if _STAY_ON in POWER_COMMANDS[mode]:
            # svc writes this one last, and sets different bits in different Android versions.
            wanted.pop(_STAYS_ON, None)
        found = self._read_settings() if wanted else {}
        wrong = [name for name, value in wanted.items() if not _same(name, found[name], value)]
        if wrong:
            raise self._not_accepted(mode, ", ".join(wrong))

    def _not_accepted(self, mode: str, what: str) -> TargetError:
        return TargetError(
            f"{self.device.serial} did not accept the settings of power mode {mode}: {what}. Use "
            "--sme2-phone power-mode=keep, or switch on 'USB debugging (Security settings)' in the "
            "developer options."
        )

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
        facts = {
            **parse_battery(battery),
            "screen": parse_screen(power),
            "governor": parse_governors(governors),
            "fixed_performance": "on" if self.fixed_performance else "off",
        }
        settings = self._settings_if_told() or {}
        return facts | {name: value or "unset" for name, value in settings.items()}


def parse_note(text: str, serial: str) -> tuple[dict[str, str | None], bool, bool]:
    """The settings that a note on a phone keeps, and whether its fixed performance was changed and
    its screen was off.
    """
    where = f"The note {NOTE} on {serial}"
    remedy = "Its settings cannot be restored. Read it, restore them by hand, and remove it."
    note = json_value(text, where, remedy=remedy, error=TargetError)
    settings = note.get("settings") if isinstance(note, dict) else None
    # Other programs can write to this place, so only what a note of ours can say is done.
    if not isinstance(settings, dict) or not all(
        name in SETTINGS
        and (value is None or (isinstance(value, str) and value.isprintable() and len(value) < 100))
        for name, value in settings.items()
    ):
        raise TargetError(f"{where} cannot be read: it has other things than settings. {remedy}")
    return settings, bool(note.get("fixed_performance")), bool(note.get("asleep"))


def _put_back(name: str, value: str | None) -> list[str]:
    if value is None:
        return ["settings", "delete", "global", name]
    return [*_SET, name, value]


def _same(name: str, found: str | None, wanted: str | None) -> bool:
    if found == wanted:
        return True
    if name == _STAYS_ON:
        # Without a value the phone falls asleep, too.
        found, wanted = found or "0", wanted or "0"
    number = None if found is None else parse_number(found)
    return number is not None and wanted is not None and number == parse_number(wanted)
