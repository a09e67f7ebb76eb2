"""Which phone is meant, and what a user reads when it cannot be used."""

from __future__ import annotations

import socket
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from pytest_sme2.errors import ConnectionLostError, TargetError, UsageError
from pytest_sme2.fake_phone.lab import FakeLab, find_parts
from pytest_sme2.targets.phone.adb import (
    INSTALL_ADB,
    AdbDevice,
    AdbServer,
    choose_serials,
    list_attached,
    make_ready,
)
from pytest_sme2.targets.phone.target import take_lease
from tests.support.phones import answering, start_lab


@pytest.fixture
def fresh_lab() -> Iterator[FakeLab]:
    """A lab whose server knows no device yet."""
    with start_lab() as made:
        yield made


@pytest.fixture
def fresh_server(fresh_lab: FakeLab) -> AdbServer:
    return fresh_lab.server


def test_what_is_not_there_is_said(fresh_server: AdbServer) -> None:
    with pytest.raises(TargetError, match=r"No device is attached.*USB debugging.*--sme2-serial"):
        choose_serials(fresh_server, environment={})
    with pytest.raises(ConnectionLostError, match=r"Could not connect to 127.0.0.1:9: .*refused"):
        make_ready(fresh_server, "127.0.0.1:9", seconds=0.5)
    for serial in ("no-such", "a b;$(id)", "x'\n\"y", "<script>"):
        with pytest.raises(ConnectionLostError) as caught:
            make_ready(fresh_server, serial)
        assert f"No device has the serial {serial!r}. Attached: none." in str(caught.value)


def test_several_phones_without_a_choice_are_listed(
    fresh_lab: FakeLab, fresh_server: AdbServer
) -> None:
    phones = [
        fresh_lab.add(properties={"ro.product.model": model, "ro.build.version.release": release})
        for model, release in (("Alpha One", "15"), ("Beta", "16"))
    ]
    for phone in phones:
        fresh_server.connect(phone.serial)
    with pytest.raises(UsageError) as caught:
        choose_serials(fresh_server, environment={})
    message = str(caught.value)
    assert f"{phones[0].serial} (Alpha One, Android 15)" in message
    assert f"{phones[1].serial} (Beta, Android 16)" in message
    assert "--sme2-serial" in message
    # Named by the environment or by option, there is no question.
    chosen = choose_serials(fresh_server, environment={"ANDROID_SERIAL": phones[1].serial})
    assert chosen == (phones[1].serial,)
    both = tuple(phone.serial for phone in phones)
    assert choose_serials(fresh_server, both, environment={"ANDROID_SERIAL": "x"}) == both


def test_two_addresses_of_one_phone_are_one(fresh_lab: FakeLab, fresh_server: AdbServer) -> None:
    phones = [fresh_lab.add(properties={"ro.serialno": "R5CT10"}) for _ in range(2)]
    for phone in phones:
        fresh_server.connect(phone.serial)
    assert choose_serials(fresh_server, environment={}) == (phones[0].serial,)
    # Nor do two processes use it at once, if it is not connected yet either.
    fresh_server.disconnect(phones[1].serial)
    first = take_lease(fresh_server, phones[0].serial)
    assert first is not None
    assert take_lease(fresh_server, phones[1].serial) is None
    first.close()


def test_an_address_is_connected_and_the_only_one_attached_is_meant(
    fresh_lab: FakeLab, fresh_server: AdbServer
) -> None:
    phone = fresh_lab.add()
    assert phone.serial not in fresh_server.devices()
    make_ready(fresh_server, phone.serial)
    assert fresh_server.devices()[phone.serial] == "device"
    assert choose_serials(fresh_server, environment={}) == (phone.serial,)


@pytest.mark.parametrize(
    ("state", "advice"),
    [
        ("unauthorized", "accept 'Allow USB debugging'"),
        ("offline", "plug it in again"),
        ("no permissions (user in plugdev group; are your udev rules wrong?)", "udev rules"),
        ("recovery", "adb reboot"),
        ("something new", "Restart the phone"),
    ],
)
def test_unusable_phone_says_what_to_do(state: str, advice: str) -> None:
    lines = f"R5CT\t{state}\n".encode()
    with answering(b"OKAY%04x" % len(lines) + lines) as server:
        with pytest.raises(TargetError, match=f"The device R5CT is {state[:6]}") as caught:
            make_ready(server, "R5CT", seconds=0.3)
        assert advice in str(caught.value)
        # Another phone may take over from one that is lost, not from one that needs its user.
        assert isinstance(caught.value, ConnectionLostError) is (state == "offline")
        assert list_attached(server) == {"R5CT": f"R5CT ({state})"}


def test_a_server_that_does_not_answer_is_not_waited_for_for_ever() -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        server = AdbServer(*listener.getsockname())
        with pytest.raises(TargetError, match=r"did not finish in 0.3 s"):
            server.version(timeout=0.3)


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def test_missing_adb_says_how_to_get_it() -> None:
    with pytest.raises(TargetError) as caught:
        AdbServer("127.0.0.1", free_port(), ours_to_start=True).ensure_running(find=lambda: None)
    assert str(caught.value) == INSTALL_ADB
    assert "\n" not in INSTALL_ADB


def test_other_adb_server_is_never_started() -> None:
    def never() -> Path:
        raise AssertionError("looked for adb")

    with pytest.raises(TargetError, match=r"No adb server answers at 127.0.0.1:1.*Start one there"):
        AdbServer("127.0.0.1", 1).ensure_running(find=never)


def test_default_adb_server_is_started(tmp_path: Path) -> None:
    """One that sees no phone: a real one would take the user's."""
    parts, server = find_parts(), AdbServer("127.0.0.1", free_port(), ours_to_start=True)
    adb = tmp_path / "adb"
    alone = {"ADB_MDNS": 0, "ADB_USB": 0, "ADB_EMU": 0, "HOME": tmp_path, **parts.environment}
    words = " ".join(f"{name}={value}" for name, value in alone.items())
    adb.write_text(f'#!/bin/sh\n{words} exec {parts.adb} "$@"\n', "utf-8")
    adb.chmod(0o755)
    server.ensure_running(find=lambda: adb)
    try:
        assert server.devices() == {}
    finally:
        subprocess.run([adb, "-P", str(server.port), "kill-server"], check=True)


def test_a_device_that_went_away_is_a_lost_connection(
    fresh_lab: FakeLab, fresh_server: AdbServer
) -> None:
    phone = fresh_lab.add()
    make_ready(fresh_server, phone.serial)
    device = AdbDevice(fresh_server, phone.serial)
    fresh_server.disconnect(phone.serial)
    with pytest.raises(ConnectionLostError, match=r"does not answer while running true.*not found"):
        device.shell("true")
