"""A phone's power settings. Every change is restored.

Before the first change, the old values are written to a note on the phone. The note is removed when
the values are restored. A note that is found belongs to an interrupted run; its values are restored
first.
"""

from __future__ import annotations

import contextlib
import json
import re
from collections.abc import Callable
from typing import Any

from pytest_sme2.errors import ConnectionLostError, DeviceTimeoutError, TargetError
from pytest_sme2.system.reading import json_value
from pytest_sme2.targets.phone.adb import AdbDevice, quote

# Beside the folder that gets cleaned, so that cleaning does not remove it.
NOTE = "/data/local/tmp/pytest-sme2-restore.json"

_SET = ("settings", "put", "global")
# With its full path, because a shell may have another command called svc.
_STAY_ON = ("/system/bin/svc", "power", "stayon", "true")
POWER_COMMANDS: dict[str, tuple[tuple[str, ...], ...]] = {
    "boost": (
        (*_SET, "low_power", "0"),
        (*_SET, "stay_on_while_plugged_in", "15"),
        _STAY_ON,
        (*_SET, "window_animation_scale", "0"),
        (*_SET, "transition_animation_scale", "0"),
        (*_SET, "animator_duration_scale", "0"),
    ),
    "app": (
        (*_SET, "stay_on_while_plugged_in", "1"),
        (*_SET, "window_animation_scale", "1"),
        (*_SET, "transition_animation_scale", "1"),
        (*_SET, "animator_duration_scale", "1"),
        (*_SET, "low_power", "0"),
        _STAY_ON,
    ),
    # A phone whose screen goes off in the middle of a run becomes another phone.
    "keep": (_STAY_ON,),
}
_STAYS_ON = "stay_on_while_plugged_in"
# svc writes stay_on_while_plugged_in, so these are all settings to restore.
SETTINGS = (
    "low_power",
    "stay_on_while_plugged_in",
    "window_animation_scale",
    "transition_animation_scale",
    "animator_duration_scale",
)
_FIXED = ("cmd", "power", "set-fixed-performance-mode-enabled")


