"""The choices about a device. Pure: text in, values or errors that list the choices out."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from typing import Any

from pytest_sme2.errors import UsageError
from pytest_sme2.system.wording import one_of, split_list

DEVICES = ("auto", "mac", "linux", "emulated", "android")


_WIRELESS = re.compile(r"adb-.+-[A-Za-z0-9]+(?: \(\d+\))?\._adb-tls-connect\._tcp\.?")
_ADDRESS = re.compile(r"(?P<host>\[[0-9A-Fa-f:.]+\]|[A-Za-z0-9._-]+):(?P<port>[0-9]{1,5})")


def parse_device(value: str) -> str:
    return one_of(value, DEVICES, "a device")


def parse_serials(values: Iterable[str]) -> tuple[str, ...]:
    """The given serials; each may be a comma-separated list."""
    return tuple(dict.fromkeys(word for value in values for word in split_list(value)))


def parse_adb_server(value: str) -> tuple[str, int]:
    """``HOST:PORT``; an IPv6 host is in brackets, and ``tcp:`` may come first.

    A socket of this machine is ``localfilesystem:PATH``, as for adb itself; its host is the path.
    """
    if re.fullmatch(r"localfilesystem:/[^\0]{1,106}", value.strip()):
        return value.strip().partition(":")[2], 0
    match = _ADDRESS.fullmatch(value.strip().removeprefix("tcp:"))
    if match is None or not 1 <= int(match["port"]) <= 65535:
        raise UsageError(
            f"{value!r} is not the address of an adb server. Give HOST:PORT, as in lab-host:5037."
        )
    return match["host"].strip("[]"), int(match["port"])


def checked_adb_server(value: str) -> str:
    """The given address, after a check."""
    parse_adb_server(value)
    return value


def parse_lab(text: str) -> dict[str, Any]:
    """``HOST`` or ``HOST:PORT`` of a labgrid coordinator, then tags of places."""
    address, *words = text.split(",")
    if not re.fullmatch(r"(\[[0-9a-fA-F:.]+\]|[\w.-]+)(:\d{1,5})?", address):
        raise UsageError(f"{address!r} is not a coordinator. Give HOST or HOST:PORT.")
    wishes = {}
    for word in words:
        name, _, value = (part.strip() for part in word.partition("="))
        if not re.fullmatch("[a-z][a-z0-9_]*", name) or not value:
            raise UsageError(
                f"{word!r} is not a tag of a place. Write NAME=VALUE, as in soc=dimensity-9500."
            )
        wishes[name] = value
    return {"lab": address, "lab_filter": wishes}


def adb_server_from(environment: Mapping[str, str]) -> tuple[str, int]:
    """The adb server of adb's own environment variables, else the default of this machine."""
    whole = environment.get("ADB_SERVER_SOCKET")
    if whole:
        return parse_adb_server(whole)
    host = environment.get("ANDROID_ADB_SERVER_ADDRESS", "127.0.0.1")
    return parse_adb_server(f"{host}:{environment.get('ANDROID_ADB_SERVER_PORT', '5037')}")


def is_network_serial(serial: str) -> bool:
    """Whether a serial is ``host:port``, or the name that wireless debugging gives a phone, so that
    the adb server can connect to it.
    """
    match = _ADDRESS.fullmatch(serial)
    by_port = match is not None and 1 <= int(match["port"]) <= 65535
    return by_port or _WIRELESS.fullmatch(serial) is not None


def parse_cpus(value: str) -> str | tuple[int, ...]:
    """``big``, ``little``, or a list as in ``4-7`` or ``0,2``."""
    word = value.strip().lower()
    if word in ("big", "little"):
        return word
    parts = [re.fullmatch(r"(\d{1,4})(?:-(\d{1,4}))?", part) for part in split_list(word)]
    ranges = [range(int(part[1]), int(part[2] or part[1]) + 1) if part else () for part in parts]
    if not ranges or not all(ranges):
        raise UsageError(
            f"{value!r} does not name cores. Choose one of: big, little, a list as in 4-7 or 0,2."
        )
    return tuple(sorted(set[int]().union(*ranges)))
