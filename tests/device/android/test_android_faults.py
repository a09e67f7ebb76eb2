"""Everything that can break, broken for real: a clear outcome, and the phone as it was."""

from __future__ import annotations

import contextlib
import hashlib
import os
import signal
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import adbutils
import pytest

from pytest_sme2.errors import ConnectionLostError, TargetError
from pytest_sme2.fake_phone.lab import FakePhone
from pytest_sme2.results.run import PAIR, Arm
from pytest_sme2.targets.phone.adb import AdbDevice
from pytest_sme2.targets.phone.target import AndroidTarget, redo_when_lost
from tests.support.phones import MakeTarget, StartRun, leftovers, settings_of


def wait_for_runner(phone: FakePhone) -> None:
    while not any("./sme2_runner" in words for words in phone.processes().values()):
        time.sleep(0.02)


def test_a_run_that_lost_its_phone_is_ended_there_at_the_next_connect(
    phone: FakePhone, target: AndroidTarget, start: StartRun
) -> None:

    def cut() -> None:
        wait_for_runner(phone)
        phone.kill_adbd()

    cutter = threading.Thread(target=cut)
    cutter.start()
    with pytest.raises(ConnectionLostError):
        start(target, 600)
    cutter.join()
    assert any("./sme2_runner" in words for words in phone.processes().values())
    phone.start_adbd()
    target.recover()
    assert leftovers(phone, prepared=True) == []


def test_the_whole_pair_is_redone(phone: FakePhone, target: AndroidTarget, start: StartRun) -> None:
    done: list[Arm] = []

    def pair() -> int:
        for arm in PAIR:
            if len(done) == 1:
                phone.kill_adbd()
                threading.Timer(0.2, phone.start_adbd).start()
            done.append(arm)
            start(target, arm=arm)
        return len(done)

    assert redo_when_lost(target, pair) == 4
    assert done == [Arm.ON, Arm.OFF, Arm.ON, Arm.OFF]


def restart(phone: FakePhone) -> None:
    """All that runs on it ends; files and settings stay."""
    for pid in phone.processes():
        with contextlib.suppress(TargetError):
            os.kill(pid, signal.SIGKILL)
    phone.kill_adbd()
    time.sleep(0.3)
    phone.start_adbd()


def leave_wifi(phone: FakePhone) -> None:
    """The server forgets it, as when a phone on the network is out of reach; nobody reconnects."""
    phone.lab.server.disconnect(phone.serial)


@pytest.mark.parametrize("lose", [restart, leave_wifi])
def test_a_pair_is_redone_after_a_restart_and_without_wifi(
    phone: FakePhone, make_target: MakeTarget, start: StartRun, lose: Callable[[FakePhone], None]
) -> None:
    before = settings_of(phone)
    target = make_target(phone)
    attempts: list[threading.Thread] = []

    def lose_it() -> None:
        wait_for_runner(phone)
        lose(phone)

    def pair() -> list[int]:
        if not attempts:
            attempts.append(threading.Thread(target=lose_it))
            attempts[0].start()
        return [len(start(target, 1, arm, runs=2).wall_ns) for arm in PAIR]

    assert redo_when_lost(target, pair) == [2, 2]
    attempts[0].join()
    # It is prepared again, and measured as it was before.
    assert phone.setting("stay_on_while_plugged_in") == "15"
    assert any("a pair was repeated" in event for event in target.events)
    target.restore()
    assert settings_of(phone) == before
    assert leftovers(phone) == []


def test_lost_phone_is_one_clear_error(
    phone: FakePhone, target: AndroidTarget, start: StartRun
) -> None:
    target.patience_seconds = 0.1
    phone.kill_adbd()
    said = rf"{phone.serial}.* It did not come back within 0\.2 s"
    with pytest.raises(TargetError, match=said) as caught:
        redo_when_lost(target, lambda: start(target), patience_seconds=0.2)
    assert not isinstance(caught.value, ConnectionLostError)


def test_a_shell_that_hangs_is_not_waited_for_for_ever(device: AdbDevice) -> None:
    started = time.monotonic()
    with pytest.raises(TargetError, match=r"running sleep on .* did not finish in 0.5 s"):
        device.shell(["sleep", "600"], timeout=0.5)
    assert time.monotonic() - started < 120


def test_interrupted_pull_leaves_no_half_file(
    device: AdbDevice, phone: FakePhone, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    device.check("head -c 67108864 /dev/zero > /data/local/tmp/big")
    pulled = tmp_path / "big"
    received = 0
    read = adbutils.Sync.iter_content

    def cut(sync: adbutils.Sync, remote: str) -> Iterator[bytes]:
        nonlocal received
        for chunk in read(sync, remote):
            received += len(chunk)
            if received > 4 << 20 and received < 5 << 20:
                phone.kill_adbd()
            yield chunk

    monkeypatch.setattr(adbutils.Sync, "iter_content", cut)
    with pytest.raises(ConnectionLostError):
        device.pull("/data/local/tmp/big", pulled)
    assert received > 0
    assert list(tmp_path.iterdir()) == []


def test_an_interrupted_push_is_repeated_and_leaves_nothing(
    phone: FakePhone, target: AndroidTarget, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = tmp_path / "file"
    file.write_bytes(os.urandom(1 << 20))
    push = target.device.push
    pushes: list[str] = []

    def cut(source: Path | bytes, remote: str, **options: Any) -> None:
        pushes.append(remote)
        if len(pushes) == 1:
            phone.kill_adbd()
            threading.Timer(0.2, phone.start_adbd).start()
        push(source, remote, **options)

    monkeypatch.setattr(target.device, "push", cut)
    # What an earlier run left half pushed goes, too.
    target.device.check("mkdir -p /data/local/tmp/pytest-sme2/partial/abc")
    folder = redo_when_lost(target, lambda: target.storage.put({"file": file}))
    digest = hashlib.sha256(file.read_bytes()).hexdigest()
    assert target.device.check(f"sha256sum < {folder}/file").split()[0] == digest
    assert leftovers(phone, prepared=True) == []
