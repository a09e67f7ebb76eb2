"""What phones say of their heat and cores, read."""

from __future__ import annotations

import pytest

from pytest_sme2.errors import TargetError, UsageError
from pytest_sme2.targets.phone.power import (
    POWER_COMMANDS,
    SETTINGS,
    Heat,
    parse_thermal_statuses,
    parse_zones,
    pick_cores,
)
from pytest_sme2.targets.settings import POWER_MODES

THERMAL = """\
IsStatusOverride: false
ThermalEventListeners:
\tcallbacks: 2
Thermal Status: 3
Cached temperatures:
\tTemperature{mValue=57.8, mType=0, mName=CPU0, mStatus=3}
"""


def test_every_power_mode_has_its_commands() -> None:
    assert set(POWER_COMMANDS) == set(POWER_MODES)
    changed = {
        command[3] for commands in POWER_COMMANDS.values() for command in commands
        if command[0] == "settings"
    }  # fmt: skip
    assert changed == set(SETTINGS)


def test_thermal_status() -> None:
    assert parse_thermal_statuses(THERMAL) == (3,)
    assert parse_thermal_statuses(f"{THERMAL}Thermal Status: 0\n") == (3, 0)
    assert parse_thermal_statuses("Can't find service: thermalservice") == ()


@pytest.mark.parametrize(
    ("lines", "expected"),
    [
        (["cpu-0-0 41200", "cpu-1-7 55100", "battery 90000"], 55.1),
        (["skin-therm 38000", "soc_max 36"], 38.0),
        (["cpu -274000", "cpu 0", "cpu 999000", "cpu abc", "", "cpu"], None),
        ([], None),
        (["big core zone 47", "modem 80000"], 47.0),
    ],
)
def test_the_hottest_zone_that_matters(lines: list[str], expected: float | None) -> None:
    assert parse_zones(lines) == expected


def test_thresholds_of_a_cool_phone() -> None:
    assert Heat(0, 30.0).cool(45)
    assert Heat(None, None).cool(45)
    assert not Heat(0, 45.1).cool(45)
    assert not Heat(1, 20.0).cool(45)
    assert str(Heat(None, None)) == "thermal status unknown"
    assert str(Heat(2, 41.25)) == "thermal status 2, 41.2 °C"


FREQUENCIES = {0: 2_000_000, 1: 2_000_000, 2: 3_000_000, 3: 3_000_000, 4: 3_600_000}


def test_big_and_little_are_the_fastest_and_the_slowest() -> None:
    assert pick_cores("big", FREQUENCIES) == (4,)
    assert pick_cores("little", FREQUENCIES) == (0, 1)
    assert pick_cores("big", {0: 5, 1: 5}) == (0, 1)
    assert pick_cores((2, 3), FREQUENCIES) == (2, 3)


def test_cores_that_are_not_there() -> None:
    with pytest.raises(UsageError, match=r"no core 8, 9\. It has 0, 1, 2, 3, 4"):
        pick_cores((2, 8, 9), FREQUENCIES)
    with pytest.raises(TargetError, match="does not report the speed"):
        pick_cores("big", {})
