"""The rig itself: real adb, real adbd, state that sticks, and nothing left behind."""

from __future__ import annotations

import errno
import os
import re
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path
from types import SimpleNamespace

import pytest

from pytest_sme2.errors import ConnectionLostError, TargetError
from pytest_sme2.fake_phone.lab import FakeLab, FakePhone
from pytest_sme2.targets.phone.adb import AdbDevice, make_ready, open_server
from pytest_sme2.targets.phone.answers import ShellResult, parse_temperature
from tests.support.phones import processes_below


def shell(lab: FakeLab, phone: FakePhone, command: str) -> ShellResult:
    make_ready(lab.server, phone.serial)
    return AdbDevice(lab.server, phone.serial).shell(command, timeout=60)


def test_settings_stick_to_one_phone(lab: FakeLab, phone: FakePhone) -> None:
    other = lab.add()
    before = other.setting("low_power")
    assert shell(lab, phone, "settings get global low_power").text == f"{before}\n"
    shell(lab, phone, "settings put global low_power 1")
    assert phone.setting("low_power") == "1"
    assert other.setting("low_power") == before == "0"
    assert shell(lab, phone, "settings get global no_such_thing").text == "null\n"


def test_the_shell_and_the_tools_are_of_androids_kind(lab: FakeLab, phone: FakePhone) -> None:
    apart = shell(lab, phone, "echo out; echo err >&2; exit 3")
    assert apart == ShellResult(3, b"out\n", b"err\n")
    assert "MIRBSD KSH" in shell(lab, phone, "echo $KSH_VERSION").text
    assert shell(lab, phone, "toybox --version").text.startswith("toybox 0.")
    assert shell(lab, phone, "readlink /system/bin/ls /system/bin/timeout").text == "toybox\n" * 2
    # There is no C library.
    assert shell(lab, phone, "ls /lib /lib64 /usr").code != 0


def test_the_shell_is_the_user_of_androids_shell(lab: FakeLab, phone: FakePhone) -> None:
    assert shell(lab, phone, "id").text.startswith("uid=2000(shell) gid=2000(shell) groups=")
    assert shell(lab, phone, "grep CapEff: /proc/self/status").text.split()[1].strip("0") == ""
    assert shell(lab, phone, "touch /data/local/tmp/mine").code == 0
    # The first process of a phone belongs to another user.
    denied = shell(lab, phone, "cat /proc/1/environ")
    assert denied.code != 0
    assert "hidepid=" in shell(lab, phone, "grep ' /proc ' /proc/mounts").text


def test_where_there_is_one_user_the_shell_is_androids_too() -> None:
    program = (
        "from pytest_sme2.fake_phone.lab import FakeLab, fake_target\n"
        "with FakeLab() as lab:\n"
        "    target = fake_target(lab.add())\n"
        "    target.prepare()\n"
        "    print(target.device.check('id; touch /data/local/tmp/mine; ls -l /data/local/tmp'))\n"
        "    target.restore()\n"
    )
    alone = ["unshare", "--user", "--map-root-user", sys.executable, "-c", program]
    done = subprocess.run(alone, capture_output=True, text=True, timeout=120, check=False)
    assert done.stdout.startswith("uid=2000(shell) gid=2000(shell)"), done.stderr
    assert re.search(r"shell shell +0 ", done.stdout)


@pytest.mark.parametrize(("version", "sdk", "hal"), [(14, 34, 1), (15, 35, 2), (16, 36, 3)])
def test_answers_are_those_of_a_version(lab: FakeLab, version: int, sdk: int, hal: int) -> None:
    phone = lab.add(android=version, temperature_millidegrees=41_250)
    words = "getprop ro.build.version.release; getprop ro.build.version.sdk"
    assert shell(lab, phone, words).text.split() == [str(version), str(sdk)]
    assert f":{version}/" in shell(lab, phone, "getprop ro.build.fingerprint").text
    thermal = shell(lab, phone, "dumpsys thermalservice").text
    assert f"\tThermalHAL AIDL {hal}  connected: yes\n" in thermal
    assert ("Temperature headroom thresholds:" in thermal) == (version > 14)
    assert parse_temperature(thermal) == 41.2
    battery = shell(lab, phone, "dumpsys battery").text
    assert ("Charging policy: " in battery) == (version > 14)
    assert "@" not in thermal + battery + shell(lab, phone, "dumpsys power").text


def test_network_of_the_devices_is_loopback_only(lab: FakeLab, phone: FakePhone) -> None:
    devices = shell(lab, phone, "cat /proc/net/dev").text.splitlines()
    assert [line.split(":")[0].strip() for line in devices[2:]] == ["lo"]
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


def test_vsock_is_taken_away() -> None:
    program = (
        "import socket\n"
        "from pytest_sme2.fake_phone.supervisor import forbid_vsock\n"
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
    lab.server.disconnect(phone.serial)
    assert shell(lab, phone, "settings get global low_power").text == "7\n"


def test_restarted_server_has_the_same_address(lab: FakeLab) -> None:
    address = lab.address
    lab.kill_server()
    with pytest.raises(ConnectionLostError):
        lab.server.version()
    lab.start_server()
    assert lab.address == address
    assert open_server(address).version() >= 41


def test_nothing_is_left_when_the_test_is_killed(tmp_path: Path) -> None:
    program = (
        "import sys, time\n"
        "from pytest_sme2.fake_phone.lab import FakeLab\n"
        "lab = FakeLab()\n"
        "lab.add()\n"
        "print(lab.server.host, lab._process.pid, flush=True)\n"
        "time.sleep(600)\n"
    )
    mounts = Path("/proc/self/mounts").read_text(encoding="utf-8")
    victim = subprocess.Popen(
        [sys.executable, "-c", program], stdout=subprocess.PIPE, text=True, env=dict(os.environ)
    )
    with victim:
        address, sandbox = victim.stdout.readline().split()
        inside = list(processes_below(int(sandbox)))
        assert Path(address).is_socket()
        assert len(inside) >= 3, "supervisor, adb server and adbd should run"
        victim.send_signal(signal.SIGKILL)
    deadline = time.monotonic() + 60
    while any(process.exists() for process in inside) and time.monotonic() < deadline:
        time.sleep(0.05)
    assert [process for process in inside if process.exists()] == []
    assert not Path(address).exists()
    assert Path("/proc/self/mounts").read_text(encoding="utf-8") == mounts


def test_a_lab_that_cannot_start_says_what_it_needs(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(
        "pytest_sme2.fake_phone.lab.sandbox_command",
        lambda: ["sh", "-c", "echo unshare failed: Operation not permitted >&2; exit 1", "sh"],
    )
    with pytest.raises(TargetError, match=r"Operation not permitted.*needs root"):
        FakeLab()


def test_a_lab_without_its_tools_names_them_and_leaves_nothing_open(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    nothing_installed = SimpleNamespace(which=lambda name, path=None: None)
    monkeypatch.setattr("pytest_sme2.fake_phone.lab.shutil", nothing_installed)
    before = len(list(Path("/proc/self/fd").iterdir()))
    # What is raised keeps the lab alive, and with it what it had opened.
    with pytest.raises(TargetError, match="unshare and ldd") as raised:
        FakeLab()
    assert len(list(Path("/proc/self/fd").iterdir())) == before, raised
