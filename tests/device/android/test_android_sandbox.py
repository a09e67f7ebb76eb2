"""Attacks on this machine through a fake phone: by others, by its owner, and by what runs on it."""

from __future__ import annotations

import contextlib
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from pytest_sme2.errors import TargetError
from pytest_sme2.fake_phone.lab import FakeLab, FakePhone
from pytest_sme2.targets.phone.adb import AdbDevice
from tests.support.phones import processes_below

NOBODY = 65534
# adb replaces the file that it is told to listen at.
ATTACK = r"""
import socket, sys
address, serial, victim = sys.argv[1:]
kind, _, place = address.partition(":")

def ask(service):
    if kind == "localfilesystem":
        connection = socket.socket(socket.AF_UNIX)
        connection.connect(place)
    else:
        connection = socket.create_connection((kind, int(place)), 10)
    with connection, connection.makefile("rb") as file:
        connection.sendall(b"%04x" % len(service) + service.encode())
        return file.read()

try:
    ask(f"host:connect:{serial}")
    while f"{serial}\tdevice".encode() not in ask("host:devices"):
        pass
    print("reached", ask(f"host-serial:{serial}:forward:localfilesystem:{victim};tcp:1"))
except OSError as error:
    print(type(error).__name__)
"""


@pytest.fixture
def victim(tmp_path: Path) -> Iterator[Path]:
    """A file of the one who runs the tests, in a folder where only that one may write."""
    file = tmp_path / "file"
    file.write_text("mine", encoding="utf-8")
    yield file
    assert file.is_file(), "it was removed or replaced"
    assert file.read_text(encoding="utf-8") == "mine"


def attack(lab: FakeLab, phone: FakePhone, victim: Path, *starter: str) -> str:
    words = [*starter, "-S", "-c", ATTACK, lab.address, phone.serial, str(victim)]
    done = subprocess.run(words, capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can become another user")
def test_another_user_cannot_reach_the_server(lab: FakeLab, phone: FakePhone, victim: Path) -> None:
    nobody = ["setpriv", f"--reuid={NOBODY}", f"--regid={NOBODY}", "--clear-groups"]
    for python in (sys.executable, "/usr/bin/python3"):
        # One in a home folder is not everybody's.
        if subprocess.run([*nobody, python, "-S", "-c", ""], check=False).returncode == 0:
            assert attack(lab, phone, victim, *nobody, python) == "PermissionError\n"
            return
    pytest.skip("there is no Python that another user may run")


def test_its_socket_is_its_owners_alone(lab: FakeLab) -> None:
    status = Path(lab.server.host).stat()
    assert (status.st_mode & 0o777, status.st_uid) == (0o600, os.geteuid())


def test_nothing_of_it_listens_on_this_machine(lab: FakeLab, phone: FakePhone) -> None:
    held = set()
    for process in processes_below(lab._process.pid):
        held |= {str(entry.readlink()) for entry in (process / "fd").iterdir()}
    for table in ("tcp", "tcp6"):
        rows = Path(f"/proc/net/{table}").read_text(encoding="utf-8").splitlines()[1:]
        assert [row for row in rows if f"socket:[{row.split()[9]}]" in held] == []


def test_not_even_its_owner_reaches_a_file_through_it(
    lab: FakeLab, phone: FakePhone, device: AdbDevice, victim: Path
) -> None:
    assert attack(lab, phone, victim, sys.executable).startswith("reached")
    with device.phone(10, "attack") as theirs, theirs.open_transport() as connection:
        connection.send_command(f"reverse:forward:localfilesystem:{victim};tcp:1")
        connection.check_okay()
        assert connection.read(4) in (b"OKAY", b"FAIL")


def test_a_link_on_the_phone_leads_nowhere(
    phone: FakePhone, device: AdbDevice, victim: Path
) -> None:
    place = "data/local/tmp"
    device.check(["ln", "-s", str(victim), f"/{place}/file"])
    device.check(["ln", "-s", str(victim.parent), f"/{place}/folder"])
    for path in (f"{place}/file", f"{place}/folder/{victim.name}", f"../../..{victim}"):
        with contextlib.suppress(TargetError):
            phone.write(path, "theirs")
        with contextlib.suppress(TargetError):
            phone.remove(path)


def test_server_and_devices_have_no_rights_and_see_nothing_of_this_machine(
    lab: FakeLab, phone: FakePhone, victim: Path
) -> None:
    _, first, *rest = processes_below(lab._process.pid)
    assert len(rest) >= 2
    for process in rest:
        status = (process / "status").read_text(encoding="utf-8")
        words = dict(line.split(":\t", 1) for line in status.splitlines())
        if "ld-linux" in words["Name"]:
            assert (int(words["CapEff"], 16), int(words["CapPrm"], 16)) == (0, 0)
            assert os.geteuid() != 0 or "0" not in words["Uid"].split()
    for process in (first, *rest):
        assert not (process / "root" / victim.relative_to("/")).exists()
