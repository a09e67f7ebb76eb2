"""The rig itself: real adb, real adbd, state that sticks, and nothing left behind."""

from __future__ import annotations

import errno
import os
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path

import pytest

from pytest_sme2.errors import TargetError
from pytest_sme2.fake_phone.lab import FakeLab, FakePhone
from pytest_sme2.targets.phone.adb import AdbDevice, AdbServer, ShellResult


def shell(lab: FakeLab, phone: FakePhone, command: str) -> ShellResult:
    server = AdbServer(lab.host, lab.port)
    server.connect(phone.serial)
    return AdbDevice(server, phone.serial).shell(command, timeout=60)


def test_a_shell_gives_output_errors_and_exit_code_apart(lab: FakeLab, phone: FakePhone) -> None:
    done = shell(lab, phone, "echo out; echo err >&2; exit 3")
    assert done == ShellResult(3, b"out\n", b"err\n")


def test_settings_stick_to_one_phone(lab: FakeLab, phone: FakePhone) -> None:
    other = lab.add()
    before = other.setting("low_power")
    assert shell(lab, phone, "settings get global low_power").text == f"{before}\n"
    shell(lab, phone, "settings put global low_power 0")
    assert phone.setting("low_power") == "0"
    assert other.setting("low_power") == before == "1"
    assert shell(lab, phone, "settings get global no_such_thing").text == "null\n"


def test_stayon_writes_the_same_setting_as_on_android(lab: FakeLab, phone: FakePhone) -> None:
    shell(lab, phone, "/system/bin/svc power stayon true")
    assert phone.setting("stay_on_while_plugged_in") == "15"


def test_the_phone_has_no_c_library(lab: FakeLab, phone: FakePhone) -> None:
    assert shell(lab, phone, "ls /lib /lib64 /usr").code != 0


def test_network_of_the_devices_is_loopback_only(lab: FakeLab, phone: FakePhone) -> None:
    addresses = shell(lab, phone, "ip -o link").text
    assert [line.split(":")[1].strip() for line in addresses.splitlines()] == ["lo"]
    with socket.socket() as outside, pytest.raises(ConnectionRefusedError):
        outside.connect(("127.0.0.1", phone.phone.port))


def test_a_phone_sees_no_process_of_another(lab: FakeLab, phone: FakePhone) -> None:
    other = lab.add()
    background = "SECRET=1 sleep 600 > /dev/null 2>&1 < /dev/null & echo started"
    assert shell(lab, other, background).text == "started\n"
    look = "grep -l SECRET=1 /proc/[0-9]*/environ 2>/dev/null | wc -l"
    assert shell(lab, other, look).text.strip() == "1"
    assert shell(lab, phone, look).text.strip() == "0"
    # When its starter has gone, what goes on still belongs to its phone.
    other.kill_adbd()
    assert ["sleep", "600"] in other.processes().values()
    assert ["sleep", "600"] not in phone.processes().values()


def test_server_answers_loopback_only(lab: FakeLab) -> None:
    table = Path("/proc/net/tcp").read_text(encoding="ascii").splitlines()[1:]
    listening = [row.split()[1] for row in table if row.split()[3] == "0A"]
    assert f"0100007F:{lab.port:04X}" in listening
    assert f"00000000:{lab.port:04X}" not in listening
    assert lab.port != 5037


def test_vsock_is_taken_away() -> None:
    program = (
        "import socket\n"
        "from pytest_sme2.fake_phone.no_vsock import forbid_vsock\n"
        "forbid_vsock()\n"
        "socket.socket().close()\n"
        "try:\n    socket.socket(40, socket.SOCK_STREAM)\n"
        "except OSError as error:\n    print(error.errno)\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, timeout=60, check=True
    )
    assert done.stdout.strip() == str(errno.EAFNOSUPPORT)


def test_adbd_killed_and_started_again_is_the_same_phone(lab: FakeLab, phone: FakePhone) -> None:
    shell(lab, phone, "settings put global low_power 7")
    phone.kill_adbd()
    phone.start_adbd()
    AdbServer(lab.host, lab.port).disconnect(phone.serial)
    assert shell(lab, phone, "settings get global low_power").text == "7\n"


def test_restarted_server_uses_the_same_port(lab: FakeLab) -> None:
    port = lab.port
    lab.kill_server()
    with socket.socket() as client, pytest.raises(ConnectionRefusedError):
        client.connect((lab.host, port))
    lab.start_server()
    assert lab.port == port
    assert int(AdbServer(lab.host, port).ask("host:version"), 16) >= 41


def test_nothing_is_left_when_the_test_is_killed(tmp_path: Path) -> None:
    program = (
        "import sys, time\n"
        "from pytest_sme2.fake_phone.lab import FakeLab\n"
        "lab = FakeLab()\n"
        "lab.add()\n"
        "print(lab.port, lab._process.pid, flush=True)\n"
        "time.sleep(600)\n"
    )
    mounts = Path("/proc/self/mounts").read_text(encoding="utf-8")
    victim = subprocess.Popen(
        [sys.executable, "-c", program], stdout=subprocess.PIPE, text=True, env=dict(os.environ)
    )
    assert victim.stdout is not None
    with victim:
        port, sandbox = map(int, victim.stdout.readline().split())
        inside = children(sandbox)
        assert len(inside) >= 3, "supervisor, adb server and adbd should run"
        victim.send_signal(signal.SIGKILL)
    deadline = time.monotonic() + 60
    while any(Path(f"/proc/{pid}").exists() for pid in inside) and time.monotonic() < deadline:
        time.sleep(0.05)
    assert [pid for pid in inside if Path(f"/proc/{pid}").exists()] == []
    with socket.socket() as client, pytest.raises(ConnectionRefusedError):
        client.connect(("127.0.0.1", port))
    assert Path("/proc/self/mounts").read_text(encoding="utf-8") == mounts


def children(pid: int) -> list[int]:
    """A process and everything below it."""
    found = [pid]
    for task in Path(f"/proc/{pid}/task").iterdir():
        for child in (task / "children").read_text(encoding="ascii").split():
            found += children(int(child))
    return found


def test_a_lab_that_cannot_start_says_what_it_needs(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(
        "pytest_sme2.fake_phone.lab.sandbox_command",
        lambda: ["sh", "-c", "echo unshare failed: Operation not permitted >&2; exit 1", "sh"],
    )
    with pytest.raises(TargetError, match=r"Operation not permitted.*needs root"):
        FakeLab()
