"""How warm a phone is."""

from __future__ import annotations

import pytest

from pytest_sme2.targets.phone.answers import parse_temperature, parse_thermal_status, parse_zones
from pytest_sme2.targets.phone.power import Heat

THERMAL = """\
IsStatusOverride: false
ThermalEventListeners:
\tcallbacks: 2
Thermal Status: 3
Cached temperatures:
\tTemperature{mValue=91.0, mType=0, mName=CPU0, mStatus=3}
HAL Ready: true
Current temperatures from HAL:
\tTemperature{mValue=57.8, mType=0, mName=CPU0, mStatus=3}
\tTemperature{mValue=38.25, mType=3, mName=VIRTUAL-SKIN, mStatus=0}
\tTemperature{mValue=62.0, mType=8, mName=soc, mStatus=0}
\tTemperature{mValue=NaN, mType=0, mName=CPU1, mStatus=0}
Current cooling devices from HAL:
\tCoolingDevice{mValue=0, mType=2, mName=thermal-cpufreq-0}
Temperature static thresholds from HAL:
\tTemperature{mValue=99.0, mType=0, mName=CPU0, mStatus=3}
"""


def test_thermal_status() -> None:
    assert parse_thermal_status(THERMAL) == 3
    assert parse_thermal_status(f"{THERMAL}Thermal Status: 0\n") == 3
    assert parse_thermal_status("Can't find service: thermalservice") is None


def test_a_thermal_status_of_0_without_sensors_is_unknown() -> None:
    """Android keeps 0 where the maker's sensors do not answer."""
    cool = THERMAL.replace("Status: 3", "Status: 0")
    assert parse_thermal_status(cool) == 0
    assert parse_thermal_status(cool.replace("HAL Ready: true", "HAL Ready: false")) is None
    assert parse_thermal_status(THERMAL.replace("HAL Ready: true", "HAL Ready: false")) == 3


def test_the_temperature_is_that_of_a_cpu_or_the_skin_at_this_moment() -> None:
    assert parse_temperature(THERMAL) == 57.8
    assert parse_temperature(THERMAL.replace("57.8, mType=0", "57.8, mType=8")) == 38.25
    assert parse_temperature("\tTemperature{mValue=41.0, mType=3, mName=a, mStatus=0}\n") == 41.0
    assert parse_temperature("Can't find service: thermalservice") is None


def test_all_zones_are_recorded_as_they_are() -> None:
    known = (
        *("0/type:cpu-0-0", "1/type:soc", "10/type:cpu-0-0", "11/type:broken", "12/type:silent"),
        *("0/temp:41200", "1/temp:62", "10/temp:-500", "11/temp:n/a"),
    )
    lines = [f"/sys/class/thermal/thermal_zone{line}" for line in known]
    assert parse_zones("\n".join([*lines, "something else"])) == {
        "cpu-0-0": 41.2,
        "soc": 62.0,
        "cpu-0-0 (10)": -500.0,
    }
    assert parse_zones("") == {}


@pytest.mark.parametrize(
    ("heat", "limit", "cool"),
    [
        (Heat(0, 99.0), None, True),
        (Heat(None), None, True),
        (Heat(None), 40.0, True),
        (Heat(0, 45.1), 45.0, False),
        (Heat(0, 45.0), 45.0, True),
        # A skin that is warm is not waited for.
        (Heat(1, 20.0), None, True),
        (Heat(2, 20.0), None, False),
    ],
)
def test_only_the_thermal_status_counts_unless_a_limit_is_given(
    heat: Heat, limit: float | None, cool: bool
) -> None:
    assert heat.cool(limit) is cool


def test_in_words() -> None:
    assert str(Heat(None)) == "thermal status unknown"
    assert str(Heat(2, 41.25)) == "thermal status 2, 41.2 °C"
