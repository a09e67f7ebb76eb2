"""The rules of leasing, within one process."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from pytest_sme2.errors import ConnectionLostError, RunError, TargetError
from pytest_sme2.system import locks
from pytest_sme2.targets.phone.leases import DevicePool, redo_when_lost


def make_pool(folder: Path, *serials: str, run: str = "run", server: str = "server") -> DevicePool:
    return DevicePool(server, serials, run=run, folder=folder)


def test_each_lease_is_another_device(tmp_path: Path) -> None:
    pool = make_pool(tmp_path, "a", "b", "c")
    leases = [pool.lease(timeout=1) for _ in range(3)]
    assert [lease.serial for lease in leases] == ["a", "b", "c"]
    with pytest.raises(TargetError, match="All devices are in use"):
        pool.lease(timeout=0.1)
    leases[1].release()
    assert pool.lease(timeout=1).serial == "b"


def test_workers_may_start_at_different_devices(tmp_path: Path) -> None:
    pool = make_pool(tmp_path, "a", "b", "c")
    leases = [pool.lease(prefer=4) for _ in range(3)]
    assert [lease.serial for lease in leases] == ["b", "c", "a"]


def test_the_same_serial_at_another_server_is_another_device(tmp_path: Path) -> None:
    first = make_pool(tmp_path, "a").lease()
    second = make_pool(tmp_path, "a", server="elsewhere").lease(timeout=1)
    assert first.serial == second.serial


def test_retired_device_is_skipped_by_its_run_only(tmp_path: Path) -> None:
    pool = make_pool(tmp_path, "a", "b")
    pool.retire("a", "it died")
    assert pool.retired() == {"a": "it died"}
    assert make_pool(tmp_path, "a", "b").lease().serial == "b"
    assert make_pool(tmp_path, "a", "b", run="another").lease().serial == "a"


def test_reasons_are_listed_when_no_device_is_left(tmp_path: Path) -> None:
    pool = make_pool(tmp_path, "a", "b")
    pool.retire("a", "it died")
    with pytest.raises(TargetError) as caught:
        pool.lease(accept=lambda serial: False)
    assert "a: it died" in str(caught.value)
    assert "b: not of the kind that was asked for" in str(caught.value)
    with pytest.raises(TargetError, match=r"No device is left\. None was given\."):
        make_pool(tmp_path).lease()


def test_waiting_is_reported_once(tmp_path: Path) -> None:
    pool = make_pool(tmp_path, "a")
    held = pool.lease()
    told: list[str] = []
    with pytest.raises(TargetError):
        pool.lease(timeout=0.4, progress=told.append)
    (line,) = told
    assert re.fullmatch(
        r"waiting for one of 1 devices to become free: "
        r"a \(process \d+ of \S+, since \d\d:\d\d:\d\d\)",
        line,
    )
    held.release()


def test_two_caches_do_not_share_a_phone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    shared = tmp_path / "shared"
    shared.mkdir()
    shared.chmod(0o1777)
    monkeypatch.setattr(locks, "_MACHINE_FOLDERS", (shared,))
    server = "server"
    monkeypatch.setenv("SME2_CACHE_DIR", str(tmp_path / "one"))
    held = DevicePool(server, ["a"], run="one").lease()
    monkeypatch.setenv("SME2_CACHE_DIR", str(tmp_path / "two"))
    with pytest.raises(TargetError, match=r"in use by other processes.*a \(process \d+ of"):
        DevicePool(server, ["a"], run="two").lease(timeout=0)
    held.release()
    DevicePool(server, ["a"], run="two").lease(timeout=0).release()


def test_hostile_serials_are_names(tmp_path: Path) -> None:
    serial = "../../x; $(id)\n<script>'\""
    pool = make_pool(tmp_path / "leases", serial)
    assert pool.lease().serial == serial
    pool.retire(serial, "gone")
    assert pool.retired() == {serial: "gone"}
    assert [path.name for path in tmp_path.iterdir()] == ["leases"]


class Phone:
    """Loses its connection so many times, and needs so many attempts to come back."""

    def __init__(self, losses: int, absent: int = 0) -> None:
        self.losses = losses
        self.absent = absent
        self.measured = 0
        self.recovered = 0
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
    with pytest.raises(
        TargetError, match=r"Stopped after 3 attempts.*Last: Lost \(3\)\."
    ) as caught:
        redo_when_lost(phone, phone.measure, retries=2)
    assert not isinstance(caught.value, ConnectionLostError)
    assert phone.recovered == 2


def test_a_device_that_takes_a_while_is_waited_for() -> None:
    phone = Phone(losses=1, absent=2)
    assert redo_when_lost(phone, phone.measure) == "result"
    assert phone.recovered == 3


def test_lost_device_is_an_error() -> None:
    phone = Phone(losses=1, absent=99)
    with pytest.raises(
        TargetError, match=r"Lost \(1\)\. It did not come back within 0.1 s: Not there"
    ):
        redo_when_lost(phone, phone.measure, patience_seconds=0.1)


def test_other_errors_are_not_retried() -> None:
    phone = Phone(losses=0)

    def crash() -> None:
        raise RunError("The runner crashed.")

    with pytest.raises(RunError):
        redo_when_lost(phone, crash)
    assert phone.recovered == 0
