from __future__ import annotations

import platform
import sys
from collections.abc import Callable

import pytest

from pytest_sme2.errors import TargetError
from pytest_sme2.system import platforms
from pytest_sme2.system.platforms import Power, parse_mode, parse_pressure, parse_source


@pytest.mark.parametrize(
    ("system", "machine", "name"),
    [
        ("linux", "aarch64", "linux-aarch64"),
        ("linux", "x86_64", "linux-x86_64"),
        ("linux", "AMD64", "linux-x86_64"),
        ("darwin", "arm64", "macos-arm64"),
    ],
)
def test_machines_have_names(monkeypatch, system, machine, name):
    monkeypatch.setattr(sys, "platform", system)
    monkeypatch.setattr(platform, "machine", lambda: machine)
    assert platforms.host_platform() == name
    assert name in platforms.PLATFORMS


@pytest.mark.parametrize(
    ("kernel", "machine", "real"),
    [
        (b"x86_64\n", "aarch64", "x86_64"),
        (b"aarch64\n", "x86_64", "aarch64"),
        (b"aarch64\n", "aarch64", None),
        (b"\xff", "aarch64", None),
        (None, "aarch64", None),
    ],
)
def test_a_kernel_of_another_architecture_shows_an_emulator(
    monkeypatch, tmp_path, kernel, machine, real
):
    file = tmp_path / "arch"
    if kernel is not None:
        file.write_bytes(kernel)
    monkeypatch.setattr(platforms, "_KERNEL", file)
    monkeypatch.setattr(platform, "machine", lambda: machine)
    assert platforms.emulated_on() == real


ON_BATTERY = """\
Now drawing from 'Battery Power'
 -InternalBattery-0 (id=21889123)\t83%; discharging; 6:12 remaining present: true
"""
SETTINGS = """\
System-wide power settings:
Currently in use:
 standby              1
 Sleep On Power Button 1
 hibernatefile        /var/vm/sleepimage
 {name}         {value}
 displaysleep         10
"""


def settings(name: str, value: str) -> str:
    return SETTINGS.format(name=name, value=value)


PRESSURE = "com.apple.system.thermalpressurelevel"


@pytest.mark.parametrize(
    ("parse", "text", "expected"),
    [
        (parse_source, ON_BATTERY, "battery"),
        (parse_source, "Now drawing from 'AC Power'\n", "AC power"),
        (parse_source, "Now drawing from 'UPS Power'\n", "UPS Power"),
        (parse_source, "", "unknown"),
        (parse_mode, settings("lowpowermode", "0"), "normal"),
        (parse_mode, settings("lowpowermode", "1"), "low"),
        (parse_mode, settings("powermode", "2"), "high"),
        (parse_mode, settings("powermode", "7"), "unknown"),
        (parse_mode, settings("othermode", "1"), "unknown"),
        (parse_pressure, f"{PRESSURE} 0\n", "nominal"),
        (parse_pressure, f"{PRESSURE} 2\n", "heavy"),
        (parse_pressure, f"{PRESSURE} 30\n", "level 30"),
        (parse_pressure, "something else", "unknown"),
    ],
)
def test_what_a_mac_says_of_its_power(
    parse: Callable[[str], str], text: str, expected: str
) -> None:
    assert parse(text) == expected


def test_only_what_slows_a_mac_down_is_warned_about() -> None:
    assert Power("AC power", "normal", "nominal").warnings == ()
    assert Power("unknown", "unknown", "unknown").warnings == ()
    low, battery, heat = Power("battery", "low", "moderate").warnings
    assert "low power mode is on" in low
    assert "battery" in battery
    assert "moderate" in heat


@pytest.mark.parametrize(
    ("system", "machine", "translated", "words"),
    [
        ("linux", "riscv64", "0", r"riscv64.*Use Linux on aarch64.*or macOS on Apple silicon"),
        ("darwin", "x86_64", "0", "or macOS on Apple silicon"),
        # It runs on Apple silicon already, so that is not advice.
        ("darwin", "x86_64", "1", "This Python is an Intel one"),
    ],
)
def test_an_unknown_machine_is_told_which_are_supported(
    monkeypatch: pytest.MonkeyPatch, system: str, machine: str, translated: str, words: str
) -> None:
    monkeypatch.setattr(sys, "platform", system)
    monkeypatch.setattr(platform, "machine", lambda: machine)
    monkeypatch.setattr(platforms, "sysctl", lambda _: translated)
    with pytest.raises(TargetError, match=words):
        platforms.host_platform()
