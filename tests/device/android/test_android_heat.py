"""A warm phone: waited for, but not for ever, and only for what Android itself calls warm."""

from __future__ import annotations

import re

import pytest

from pytest_sme2.errors import Sme2Warning
from pytest_sme2.fake_phone.lab import FakeLab, FakePhone
from tests.support.phones import MakeTarget

STATUS = "data/system/fake/thermal_status"


def test_a_throttled_phone_is_waited_for(phone: FakePhone, make_target: MakeTarget) -> None:
    phone.write(STATUS, "1\n")
    told: list[str] = []

    def cool_down(line: str) -> None:
        told.append(line)
        phone.write(STATUS, "0\n")

    target = make_target(phone, progress=cool_down)
    (line,) = told
    waiting = f"{phone.serial}: waiting to cool down (thermal status 1, 30.0 °C), "
    assert re.fullmatch(rf"{re.escape(waiting)}\d+ s", line)
    assert "events" not in target.state()


def test_hot_zones_alone_keep_nobody_waiting(lab: FakeLab, make_target: MakeTarget) -> None:
    told: list[str] = []
    target = make_target(lab.add(temperature_millidegrees=71_500), progress=told.append)
    assert told == []
    assert target.state()["heat"] == "thermal status 0, 71.5 °C"


def test_a_limit_of_ones_own_counts_cpu_and_skin(lab: FakeLab, make_target: MakeTarget) -> None:
    warm = lab.add(temperature_millidegrees=71_500)
    told: list[str] = []

    def cool_down(line: str) -> None:
        told.append(line)
        for zone in range(4):
            warm.write(f"sys/class/thermal/thermal_zone{zone}/temp", "31000\n")

    # The zone called soc says 62 all the time: it is the battery's charge.
    make_target(warm, progress=cool_down, max_celsius=45)
    (line,) = told
    assert "waiting to cool down (thermal status 0, 71.5 °C)" in line


def test_a_phone_that_stays_warm_is_measured_with_a_warning(
    phone: FakePhone, make_target: MakeTarget
) -> None:
    phone.write(STATUS, "2\n")
    said = "was still warm after a wait of 0.2 s (thermal status 2, 30.0 °C)"
    with pytest.warns(Sme2Warning, match=re.escape(said)):
        target = make_target(phone, cool_seconds=0.2)
    assert target.state()["events"] == said
    # It is not waited for, and not warned about, before every block.
    target.cool_seconds = 600
    target.cool_down()
    phone.write(STATUS, "0\n")
    target.cool_down()
    phone.write(STATUS, "2\n")
    target.cool_seconds = 0.2
    with pytest.warns(Sme2Warning):
        target.cool_down()
    assert target.state()["events"] == f"{said}; {said}"
