"""The rules of leasing, within one process."""

from __future__ import annotations

import os
import re
import subprocess
import time
from pathlib import Path

import pytest

from pytest_sme2.errors import BusyError, ConnectionLostError, RunError, TargetError
from pytest_sme2.system import locks
from pytest_sme2.targets.phone import leases
from pytest_sme2.targets.phone.answers import ShellResult
from pytest_sme2.targets.phone.leases import IDLE_SECONDS, Claim, DevicePool, Lease, redo_when_lost


@pytest.fixture(autouse=True)
def machine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A machine of our own: the folder of its cache."""
    monkeypatch.setattr(locks, "_MACHINE_FOLDERS", (tmp_path,))
    monkeypatch.setenv("SME2_CACHE_DIR", str(tmp_path / "cache"))
    return tmp_path / "cache"


def make_pool(*serials: str, run: str = "run", server: str = "server") -> DevicePool:
    return DevicePool(server, serials, run=run)


def test_each_lease_is_another_device() -> None:
    pool = make_pool("a", "b", "c")
    leases = [pool.lease(timeout=1) for _ in range(3)]
    assert [lease.serial for lease in leases] == ["a", "b", "c"]
    with pytest.raises(TargetError, match="All devices are in use"):
        pool.lease(timeout=0.1)
    leases[1].release()
    assert pool.lease(timeout=1).serial == "b"


def test_the_same_serial_at_another_server_is_another_device() -> None:
    first = make_pool("a").lease()
    second = make_pool("a", server="elsewhere").lease(timeout=1)
    assert first.serial == second.serial


def test_retired_device_is_skipped_by_its_run_only() -> None:
    pool = make_pool("a", "b")
    pool.retire("a", "it died")
    assert pool.retired() == {"a": "it died"}
    assert make_pool("a", "b").lease().serial == "b"
    assert make_pool("a", "b", run="another").lease().serial == "a"


def test_reasons_are_listed_when_no_device_is_left() -> None:
    pool = make_pool("a", "b")
    pool.retire("a", "it died")
    with pytest.raises(TargetError, match="a: it died; b: not of the kind that was asked for"):
        pool.lease(accept=lambda serial: False)
    with pytest.raises(TargetError, match=r"No device is left\. None was given\."):
        make_pool().lease()


def test_waiting_is_reported_once() -> None:
    pool = make_pool("a")
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
    held = make_pool("a").lease()
    monkeypatch.setenv("SME2_CACHE_DIR", str(tmp_path / "two"))
    with pytest.raises(TargetError, match=r"in use by other processes.*a \(process \d+ of"):
        make_pool("a", run="two").lease(timeout=0)
    held.release()
    make_pool("a", run="two").lease(timeout=0).release()


def test_hostile_serials_are_names(machine: Path) -> None:
    serial = "../../x; $(id)\n<script>'\""
    pool = make_pool(serial)
    assert pool.lease().serial == serial
    pool.retire(serial, "gone")
    assert pool.retired() == {serial: "gone"}
    assert all(re.fullmatch(r"[\w.-]+", path.name) for path in machine.parent.rglob("*"))


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


class Device:
    serial = "phone"

    def shell(self, command: str, *, timeout: float = 30.0) -> ShellResult:
        done = subprocess.run(["sh", "-c", command], capture_output=True, timeout=timeout)
        return ShellResult(done.returncode, done.stdout, done.stderr)


@pytest.fixture
def file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The claim's file; its folder has nothing else in it."""
    (tmp_path / "phone").mkdir()
    path = tmp_path / "phone" / "lease.json"
    monkeypatch.setattr(leases, "CLAIM", str(path))
    return path


@pytest.fixture
def machines(tmp_path: Path) -> list[Path]:
    """The lock files of two machines."""
    locks = [tmp_path / "one.lock", tmp_path / "two.lock"]
    for lock in locks:
        lock.touch()
    return locks


