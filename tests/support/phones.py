"""What the tests on fake phones share besides fixtures."""

from __future__ import annotations

import contextlib
import hashlib
import socket
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from pytest_sme2.errors import TargetError
from pytest_sme2.fake_phone.lab import FakeLab, FakePhone
from pytest_sme2.results.run import Artifact, Run
from pytest_sme2.runners.sme2 import Sme2Runner
from pytest_sme2.targets.phone.adb import AdbServer
from pytest_sme2.targets.phone.power import NOTE, SETTING
from pytest_sme2.targets.phone.target import AndroidTarget

MakeTarget = Callable[..., AndroidTarget]
MakeRunner = Callable[[float | str], Sme2Runner]
StartRun = Callable[..., Run]


MODEL = """
import torch
from pytest_sme2 import register_model


@register_model("{name}", variants=("fp32",))
class Net:
    def get_eager_model(self):
        return torch.nn.Sequential(torch.nn.Conv2d(3, {width}, 3), torch.nn.ReLU())

    def get_example_inputs(self):
        return (torch.randn(1, 3, 8, 8),)
"""


def start_lab(**options: Any) -> FakeLab:
    """A lab, or a skip that says why there is none."""
    try:
        return FakeLab(**options)
    except TargetError as error:
        pytest.skip(f"no fake phone here: {error}")


def make_artifact(path: Path, model: str = "toy") -> Artifact:
    digest = hashlib.sha256(path.read_bytes()).hexdigest()
    return Artifact(model, "fp32", path.parent, path, digest, (), ())


def processes_below(pid: int) -> Iterator[Path]:
    """The folders of a process and of everything below it."""
    yield Path(f"/proc/{pid}")
    for task in Path(f"/proc/{pid}/task").iterdir():
        for child in (task / "children").read_text(encoding="utf-8").split():
            yield from processes_below(int(child))


def settings_of(phone: FakePhone) -> dict[str, str | None]:
    """The settings we may change, read past adb."""
    return {name: phone.setting(name) for name in (SETTING,)}


def leftovers(phone: FakePhone, *, prepared: bool = False) -> list[str]:
    """What of a run is still on the phone: a note, run folders, half-pushed files, processes.

    A phone that is still prepared has a note of the settings to restore. A process that was killed
    needs the CPU once more to be gone: it is given time for that.
    """
    deadline = time.monotonic() + 600
    while (found := _leftovers(phone, prepared)) and time.monotonic() < deadline:
        time.sleep(0.1)
    return found


def _leftovers(phone: FakePhone, prepared: bool) -> list[str]:
    files = [name for name in phone.files() if not prepared or name != Path(NOTE).name]
    found = [name for name in files if name.startswith(Path(NOTE).name)]
    found += [
        name for name in files if name.startswith(("pytest-sme2/runs/", "pytest-sme2/partial/"))
    ]
    return found + [" ".join(words) for words in phone.processes().values()]


@contextlib.contextmanager
def answering(answer: bytes, host: str = "127.0.0.1") -> Iterator[AdbServer]:
    """An adb server that says the same to all requests, on one connection after another."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    with socket.create_server((host, 0), family=family) as listening:

        def serve() -> None:
            while True:
                try:
                    connection, _ = listening.accept()
                except OSError:
                    return
                with contextlib.suppress(OSError), connection:
                    connection.settimeout(60)
                    connection.sendall(answer)
                    connection.shutdown(socket.SHUT_WR)
                    while connection.recv(1 << 16):
                        pass

        thread = threading.Thread(target=serve, daemon=True)
        thread.start()
        try:
            yield AdbServer(host, listening.getsockname()[1])
        finally:
            # Else it would go on to wait for a connection.
            listening.shutdown(socket.SHUT_RDWR)
            thread.join(60)
