"""Which phone is meant, where adb lists several."""

from __future__ import annotations

import pytest

from pytest_sme2.errors import UsageError
from pytest_sme2.targets.phone import adb
from pytest_sme2.targets.phone.answers import ShellResult
from pytest_sme2.targets.settings import is_network_serial

ADDRESS = "192.0.2.7:5555"
CABLE, WIRELESS = "3A1FAKE", "adb-3A1FAKE-Xy9zQ1._adb-tls-connect._tcp"


@pytest.mark.parametrize(
    ("serial", "network"),
    [
        (WIRELESS, True),
        (f"{WIRELESS}.", True),
        ("adb-3A1FAKE-Xy9zQ1 (2)._adb-tls-connect._tcp", True),
        ("adb-R5-CT-1-vWgJpq._adb-tls-connect._tcp", True),
        (ADDRESS, True),
        (CABLE, False),
        ("adb-3A1FAKE-Xy9zQ1._adb-tls-pairing._tcp", False),
    ],
)
def test_a_phone_on_the_network_is_known_by_its_name(serial: str, network: bool) -> None:
    assert is_network_serial(serial) is network


def test_a_phone_on_a_cable_and_on_the_network_is_one(monkeypatch: pytest.MonkeyPatch) -> None:
    """``adb tcpip`` leaves an address, which does not tell whose it is: the phone does."""
    attached = {serial: serial for serial in (ADDRESS, CABLE, WIRELESS)}
    monkeypatch.setattr(adb, "list_attached", lambda server: dict(attached))
    known = {ADDRESS: CABLE, WIRELESS: CABLE}
    monkeypatch.setattr(
        *(adb.AdbDevice, "shell"),
        lambda device, *_, **__: ShellResult(0, known.get(device.serial, "").encode(), b""),
    )
    monkeypatch.setattr(adb.AdbServer, "connect", lambda *_, **__: "already connected")
    server = adb.AdbServer()
    assert adb.choose_serials(server, environment={}) == (CABLE,)
    known[ADDRESS] = "OTHER"
    with pytest.raises(UsageError, match=f"Several devices are attached: {CABLE}; {ADDRESS}"):
        adb.choose_serials(server, environment={})
    del attached[CABLE], attached[ADDRESS]
    assert adb.choose_serials(server, environment={}) == (WIRELESS,)
