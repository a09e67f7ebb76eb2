"""How warm a phone is."""

from __future__ import annotations

import pytest

from pytest_sme2.targets.phone.answers import parse_temperature, parse_thermal_status
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


@pytest.mark.parametrize(
    ("heat", "cool"),
    # A skin that is warm is not waited for.
    [(Heat(0, 99.0), True), (Heat(None), True), (Heat(1, 20.0), True), (Heat(2, 20.0), False)],
)
def test_only_the_thermal_status_counts(heat: Heat, cool: bool) -> None:
    assert heat.cool is cool


def test_in_words() -> None:
    assert str(Heat(None)) == "thermal status unknown"
    assert str(Heat(2, 41.25)) == "thermal status 2, 41.2 °C"
