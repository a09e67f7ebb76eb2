"""A phone's own lease, by the commands of a real shell in a folder that stands for the phone."""

from __future__ import annotations

import os
import subprocess
import time
from pathlib import Path

import pytest

from pytest_sme2.errors import BusyError, TargetError
from pytest_sme2.targets.phone import leases
from pytest_sme2.targets.phone.adb import ShellResult
from pytest_sme2.targets.phone.leases import IDLE_SECONDS, Claim, DevicePool, Lease


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
    file: Path, machines: list[Path], tmp_path: Path
) -> None:
    other = make(machines[0])
    pool = DevicePool("server", ["phone"], run="run", folder=tmp_path / "leases")

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
