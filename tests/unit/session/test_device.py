"""Which device a run holds when one dies, cannot be reached, or another is asked for."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from pytest_sme2.errors import ConnectionLostError, DeviceGoneError, TargetError
from pytest_sme2.results.run import FarmDevice
from pytest_sme2.session import device
from pytest_sme2.session.session import Session
from pytest_sme2.session.settings import Settings
from pytest_sme2.system.provision import Provided


class Phone:
    """As much of a target as is held."""

    name = "android"
    patience_seconds = 15.0

    def __init__(self, lab: Lab, serial: str) -> None:
        self.lab, self.serial = lab, serial

    def prepare(self) -> None:
        self.lab.happens("prepare", self.serial)

    def restore(self) -> None:
        self.lab.leased.discard(self.serial)
        self.lab.happens("restore", self.serial)


class Lab:
    """Phones by serial, and which of them are dead."""

    def __init__(self, serials: tuple[str, ...]) -> None:
        self.serials = serials
        self.dead: set[str] = set()
        self.leased: set[str] = set()
        self.events: list[str] = []

    def happens(self, what: str, serial: str) -> None:
        self.events.append(f"{what} {serial}")
        if serial in self.dead:
            raise ConnectionLostError(f"{serial} is not there.")

    def choose(self, settings: Settings, *, progress: Any) -> Phone:
        free = [name for name in settings.serials or self.serials if name not in self.leased]
        if not free:
            raise TargetError("No device is left.")
        self.leased.add(free[0])
        return Phone(self, free[0])


@pytest.fixture
def make_lab(monkeypatch: pytest.MonkeyPatch) -> Any:
    def make(*serials: str) -> Lab:
        lab = Lab(serials)
        monkeypatch.setattr(device, "choose_target", lab.choose)
        return lab

    return make


def hold(farm: Any = None) -> device.HeldDevice:
    held = device.HeldDevice(Settings(device="android"), lambda line: None)
    held.farm = farm
    return held


def serial(held: device.HeldDevice) -> str:
    return str(held.prepared.serial)  # type: ignore[attr-defined]


def test_nothing_is_chosen_before_it_is_needed(make_lab: Any) -> None:
    lab = make_lab("a")
    held = hold()
    held.close()
    assert lab.events == []
    assert held.prepared is held.prepared is held.chosen
    assert lab.events == ["prepare a"]


def test_one_that_died_is_left_for_another_and_restored_at_the_end(make_lab: Any) -> None:
    lab = make_lab("a", "b")
    lab.dead = {"a"}
    held = hold()
    with pytest.raises(ConnectionLostError, match="a is not there"):
        _ = held.prepared
    assert serial(held) == "b"
    held.give_up()
    with pytest.raises(TargetError, match="No device is left") as none:
        _ = held.prepared
    assert held.missing is none.value
    lab.dead = set()
    held.close()
    assert lab.events == ["prepare a", "prepare b", "restore a", "restore b"]


def test_what_was_measured_on_a_phone_that_died_is_forgotten(make_lab: Any) -> None:
    make_lab("a", "b")
    session = Session(Settings(device="android"), identity="run")
    used: list[str] = []

    def arm(name: str) -> str:
        """An arm's run is kept, and the phone dies during the second."""

        def make() -> str:
            phone = session.bench.target.serial  # type: ignore[attr-defined]
            used.append(f"{name} on {phone}")
            if used[-1] == "off on a":
                raise DeviceGoneError("a is gone.")
            return str(phone)

        return session.on_one_device(lambda: session._once(make, "traced", name))

    def pair() -> tuple[str, str]:
        return session.on_one_device(lambda: (arm("on"), arm("off")))

    with pytest.raises(DeviceGoneError):
        pair()
    assert pair() == ("b", "b")
    assert used == ["on on a", "off on a", "on on b", "off on b"]


class PretendedFarm:
    """Hands out phones in their order."""

    def __init__(self, *serials: str) -> None:
        self.free = list(serials)
        self.events: list[str] = []

    def acquire(self) -> FarmDevice:
        self.events.append(f"{self.free[0]} out")
        return FarmDevice(self.free.pop(0), "farm:5037", "place")

    def release(self, farm_device: FarmDevice, *, lost: bool) -> None:
        self.events.append(f"{farm_device.serial} {'lost' if lost else 'back'}")


def test_a_farm_hands_phones_out_and_gets_all_of_them_back(make_lab: Any) -> None:
    lab, farm = make_lab(), PretendedFarm("a", "b")
    held = hold(farm)
    assert serial(held) == "a"
    held.give_up()
    assert serial(held) == "b"
    held.close()
    assert farm.events == ["a out", "a lost", "b out", "b back"]
    assert lab.leased == set()


def test_a_farms_phone_that_cannot_be_used_goes_back_as_lost(
    make_lab: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    def none(settings: Settings, **wishes: Any) -> Phone:
        raise TargetError("it does not answer")

    monkeypatch.setattr(device, "choose_target", none)
    farm = PretendedFarm("a")
    held = hold(farm)
    with pytest.raises(TargetError, match="does not answer"):
        _ = held.prepared
    assert farm.events == ["a out", "a lost"]


@pytest.mark.parametrize("name", ["android", "emulated"])
def test_what_needs_an_emulator_fetches_one_or_fails(
    monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    """A fake phone without SME2 would pass everything, and show nothing."""

    def none(path: Path | None = None) -> None:
        raise TargetError("There is no emulator.")

    asked: list[bool] = []

    def fetch(say: object, *, check: bool) -> Provided:
        asked.append(check)
        return Provided("emulator", None, "missing", remedy="Run: install it.")

    monkeypatch.setattr(device, "find_qemu", none)
    monkeypatch.setattr("pytest_sme2.system.provision.qemu", fetch)
    settings = Settings(device=name, fake_phone=name == "android")
    option = "--sme2-phone=fake" if name == "android" else "--device=emulated"
    with pytest.raises(TargetError, match=rf"{option} cannot be used\. Run: install it\."):
        device.choose_target(settings, progress=lambda _: None)
    assert asked == [False]
    # Where nobody can be told, nothing is fetched.
    with pytest.raises(TargetError, match="There is no emulator"):
        device.choose_target(settings)
    assert asked == [False]
