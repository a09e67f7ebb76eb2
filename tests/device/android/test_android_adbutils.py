"""What adbutils cannot do, done on a real server and adbd."""

from __future__ import annotations

import random
import socket
import time
from pathlib import Path

import pytest

from pytest_sme2.errors import DeviceTimeoutError, TargetError
from pytest_sme2.fake_phone.lab import FakePhone
from pytest_sme2.targets.phone.adb import AdbDevice, AdbServer

HOSTILE = "a b'c\"d;$(touch pwned)`id`&|<script>"


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


def test_the_deadline_is_for_the_whole_command(device: AdbDevice) -> None:
    slow = "for i in 1 2 3 4 5 6 7 8; do echo $i; sleep 0.25; done"
    began = time.monotonic()
    with pytest.raises(DeviceTimeoutError):
        device.shell(slow, timeout=1)
    assert time.monotonic() - began < 60


def test_a_command_that_reads_its_input_ends(device: AdbDevice) -> None:
    assert device.shell("cat", timeout=60).code == 0


def test_a_failed_push_says_why(device: AdbDevice) -> None:
    with pytest.raises(TargetError, match=r"could not write /proc/version: .*[a-z]{5}"):
        device.push(b"content", "/proc/version")


def test_a_long_command_is_refused_here(device: AdbDevice) -> None:
    with pytest.raises(TargetError, match="too long for adb"):
        device.shell(["true", "x" * 70_000])


def test_a_name_that_is_not_utf_8_reaches_the_phone(device: AdbDevice) -> None:
    assert device.shell(["printf", "%s", "\udcff"]).stdout == b"\xff"


def test_what_a_command_printed_and_its_end(device: AdbDevice) -> None:
    for command, code, printed in (
        ("true", 0, b""),
        ("exit 3", 3, b""),
        ("kill -9 $$", 137, b""),
        ("no_such_program", 127, b""),
        ("cat /dev/zero | head -c 2000000", 0, bytes(2_000_000)),
        ("printf 'é\\377'", 0, b"\xc3\xa9\xff"),
    ):
        done = device.shell(command)
        assert (done.code, done.stdout) == (code, printed)


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