def make(lock: Path) -> Claim:
    return Claim(Device(), lock)  # type: ignore[arg-type]


def age(file: Path, seconds: float) -> None:
    then = time.time() - seconds
    os.utime(file, (then, then))


def test_one_machine_at_a_time(file: Path, machines: list[Path]) -> None:
    first = make(machines[0])
    with pytest.raises(BusyError, match=r"phone is used by \S+ on \S+ \(process \d+\).* shell rm "):
        make(machines[1])
    first.release()
    assert list(file.parent.iterdir()) == []
    make(machines[1]).release()


def test_a_process_of_this_machine_that_was_killed_keeps_nobody_waiting(
    file: Path, machines: list[Path]
) -> None:
    make(machines[0])
    again = make(machines[0])
    assert file.read_text() == again.text


def test_a_machine_that_was_cloned_is_another_one(
    file: Path, machines: list[Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its name, its disk and the lock's inode are the same: only its start is its own."""
    ours = make(machines[0])
    boot = tmp_path / "boot_id"
    boot.write_text("00000000-0000-4000-8000-000000000000\n")
    monkeypatch.setattr(locks, "_BOOT", boot)
    with pytest.raises(BusyError, match="is used by"):
        make(machines[0])
    assert file.read_text() == ours.text


def test_a_machine_that_is_gone_keeps_others_waiting_for_a_while(
    file: Path, machines: list[Path]
) -> None:
    gone = make(machines[0])
    age(file, IDLE_SECONDS + 60)
    taken = make(machines[1])
    assert file.read_text() == taken.text
    # It comes back: it notices, and does not remove what is another's.
    with pytest.raises(BusyError, match="is used by"):
        gone.renew()
    gone.release()
    assert file.read_text() == taken.text


def test_a_run_renews_the_claim(file: Path, machines: list[Path]) -> None:
    made = make(machines[0])
    age(file, IDLE_SECONDS + 60)
    made.renew()
    with pytest.raises(BusyError):
        make(machines[1])
    file.unlink()
    made.renew()
    assert file.read_text() == made.text


@pytest.mark.parametrize(
    "content",
    [b"", b"{", b"\xff\0\x1b[31m\n\n", b"[" * 100_000, b'{"lock": 1, "user": "\\ud800"}\n'],
)
def test_anything_may_be_in_the_file(file: Path, machines: list[Path], content: bytes) -> None:
    file.write_bytes(content)
    with pytest.raises(BusyError, match="is used by"):
        make(machines[0])
    assert file.read_bytes() == content
    age(file, IDLE_SECONDS + 60)
    made = make(machines[0])
    assert file.read_text() == made.text
    assert list(file.parent.iterdir()) == [file]


def test_something_that_is_not_a_file_is_left_alone(file: Path, machines: list[Path]) -> None:
    file.mkdir()
    age(file, IDLE_SECONDS + 60)
    with pytest.raises(TargetError, match="cannot keep the file"):
        make(machines[0])
    assert list(file.parent.iterdir()) == [file]


def test_a_phone_that_cannot_keep_it_says_so(file: Path, machines: list[Path]) -> None:
    file.parent.rmdir()
    with pytest.raises(TargetError, match=r"phone cannot keep the file .*No such file.*Free space"):
        make(machines[0])


def test_a_pool_waits_for_a_phone_that_another_machine_uses(
    file: Path, machines: list[Path]
) -> None:
    other = make(machines[0])
    pool = make_pool("phone")

    def accept(lease: Lease) -> bool:
        lease.lock.callback(make(pool.lock_file(lease.serial)).release)
        return True

    with pytest.raises(TargetError, match=r"All devices are in use.*phone is used by \S+ on "):
        pool.lease(timeout=0, accept=accept)
    other.release()
    lease = pool.lease(timeout=0, accept=accept)
    assert file.exists()
    lease.release()
    assert not file.exists()
