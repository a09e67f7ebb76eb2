"""Our adb client against adbutils, an independent one, on the same server and adbd."""

from __future__ import annotations

import random
import socket
from pathlib import Path

import adbutils
import pytest

from pytest_sme2.fake_phone.lab import FakeLab, FakePhone
from pytest_sme2.targets.phone.adb import AdbDevice, AdbServer

HOSTILE = "a b'c\"d;$(touch pwned)`id`&|<script>"
SIZES = [0, 1, 65_535, 65_536, 65_537, 3_000_000]


@pytest.fixture
def client(lab: FakeLab, monkeypatch: pytest.MonkeyPatch) -> adbutils.AdbClient:
    """It knows only ports, and is handed the socket."""

    def connect(connection: object) -> socket.socket:
        made = socket.socket(socket.AF_UNIX)
        made.connect(lab.server.host)
        return made

    monkeypatch.setattr(adbutils.AdbConnection, "_create_socket", connect)
    return adbutils.AdbClient()


@pytest.fixture
def theirs(client: adbutils.AdbClient, device: AdbDevice) -> adbutils.AdbDevice:
    """The same phone as adbutils sees it."""
    return client.device(device.serial)


def test_both_list_the_same_devices(
    client: adbutils.AdbClient, device: AdbDevice, server: AdbServer
) -> None:
    listed = client.list()
    assert {entry.serial: entry.state for entry in listed} == server.devices()
    assert server.devices()[device.serial] == "device"


@pytest.mark.parametrize(
    "command",
    [
        "true",
        "exit 3",
        "echo out; echo err >&2; exit 200",
        "printf 'no newline'",
        "kill -9 $$",
        "no_such_program",
        "cat /dev/zero | head -c 200000",
        "printf 'é\\377'",
    ],
)
def test_shells_end_and_speak_alike(
    device: AdbDevice, theirs: adbutils.AdbDevice, command: str
) -> None:
    ours = device.shell(command)
    other = theirs.shell2(command, v2=True, encoding=None)
    assert (ours.code, ours.stdout, ours.stderr) == (
        other.returncode,
        other.stdout,
        other.stderr,
    )


def test_words_are_quoted_alike(device: AdbDevice, theirs: adbutils.AdbDevice) -> None:
    words = ["printf", "%s|", HOSTILE, "", "$HOME", "\\"]
    assert device.shell(words).stdout == theirs.shell2(words, v2=True, encoding=None).stdout


@pytest.mark.parametrize("size", SIZES)
def test_each_reads_what_the_other_wrote(
    device: AdbDevice, theirs: adbutils.AdbDevice, phone: FakePhone, tmp_path: Path, size: int
) -> None:
    content = random.Random(size).randbytes(size)
    source = tmp_path / f"source {HOSTILE}"
    source.write_bytes(content)
    device.push(source, "/data/local/tmp/ours", mode=0o755)
    assert theirs.sync.read_bytes("/data/local/tmp/ours") == content
    theirs.sync.push(source, "/data/local/tmp/theirs", mode=0o755)
    modes = {theirs.sync.stat(f"/data/local/tmp/{name}").mode for name in ("ours", "theirs")}
    # adbd itself gives everybody what the owner may.
    assert [mode & 0o700 for mode in modes] == [0o700]
    device.pull("/data/local/tmp/theirs", tmp_path / "pulled")
    assert (tmp_path / "pulled").read_bytes() == content


def test_hostile_paths_are_the_same_path_to_both(
    device: AdbDevice, theirs: adbutils.AdbDevice, phone: FakePhone
) -> None:
    device.push(b"content", f"/data/local/tmp/{HOSTILE}\n.bin")
    assert theirs.sync.read_bytes(f"/data/local/tmp/{HOSTILE}\n.bin") == b"content"
    assert "pwned" not in phone.files()