class PhonePower:
    """The settings of one phone."""

    def __init__(self, device: AdbDevice, *, event: Callable[[str], None] = lambda _: None) -> None:
        """``event`` gets what belongs into the report."""
        self.device = device
        self.event = event
        self.fixed_performance = False
        """Whether we switched fixed-performance mode on."""

    def apply(self, mode: str, *, fixed_performance: bool = False) -> None:
        """Switch to a mode. The note is complete before the first change."""
        self.restore()
        before = self._changing(mode)
        if before or fixed_performance:
            self._write_note({"settings": before, "fixed_performance": fixed_performance})
        if mode != "keep":
            for command in POWER_COMMANDS[mode]:
                self.device.check(list(command))
        elif not before or self.device.shell(list(_STAY_ON)).code != 0:
            # Nobody asked for a change, so a phone that forbids it is measured as it is.
            self.event("could not be kept awake: its shell may not change settings")
            self._write_note({"settings": {}, "fixed_performance": fixed_performance})
        if fixed_performance:
            # A phone without the mode does not change; the manifest says which it was.
            self.fixed_performance = self.device.shell([*_FIXED, "true"]).code == 0
        self._check_applied(mode)

    def _changing(self, mode: str) -> dict[str, str | None]:
        """The settings that a mode changes, as they are now."""
        if mode != "keep":
            return self._read_settings()
        try:
            return {_STAYS_ON: self._read_settings()[_STAYS_ON]}
        except (ConnectionLostError, DeviceTimeoutError):
            raise
        except TargetError:
            return {}

    def restore(self) -> bool:
        """Restore the values of a note, and remove the note. False if there was none."""
        text = self.device.shell(["cat", NOTE])
        if text.code != 0:
            return False
        before, fixed = parse_note(text.text, self.device.serial)
        for name, value in before.items():
            self.device.check(_put_back(name, value))
        if fixed:
            # Android cannot report this one; phones start with it off.
            self.device.shell([*_FIXED, "false"])
            self.fixed_performance = False
        found = self._read_settings() if before else {}
        found = {name: value for name, value in found.items() if name in before}
        if found != before:
            wrong = sorted(name for name in before if found.get(name) != before[name])
            raise TargetError(
                f"{self.device.serial} did not restore its settings {', '.join(wrong)}. "
                f"The old values are in {NOTE} on the phone."
            )
        self.device.check(["rm", "-f", NOTE])
        return True

    def _read_settings(self) -> dict[str, str | None]:
        command = "; ".join(quote(["settings", "get", "global", name]) for name in SETTINGS)
        values = self.device.check(command).splitlines()
        if len(values) != len(SETTINGS):
            raise TargetError(
                f"{self.device.serial} does not report its settings. Is USB debugging allowed to "
                "change them? (Some phones have 'USB debugging (Security settings)'.)"
            )
        return {
            name: None if value == "null" else value
            for name, value in zip(SETTINGS, values, strict=True)
        }

    def _write_note(self, note: dict[str, Any]) -> None:
        self.device.push(json.dumps({"version": 1, **note}).encode(), f"{NOTE}.new")
        self.device.check(["mv", f"{NOTE}.new", NOTE])

    def _check_applied(self, mode: str) -> None:
        wanted = {command[3]: command[4] for command in POWER_COMMANDS[mode] if command[:3] == _SET}
        if _STAY_ON in POWER_COMMANDS[mode]:
            # svc writes this one last, and sets different bits in different Android versions.
            wanted.pop(_STAYS_ON, None)
        found = self._read_settings() if wanted else {}
        wrong = [name for name, value in wanted.items() if not _same(found.get(name), value)]
        if wrong:
            raise TargetError(
                f"{self.device.serial} did not accept the settings {', '.join(wrong)} of power "
                f"mode {mode}. Use --power-mode keep, or allow USB debugging to change settings."
            )

    def screen(self) -> str:
        """Whether the screen is on, as far as Android says."""
        said = self.device.shell("dumpsys power | grep -m1 mWakefulness=").text
        found = re.search(r"mWakefulness=(\w+)", said)
        if found is None:
            return "unknown"
        return "on" if found[1] == "Awake" else "off"

    def observe(self) -> dict[str, str]:
        """Battery, charging, screen, governors and settings, for the run's manifest."""
        done = self.device.shell(
            "dumpsys battery; echo ==; dumpsys power | grep -m1 mWakefulness=; echo ==; "
            "cat /sys/devices/system/cpu/cpu*/cpufreq/scaling_governor 2>/dev/null"
        )
        battery, power, governors = (*done.text.split("==\n"), "", "", "")[:3]
        fields = dict(re.findall(r"^\s*([\w ]+): (\S+)\s*$", battery, re.MULTILINE))
        plugs = [
            name for name in ("AC", "USB", "Wireless") if fields.get(f"{name} powered") == "true"
        ]
        facts = {
            "battery_percent": fields.get("level", ""),
            "charging": ", ".join(plugs) or "no",
            "screen": power.strip().removeprefix("mWakefulness="),
            "governor": ", ".join(dict.fromkeys(governors.split())),
            "fixed_performance": "on" if self.fixed_performance else "off",
        }
        temperature = fields.get("temperature", "")
        if temperature.isdigit():
            facts["battery_celsius"] = f"{int(temperature) / 10:.1f}"
        with contextlib.suppress(TargetError):
            settings = self._read_settings()
            facts.update({name: value or "unset" for name, value in settings.items()})
        return facts


def parse_note(text: str, serial: str) -> tuple[dict[str, str | None], bool]:
    """The settings that a note on a phone keeps, and whether its fixed performance was changed."""
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
    return settings, bool(note.get("fixed_performance"))


def _put_back(name: str, value: str | None) -> list[str]:
    if value is None:
        return ["settings", "delete", "global", name]
    return [*_SET, name, value]


def _same(found: str | None, wanted: str) -> bool:
    try:
        return found is not None and float(found) == float(wanted)
    except ValueError:
        return False
