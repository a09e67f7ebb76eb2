"""What adbutils cannot do, on a real server and adbd, and how our layer does it.

A test whose first half passes no more means that adbutils has learned it: take our part away.
"""

from __future__ import annotations

import random
import socket
import time
from pathlib import Path

import adbutils
import pytest

from pytest_sme2.errors import DeviceTimeoutError, TargetError
from pytest_sme2.fake_phone.lab import FakeLab, FakePhone
from pytest_sme2.targets.phone.adb import AdbDevice, AdbServer

HOSTILE = "a b'c\"d;$(touch pwned)`id`&|<script>"


@pytest.fixture
def theirs(lab: FakeLab, device: AdbDevice, monkeypatch: pytest.MonkeyPatch) -> adbutils.AdbDevice:
    """The phone as adbutils alone sees it. It knows only ports, and is handed the socket."""

    def connect(connection: object) -> socket.socket:
        made = socket.socket(socket.AF_UNIX)
        made.connect(lab.server.host)
        return made

    monkeypatch.setattr(adbutils.AdbConnection, "_create_socket", connect)
    return adbutils.AdbClient().device(device.serial)


# adbutils leaves the sockets open on which nobody answered.
@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
def test_a_server_is_not_started_unasked(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    started = tmp_path / "started"
    adb = tmp_path / "adb"
    adb.write_text(f"#!/bin/sh\ntouch {started}\n", encoding="utf-8")
    adb.chmod(0o755)
    monkeypatch.setenv("ADBUTILS_ADB_PATH", str(adb))
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = int(free.getsockname()[1])
    with pytest.raises(TargetError):
        AdbServer("127.0.0.1", port).devices()
    assert not started.exists()
    with pytest.raises(adbutils.AdbError):
        adbutils.AdbClient("127.0.0.1", port).list()
    assert started.exists()


def test_the_deadline_is_for_the_whole_command(
    device: AdbDevice, theirs: adbutils.AdbDevice
) -> None:
    """adbutils waits as long again after each line."""
    slow = "for i in 1 2 3 4 5 6 7 8; do echo $i; sleep 0.25; done"
    assert theirs.shell2(slow, v2=True, encoding=None, timeout=1).returncode == 0
    began = time.monotonic()
    with pytest.raises(DeviceTimeoutError):
        device.shell(slow, timeout=1)
    assert time.monotonic() - began < 60


def test_a_command_that_reads_its_input_ends(device: AdbDevice, theirs: adbutils.AdbDevice) -> None:
    with pytest.raises(adbutils.AdbTimeout):
        theirs.shell2("cat", v2=True, encoding=None, timeout=1)
    assert device.shell("cat", timeout=60).code == 0


def test_a_failed_push_says_why(device: AdbDevice, theirs: adbutils.AdbDevice) -> None:
    with pytest.raises(adbutils.AdbError) as caught:
        theirs.sync.push(b"content", "/proc/version")
    assert str(caught.value) == "FAIL"
    with pytest.raises(TargetError, match=r"could not write /proc/version: .*[a-z]{5}"):
        device.push(b"content", "/proc/version")


def test_a_long_command_is_refused_here(device: AdbDevice, theirs: adbutils.AdbDevice) -> None:
    with pytest.raises((adbutils.AdbError, OSError)):
        theirs.shell2("true " + "x" * 70_000, v2=True)
    with pytest.raises(TargetError, match="too long for adb"):
        device.shell(["true", "x" * 70_000])


def test_a_name_that_is_not_utf_8_reaches_the_phone(
    device: AdbDevice, theirs: adbutils.AdbDevice
) -> None:
    with pytest.raises(UnicodeEncodeError):
        theirs.shell2(["printf", "%s", "\udcff"], v2=True, encoding=None)
    assert device.shell(["printf", "%s", "\udcff"]).stdout == b"\xff"


def test_what_a_command_printed_and_its_end(device: AdbDevice, theirs: adbutils.AdbDevice) -> None:
    for command, code in {
        "true": 0,
        "exit 3": 3,
        "kill -9 $$": 137,
        "no_such_program": 127,
        "cat /dev/zero | head -c 2000000": 0,
        "printf 'é\\377'": 0,
    }.items():
        done = device.shell(command)
        other = theirs.shell2(command, v2=True, encoding=None)
        assert (done.code, done.stdout) == (code, other.stdout)


def test_a_file_comes_back_as_it_went(device: AdbDevice, phone: FakePhone, tmp_path: Path) -> None:
    source, pulled = tmp_path / f"source {HOSTILE}", tmp_path / "pulled"
    remote = f"/data/local/tmp/{HOSTILE}\n.bin"
    for size in (0, 1, 65_535, 65_536, 65_537, 3_000_000):
        source.write_bytes(random.Random(size).randbytes(size))
        device.push(source, remote, mode=0o755)
        assert device.shell(["test", "-x", remote]).code == 0
        device.pull(remote, pulled)
        assert pulled.read_bytes() == source.read_bytes()
    assert "pwned" not in phone.files()
