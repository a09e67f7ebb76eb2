"""The rules of leasing, within one process."""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from pytest_sme2.errors import ConnectionLostError, RunError, TargetError
from pytest_sme2.system import locks
from pytest_sme2.targets.phone import target as phone_target
from pytest_sme2.targets.phone.adb import AdbDevice, AdbServer
from pytest_sme2.targets.phone.target import lease_phone, redo_when_lost, take_lease

SERVER = AdbServer("server", 1)


@dataclass
class Leased:
    """As much of a phone as is leased."""

    device: AdbDevice
    lease: Any
    progress: Any
    patience_seconds = 0.1

    @property
    def serial(self) -> str:
        return self.device.serial


@pytest.fixture(autouse=True)
def machine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A machine of our own, with phones that are there but for those named ``dead``."""

    def make_ready(server: AdbServer, serial: str, **_: Any) -> None:
        if serial.startswith("dead"):
            raise ConnectionLostError(f"{serial} does not answer.")

    monkeypatch.setattr(locks, "_MACHINE_FOLDERS", (tmp_path,))
    monkeypatch.setattr(phone_target, "AndroidTarget", Leased)
    monkeypatch.setattr(phone_target, "make_ready", make_ready)
    monkeypatch.setattr(phone_target, "_ours", set())
    monkeypatch.setattr(phone_target, "_own", {})
    return tmp_path


def lease(*serials: str, **choices: Any) -> Any:
    return lease_phone(SERVER, serials, **{"timeout": 0, **choices})


def test_each_lease_is_another_device_and_ours_are_not_waited_for() -> None:
    taken = [lease("a", "b", "c") for _ in range(3)]
    assert [each.serial for each in taken] == ["a", "b", "c"]
    # One that a process has already is one that died under it.
    with pytest.raises(TargetError, match=r"No device is left\. a was lost before\. b was lost"):
        lease("a", "b", "c")
    taken[1].lease.close()
    assert lease("a", "b", "c").serial == "b"
    elsewhere = take_lease(AdbServer("elsewhere", 1), "a")
    assert elsewhere is not None


def test_a_phone_by_cable_and_by_wifi_is_leased_once(monkeypatch: pytest.MonkeyPatch) -> None:
    cable, wireless = lease("R5CX"), "adb-R5CX-gk3Vxw._adb-tls-connect._tcp"
    for answer in ("R5CX", wireless):  # and when it does not answer any more
        monkeypatch.setattr(phone_target, "own_serial", lambda *_, said=answer: said)
        assert take_lease(cable.device.server, wireless) is None


def test_one_that_does_not_work_is_passed_over() -> None:
    assert lease("dead", "a").serial == "a"
    with pytest.raises(ConnectionLostError, match="dead does not answer"):
        lease("dead")
    with pytest.raises(TargetError, match=r"No device is left\. dead does not .* deader does not"):
        lease("dead", "deader")
    with pytest.raises(TargetError, match=r"No device is left\. None was given\."):
        lease()


def test_one_in_use_is_waited_for_and_that_is_told_once(monkeypatch: pytest.MonkeyPatch) -> None:
    held = take_lease(SERVER, "a")
    # As if another process had it.
    monkeypatch.setattr(phone_target, "_ours", set())
    told: list[str] = []
    with pytest.raises(TargetError, match=r"All devices are in use.*a \(process \d+ of \S+, since"):
        lease("a", timeout=0.4, progress=told.append)
    (line,) = told
    assert line.startswith("waiting for one of 1 devices to become free: a (process ")
    assert held is not None
    held.close()
    assert lease("a").serial == "a"


def test_hostile_serials_are_names(machine: Path) -> None:
    serial = "../../x; $(id)\n<script>'\""
    assert lease(serial).serial == serial
    assert all(re.fullmatch(r"[\w.-]+", path.name) for path in machine.rglob("*"))


class Phone:
    """Loses its connection so many times, and needs so many attempts to come back."""

    def __init__(self, losses: int, absent: int = 0) -> None:
        self.losses, self.absent = losses, absent
        self.measured = self.recovered = 0
        self.events: list[str] = []

    def measure(self) -> str:
        self.measured += 1
        if self.measured <= self.losses:
            raise ConnectionLostError(f"Lost ({self.measured}).")
        return "result"

    def recover(self) -> None:
        self.recovered += 1
        if self.recovered <= self.absent:
            raise ConnectionLostError("Not there.")


def test_it_is_redone_until_it_is_done() -> None:
    phone = Phone(losses=2)
    told: list[str] = []
    assert redo_when_lost(phone, phone.measure, progress=told.append) == "result"
    assert phone.measured == 3
    assert phone.recovered == 2
    assert told[0] == "Lost (1). Measuring the pair again."
    said = r"was away for \d+ s, and a pair was repeated"
    assert [bool(re.fullmatch(said, event)) for event in phone.events] == [True, True]


def test_after_the_retries_there_is_one_error() -> None:
    phone = Phone(losses=9)
    said = r"Stopped after 4 attempts.*Last: Lost \(4\)\."
    with pytest.raises(TargetError, match=said) as caught:
        redo_when_lost(phone, phone.measure)
    assert not isinstance(caught.value, ConnectionLostError)
    assert phone.recovered == 3


def test_a_device_that_takes_a_while_is_waited_for() -> None:
    phone = Phone(losses=1, absent=2)
    assert redo_when_lost(phone, phone.measure) == "result"
    assert phone.recovered == 3


def test_lost_device_is_an_error() -> None:
    phone = Phone(losses=1, absent=99)
    said = r"Lost \(1\)\. It did not come back within 0.1 s: Not there"
    with pytest.raises(TargetError, match=said):
        redo_when_lost(phone, phone.measure, patience_seconds=0.1)


def test_other_errors_are_not_retried() -> None:
    phone = Phone(losses=0)

    def crash() -> None:
        raise RunError("The runner crashed.")

    with pytest.raises(RunError):
        redo_when_lost(phone, crash)
    assert phone.recovered == 0
