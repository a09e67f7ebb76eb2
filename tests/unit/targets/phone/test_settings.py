"""What a user may write about phones."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from pytest_sme2.errors import ConnectionLostError, MissingExtraError, UsageError
from pytest_sme2.targets.labgrid import Lab
from pytest_sme2.targets.phone.adb import open_server
from pytest_sme2.targets.settings import (
    adb_server_from,
    is_network_serial,
    parse_adb_server,
    parse_cpus,
    parse_device,
    parse_lab,
    parse_serials,
)


def test_serials_are_collected_once_each() -> None:
    assert parse_serials(["a,b", "b", " c "]) == ("a", "b", "c")
    assert parse_serials([]) == ()
    assert parse_serials(["x y;$(z)"]) == ("x y;$(z)",)


@pytest.mark.parametrize(
    ("parse", "value", "expected"),
    [
        (parse_device, "android", "android"),
        (parse_adb_server, "lab:5037", ("lab", 5037)),
        (parse_adb_server, "127.0.0.1:1", ("127.0.0.1", 1)),
        (parse_adb_server, "tcp:lab.example:65535", ("lab.example", 65535)),
        (parse_adb_server, "[::1]:5037", ("::1", 5037)),
        (parse_adb_server, "localfilesystem:/run/adb", ("/run/adb", 0)),
        (parse_cpus, "big", "big"),
        (parse_cpus, "LITTLE", "little"),
        (parse_cpus, "4-7", (4, 5, 6, 7)),
        (parse_cpus, "2,0,0-1", (0, 1, 2)),
    ],
)
def test_what_is_taken(parse: Callable[[str], object], value: str, expected: object) -> None:
    assert parse(value) == expected


WRONG: dict[Callable[[str], object], tuple[str, list[str]]] = {
    parse_adb_server: (
        "is not the address of an adb server",
        ["", "lab", "lab:", ":5037", "lab:0", "lab:65536", "a b:1", "l;x:1", "localfilesystem:run"],
    ),
    parse_cpus: (
        r"does not name cores\. Choose one of: big, little",
        ["", "huge", "7-4", "0xf0", "-1", "1;2", "99999"],
    ),
}


@pytest.mark.parametrize("parse", WRONG)
def test_what_is_refused(parse: Callable[[str], object]) -> None:
    message, values = WRONG[parse]
    for value in values:
        with pytest.raises(UsageError, match=message):
            parse(value)


@pytest.mark.parametrize(
    ("environment", "expected"),
    [
        ({}, ("127.0.0.1", 5037)),
        ({"ANDROID_ADB_SERVER_PORT": "6000"}, ("127.0.0.1", 6000)),
        ({"ANDROID_ADB_SERVER_ADDRESS": "far"}, ("far", 5037)),
        ({"ADB_SERVER_SOCKET": "tcp:far:7", "ANDROID_ADB_SERVER_PORT": "6000"}, ("far", 7)),
    ],
)
def test_environment_variables_of_adb_are_used(
    environment: dict[str, str], expected: tuple[str, int]
) -> None:
    assert adb_server_from(environment) == expected


@pytest.mark.parametrize(
    ("serial", "expected"),
    [
        ("192.168.1.7:5555", True),
        ("phone.lan:41234", True),
        ("R5CT1234", False),
        ("emulator-5554", False),
        ("host:99999", False),
        ("host:55;id", False),
    ],
)
def test_which_serials_are_addresses(serial: str, expected: bool) -> None:
    assert is_network_serial(serial) is expected


def test_tags_of_places() -> None:
    tags = {"soc": "dimensity-9500", "rack": "2"}
    assert parse_lab("lab:80,soc=dimensity-9500, rack=2") == {"lab": "lab:80", "lab_filter": tags}


def test_a_lab_needs_its_extra(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "grpc", None)
    with pytest.raises(MissingExtraError, match=r"--sme2-lab needs.*pytest-sme2\[labgrid\]"):
        Lab("lab.example.org", {}, print).size()


def test_no_test_starts_an_adb_server_that_goes_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What looks for phones starts one that outlives it, unless the address is another one."""
    started, adb = tmp_path / "started", tmp_path / "adb"
    adb.write_text(f"#!/bin/sh\ntouch {started}\n", "utf-8")
    adb.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}{os.pathsep}{os.environ['PATH']}")
    with pytest.raises(ConnectionLostError, match=r"No adb server answers at 127\.0\.0\.2"):
        open_server()
    assert not started.exists()
