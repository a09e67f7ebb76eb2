"""Which device a run holds when one dies, cannot be reached, or another is asked for."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import pytest

from pytest_sme2.errors import (
    ConnectionLostError,
    DeviceGoneError,
    NoDeviceLeftError,
    NotMeasurableError,
    TargetError,
)
from pytest_sme2.fake_phone.lab import Parts
from pytest_sme2.results import FarmDevice, Fingerprint
from pytest_sme2.session import device
from pytest_sme2.session.session import Session
from pytest_sme2.session.settings import Settings
from pytest_sme2.system.provision import Provided
from pytest_sme2.targets.phone.leases import DevicePool, Lease


class Phone:
    """As much of a target as is held."""

    name = "android"
    patience_seconds = 15.0

    def __init__(self, lab: Lab, lease: Lease | None, soc: str) -> None:
        self.lab, self.lease, self.soc = lab, lease, soc

    @property
    def serial(self) -> str:
        return self.lease.serial if self.lease else "own"

    def prepare(self) -> None:
        self.lab.events.append(f"prepare {self.serial}")
        if self.serial in self.lab.dead:
            raise ConnectionLostError(f"{self.serial} is not there.")

    def restore(self) -> None:
        self.lab.events.append(f"restore {self.serial}")
        if self.lease is not None:
            self.lease.release()
        if self.serial in self.lab.dead:
            raise ConnectionLostError(f"{self.serial} is not there.")

    def fingerprint(self) -> Fingerprint:
        return Fingerprint("android", (("soc", self.soc),))


class Lab:
    """Phones by serial, with the SoC of each, and which of them are dead."""

    def __init__(self, folder: Path, socs: dict[str, str], *, leased: bool = True) -> None:
        self.folder, self.socs, self.leased = folder, socs, leased
        self.dead: set[str] = set()
        self.events: list[str] = []

    def choose(
        self, settings: Settings, *, run: str, soc: str | None, like: Any, progress: Any
    ) -> Phone:
        if not self.leased:
            return Phone(self, None, "own SoC")
        pool = DevicePool(str(self.folder), list(self.socs), run=run)

        def accept(lease: Lease) -> bool:
            found = self.socs[lease.serial]
            fits = soc is None or soc.lower() in found.lower()
            return fits and (like is None or dict(like.facts)["soc"] == found)

        lease = pool.lease(timeout=0, accept=accept)
        return Phone(self, lease, self.socs[lease.serial])


@pytest.fixture
def make_lab(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    def make(**socs: str) -> Lab:
        lab = Lab(tmp_path, socs, leased=bool(socs))
        monkeypatch.setattr(device, "choose_target", lab.choose)
        return lab

    return make


def hold(farm: device.Farm | None = None) -> device.HeldDevice:
    return device.HeldDevice(Settings(device="android"), lambda: "run", lambda line: None, farm)


def serial(held: device.HeldDevice) -> str:
    return str(held.prepared.serial)  # type: ignore[attr-defined]


def test_nothing_is_chosen_before_it_is_needed(make_lab: Any) -> None:
    lab = make_lab(a="X")
    held = hold()
    held.close()
    assert lab.events == []
    assert held.prepared is held.prepared is held.chosen
    assert lab.events == ["prepare a"]


def test_one_that_cannot_be_reached_is_passed_over_unless_it_is_the_only_one(make_lab: Any) -> None:
    lab = make_lab(a="X", b="Y")
    lab.dead = {"a"}
    held = hold()
    assert serial(held) == "b"
    # It is put back if it returns.
    lab.dead = set()
    held.close()
    assert lab.events == ["prepare a", "prepare b", "restore b", "restore a"]
    lab = make_lab()
    lab.dead = {"own"}
    with pytest.raises(ConnectionLostError, match="own is not there"):
        _ = hold().prepared


def test_one_that_died_is_replaced_by_one_of_its_kind(make_lab: Any) -> None:
    make_lab(a="X", b="Y", c="X")
    held = hold()
    assert serial(held) == "a"
    held.replace(DeviceGoneError("a is gone."))
    assert serial(held) == "c"
    with pytest.raises(TargetError, match=r"c is gone\. No other of its kind could take over\."):
        held.replace(DeviceGoneError("c is gone."))
    # Whoever comes next has no such wish.
    assert serial(held) == "b"


def test_a_chip_is_asked_for(make_lab: Any) -> None:
    lab = make_lab(a="Maker One", b="Maker Two")
    held = hold()
    assert serial(held) == "a"
    assert held.ask_for("two")
    assert serial(held) == "b"
    assert not held.ask_for("two")
    # The one that is held will do for a test that asks for nothing.
    assert held.ask_for(None)
    assert serial(held) == "b"
    assert lab.events == ["prepare a", "restore a", "prepare b"]


def test_a_chip_that_nobody_has_skips(make_lab: Any) -> None:
    lab = make_lab(a="X", b="Y")
    held = hold()
    held.ask_for("Z")
    with pytest.raises(NotMeasurableError, match="no device has a chip named like 'Z'"):
        _ = held.prepared
    # One that died may have been the one: that is an error, not a skip.
    lab.dead = {"a"}
    held.ask_for(None)
    assert serial(held) == "b"
    held.ask_for("Z")
    with pytest.raises(NoDeviceLeftError):
        _ = held.prepared


def test_a_device_that_is_not_a_choice_is_asked_for_its_chip_too(make_lab: Any) -> None:
    make_lab()
    held = hold()
    held.ask_for("OWN")
    assert held.prepared.name == "android"
    held.ask_for("other")
    words = "a chip named like 'other', and android is another"
    with pytest.raises(NotMeasurableError, match=words):
        _ = held.prepared


def test_a_stage_is_done_again_from_its_start_on_another_phone(make_lab: Any) -> None:
    make_lab(a="X", b="X")
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

        return session.retry_on_one_device(lambda: session._once(make, "traced", name))

    assert session.retry_on_one_device(lambda: (arm("on"), arm("off"))) == ("b", "b")
    assert used == ["on on a", "off on a", "on on b", "off on b"]


class PretendedFarm:
    """Hands out phones in their order."""

    def __init__(self, *serials: str) -> None:
        self.free = list(serials)
        self.events: list[str] = []

    def acquire(self, soc: str | None) -> FarmDevice | None:
        if not self.free:
            return None
        self.events.append(f"{self.free[0]} for {soc}")
        return FarmDevice(self.free.pop(0), "farm:5037")

    def release(self, farm_device: FarmDevice, *, lost: bool) -> None:
        self.events.append(f"{farm_device.serial} {'lost' if lost else 'back'}")


def test_a_farm_hands_phones_out_and_gets_all_of_them_back(
    make_lab: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    lab = make_lab(a="X", b="X", c="Y")
    asked: list[tuple[tuple[str, ...], str | None]] = []

    def choose(settings: Settings, **wishes: Any) -> Phone:
        asked.append((settings.serials, settings.adb_server))
        lab.socs = {serial: lab.socs[serial] for serial in settings.serials or ("c",)}
        return lab.choose(settings, **wishes)  # type: ignore[no-any-return]

    monkeypatch.setattr(device, "choose_target", choose)
    farm = PretendedFarm("a", "b")
    held = hold(farm)
    kinds = dict(lab.socs)
    assert serial(held) == "a"
    lab.socs = kinds
    held.replace(DeviceGoneError("a is gone."))
    assert serial(held) == "b"
    lab.socs = kinds
    held.ask_for("Y")
    # A farm that has nothing leaves it to what is attached.
    assert serial(held) == "c"
    held.close()
    assert farm.events == ["a for None", "a lost", "b for None", "b back"]
    assert asked == [(("a",), "farm:5037"), (("b",), "farm:5037"), ((), None)]


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
    assert farm.events == ["a for None", "a lost"]


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


@pytest.mark.skipif(sys.platform != "linux", reason="the fake phone's adb is a Linux program")
def test_a_machine_without_adb_takes_the_fake_phones(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    told: list[str] = []
    monkeypatch.setattr("pytest_sme2.targets.phone.adb.find_adb", lambda: None)
    parts = Parts(*(tmp_path / name for name in ("adb", "d", "sh", "t", "p")), libraries=())
    monkeypatch.setattr("pytest_sme2.fake_phone.lab.find_parts", lambda progress: parts)
    assert device._adb(told.append) == tmp_path / "adb"
    # Where nobody can be told, nothing is fetched.
    assert device._adb(None) is None

    def fail(progress: object) -> Parts:
        raise TargetError("The network is down.")

    monkeypatch.setattr("pytest_sme2.fake_phone.lab.find_parts", fail)
    assert device._adb(told.append) is None
    assert told == ["no adb was found, and none could be fetched: The network is down."]
