"""Phones as makers build them: published chips, and one that says no to nearly everything."""

from __future__ import annotations

import contextlib

import pytest

from pytest_sme2.errors import Sme2Warning
from pytest_sme2.fake_phone.lab import FakeLab
from pytest_sme2.targets.phone.answers import cores_text, kinds, parse_cores
from pytest_sme2.timing.processes import why_spoiled
from tests.support.phone_profiles import CORE, HOSTILE, PROFILES, move
from tests.support.phones import MakeTarget, StartRun, leftovers, settings_of

# SME and SME2 as the kernel shows them, the parts, and the cores by kind.
KNOWN = {
    "dimensity-9500": (True, True, "4x C1-Pro, 3x C1-Premium, 1x C1-Ultra", [1, 3, 4]),
    "snapdragon-8-elite-gen-5": (True, False, "8x 0x51:0x002", [2, 6]),
    "exynos-2600": (True, True, "9x C1-Pro, 1x C1-Ultra", [1, 3, 6]),
    "tensor-g5": (False, False, "2x 0x41:0xd80, 5x 0x41:0xd87, 1x 0x41:0xd82", [1, 5, 2]),
}


@pytest.mark.parametrize("name", PROFILES)
def test_a_published_chip_is_told_as_what_it_is(
    lab: FakeLab, make_target: MakeTarget, name: str
) -> None:
    profile = PROFILES[name]
    target = make_target(lab.add(**profile))
    sme, sme2, parts, counts = KNOWN[name]
    able = target.capabilities()
    assert (target.silicon.sme, able.sme2, able.sme1) == (sme, sme2, sme and not sme2)
    assert target.silicon.cores() == parts
    assert profile["properties"]["ro.soc.model"] in target.soc
    # All that sysfs lists; those that a process may use are this machine's.
    clocks = "/sys/devices/system/cpu/cpu[0-9]*/cpufreq"
    listed = parse_cores(target.device.check(f"grep -H . {clocks}/*_max_freq"))
    assert [len(kind) for kind in kinds(listed)] == counts
    fastest = max(profile["max_frequencies_khz"]) / 1e6
    assert f"at {fastest:.2f} GHz" in cores_text(listed, [core.number for core in listed])
    assert set(target.cores) <= set(listed)


def test_a_hostile_maker_neither_ends_a_run_nor_keeps_a_change(
    lab: FakeLab, make_target: MakeTarget, start: StartRun
) -> None:
    phone = lab.add(**HOSTILE)
    before = settings_of(phone)
    target = make_target(phone)
    assert not start(target).throttled
    assert target.state()["heat"] == "thermal status unknown"
    target.restore()
    # Its screen was off, and is again: the settings are refused, and what svc changed went back.
    assert phone.state("wakefulness") == "Asleep"
    assert target.events == [
        "does not tell its thermal status: only its clock caps show that it is slow",
    ]
    assert settings_of(phone) == before
    assert leftovers(phone) == []
    # The next run is not locked out.
    make_target(phone).restore()


@pytest.mark.parametrize("thermal", ["absent", "hangs", "unready"])
def test_caps_are_seen_where_the_thermal_service_says_nothing(
    lab: FakeLab, make_target: MakeTarget, start: StartRun, thermal: str
) -> None:
    phone = lab.add(thermal=thermal)
    target = make_target(phone)
    phone.write("sys/devices/system/cpu/cpu0/cpufreq/scaling_max_freq", "1200000\n")
    run = start(target)
    assert (run.throttled, run.clock_change.split(",")[0]) == (
        False,
        "the highest clock of core 0 was 1.20 GHz",
    )
    assert target.state()["heat"].startswith("thermal status unknown")


@pytest.mark.parametrize(
    ("kind", "clocks", "spoiled"),
    [
        ("clamped", ["", "2.44"], False),
        # A cap that comes back is no change.
        ("limited", ["", "3.28", "3.80"], False),
        ("bouncing", ["", "3.60", "2.90", "2.44", "2.90", "3.60"], False),
        ("screen", ["", "2.65"], True),
        ("unready", ["", ""], False),
    ],
)
def test_what_a_stock_phone_does_to_itself_is_told_of_the_run_it_hit(
    lab: FakeLab, make_target: MakeTarget, start: StartRun,
    kind: str, clocks: list[str], spoiled: bool,
) -> None:  # fmt: skip
    phone = lab.add(max_frequencies_khz=(4_320_000, 4_320_000))
    target = make_target(phone)
    cores = [core.number for core in target.cores]
    for number, clock in enumerate([*clocks, ""]):
        move(phone, kind, cores, number)
        with pytest.warns(Sme2Warning) if spoiled and clock else contextlib.nullcontext():
            run = start(target)
        assert (f" was {clock} GHz" in run.clock_change) is bool(clock)
        assert (not run.clock_change, run.throttled) == (not clock, False)
        assert bool(run.spoiled) is (spoiled and bool(clock))
    assert target.state()["heat"] == "thermal status 0, 30.0 °C"


@pytest.mark.parametrize(
    ("kind", "slowest_khz", "why"),
    [("paused", 4_320_000, ""), ("off", 2_700_000, "most runs were on other cores than 1")],
)
def test_a_core_that_is_taken_away_repeats_what_went_to_another_kind(
    lab: FakeLab, make_target: MakeTarget, start: StartRun, kind: str, slowest_khz: int, why: str
) -> None:
    target = make_target(phone := lab.add(max_frequencies_khz=(slowest_khz, 4_320_000)))
    for number, expected in enumerate(["", why, ""]):
        move(phone, kind, [1], number)
        run = start(target, f"core=$(cat /{CORE})", runs=3)
        assert run.ran_on == (1 - number % 2,) * 3
        # A core without a clock says nothing of one: nothing was slowed down.
        assert (why_spoiled(run), run.clock_change, run.throttled) == (expected, "", False)
