"""Answers of an adb server that are too long, or not its protocol."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from pathlib import Path

import pytest

from pytest_sme2.errors import TargetError
from pytest_sme2.targets.phone import adb
from pytest_sme2.targets.phone.adb import AdbDevice
from tests.support.phones import answering

OPENED = b"OKAY" + bytes(8) + b"OKAY"


@contextlib.contextmanager
def phone(answer: bytes) -> Iterator[AdbDevice]:
    with answering(answer) as server:
        yield AdbDevice(server, "phone")


@pytest.mark.parametrize(
    "answer",
    [OPENED + b"\1\xff\xff\xff\xff", OPENED + b"\3\0\0\0\0", b"HTTP/1.1 400 Bad Request"],
    ids=["a-huge-packet", "an-end-without-code", "another-server"],
)
def test_what_is_not_the_protocol_is_one_error(answer: bytes) -> None:
    with phone(answer) as device, pytest.raises(TargetError, match=r"adb server|HTTP"):
        device.shell("id")


def test_a_server_may_have_an_ipv6_address() -> None:
    """adbutils connects to IPv4 alone."""
    try:
        with answering(b"OKAY00040029", "::1") as server:
            assert server.version() == 0x29
    except OSError as error:
        pytest.skip(f"no IPv6 here: {error}")


def test_a_length_that_is_not_a_number() -> None:
    with phone(b"OKAYwhat") as device, pytest.raises(TargetError, match="really an adb server"):
        device.server.devices()


def test_output_without_end_is_cut_short(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(adb, "MOST_OUTPUT", 1000)
    with (
        phone(OPENED + b"\1\0\4\0\0" + bytes(1024) + b"\1\1\0\0\0x") as device,
        pytest.raises(TargetError, match="More than 0 MiB came while running yes on phone"),
    ):
        device.shell("yes")


def test_a_file_without_end_is_not_kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(adb, "LARGEST_FILE", 1000)
    with (
        phone(OPENED + (b"DATA\0\4\0\0" + bytes(1024)) * 2) as device,
        pytest.raises(TargetError, match="MiB came while reading 'x' on phone"),
    ):
        device.pull("/x", tmp_path / "x")
    assert list(tmp_path.iterdir()) == []
