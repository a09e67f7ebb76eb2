"""A real labgrid coordinator and two exporters, each in a network of its own, with fake phones.

What ends is started again, as systemd does it. The files are those of the documentation.
"""

from __future__ import annotations

import contextlib
import os
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator, Sequence
from pathlib import Path

from pytest_sme2.fake_phone.lab import FakeLab, FakePhone
from tests.support.phones import start_lab

DOCUMENTED = Path(__file__).parents[2] / "docs" / "ci" / "lab"
HOSTS = ("lab-a", "lab-b")
# As a tunnel to the adb server of another computer.
_RELAY = """
import socket, sys, threading

def copy(one, other):
    try:
        while data := one.recv(65536):
            other.sendall(data)
        other.shutdown(socket.SHUT_WR)
    except OSError:
        pass

listening = socket.create_server((sys.argv[1], int(sys.argv[2])))
print("ready", flush=True)
while True:
    near, _ = listening.accept()
    far = socket.socket(socket.AF_UNIX)
    try:
        far.connect(sys.argv[3])
    except OSError:
        near.close()
        continue
    for pair in ((near, far), (far, near)):
        threading.Thread(target=copy, args=pair, daemon=True).start()
"""


class Service:
    """A process that is started again when it ends."""

    def __init__(self, command: Sequence[str], folder: Path, log: Path) -> None:
        self._command, self._folder, self._log = command, folder, log
        self._ended = threading.Event()
        self.process = self._start()
        self._thread = threading.Thread(target=self._watch, daemon=True)
        self._thread.start()

    def _start(self) -> subprocess.Popen[bytes]:
        with self._log.open("ab") as log:
            return subprocess.Popen(
                self._command, cwd=self._folder, stdin=subprocess.DEVNULL, stdout=log, stderr=log
            )

    def _watch(self) -> None:
        while not self._ended.wait(0.2):
            if self.process.poll() is not None:
                self.process = self._start()

    def kill(self) -> None:
        self.process.kill()

    def close(self) -> None:
        self._ended.set()
        self._thread.join()
        self.process.kill()
        self.process.wait()


class LabgridLab:
    """The whole lab: ``coordinator`` and ``exporters`` can be killed."""

    def __init__(self, folder: Path, closing: contextlib.ExitStack) -> None:
        self._closing, self._folder = closing, folder
        self.phones: list[FakePhone] = []
        self._networks = [self._network(index) for index in range(len(HOSTS))]
        with socket.socket() as free:
            free.bind(("", 0))
            self.port = free.getsockname()[1]
        self.address = f"127.0.0.1:{self.port}"
        places = (DOCUMENTED / "places.yaml").read_text("utf-8").splitlines(keepends=True)
        here = [line for line in places if any(f"exporter: {name}," in line for name in HOSTS)]
        (folder / "places.yaml").write_text("".join(here), "utf-8")
        self.coordinator = self._service(
            "coordinator", "labgrid.remote.coordinator", "-l", f"0.0.0.0:{self.port}"
        )
        self.exporters = [self._exporter(index, name) for index, name in enumerate(HOSTS)]

    def _network(self, index: int) -> tuple[str, str, str]:
        """The name of a network, and the addresses of this machine and of the other in it."""
        name = f"sme2-{os.getpid()}-{index}"
        here, there = (f"10.{64 + os.getpid() % 128}.{index}.{last}" for last in (1, 2))
        near, far = f"s{os.getpid()}h{index}", f"s{os.getpid()}t{index}"
        steps = (
            f"netns add {name}",
            f"link add {near} type veth peer name {far} netns {name}",
            f"addr add {here}/30 dev {near}",
            f"link set {near} up",
            f"-n {name} addr add {there}/30 dev {far}",
            f"-n {name} link set {far} up",
        )
        self._closing.callback(_ip, f"netns del {name}")
        if all(map(_ip, steps)):
            return name, here, there
        return "", "127.0.0.1", "127.0.0.1"

    def _inside(self, index: int, *command: str) -> list[str]:
        name = self._networks[index][0]
        return [*(("ip", "netns", "exec", name) if name else ()), *command]

    def _service(self, name: str, *words: str, index: int | None = None) -> Service:
        command = [sys.executable, "-W", "ignore", "-m", *words]
        if index is not None:
            command = self._inside(index, *command)
        made = Service(command, self._folder, self._folder / f"{name}.log")
        self._closing.callback(made.close)
        return made

    def _exporter(self, index: int, name: str) -> Service:
        _, here, there = self._networks[index]
        fake: FakeLab = self._closing.enter_context(start_lab())
        phones = [fake.add(), fake.add()]
        self.phones += phones
        port = 5037 if self._networks[index][0] else _free_port()
        relay = subprocess.Popen(
            self._inside(
                index, sys.executable, "-c", _RELAY, there, str(port), str(fake.server.host)
            ),
            stdout=subprocess.PIPE,
        )
        self._closing.callback(relay.wait)
        self._closing.callback(relay.kill)
        assert relay.stdout is not None
        assert relay.stdout.readline() == b"ready\n"
        relay.stdout.close()
        text = (DOCUMENTED / "exporter.yaml").read_text("utf-8")
        text = text.replace("lab-a.example.org", there).replace("5037", str(port))
        for number, phone in enumerate(phones, 1):
            text = text.replace(f"R5CT{number}", f'"{phone.serial}"')
        file = self._folder / f"{name}.yaml"
        file.write_text(text, "utf-8")
        words = ("labgrid.remote.exporter", "-c", f"{here}:{self.port}", "-n", name, str(file))
        return self._service(name, *words, index=index)


def _free_port() -> int:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        return int(free.getsockname()[1])


def _ip(words: str) -> bool:
    try:
        return subprocess.run(["ip", *words.split()], capture_output=True).returncode == 0
    except OSError:
        return False


@contextlib.contextmanager
def labgrid_lab(folder: Path) -> Iterator[LabgridLab]:
    with contextlib.ExitStack() as closing:
        yield LabgridLab(folder, closing)


def wait_until(condition: object, seconds: float = 300.0) -> None:
    """Wait for something that comes true however slow this machine is."""
    deadline = time.monotonic() + seconds
    while not condition():  # type: ignore[operator]
        assert time.monotonic() < deadline
        time.sleep(0.1)
