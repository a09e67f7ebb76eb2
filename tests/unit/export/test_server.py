"""Exports as forks of one process: the same files, and one that fails takes nothing else down."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from pytest_sme2.errors import ExportError, ModelError
from pytest_sme2.export import artifacts, server
from pytest_sme2.export.artifacts import export_model
from pytest_sme2.export.registry import discover
from pytest_sme2.export.server import ProcessEnvironment, Servers
from pytest_sme2.export.variant import Variant
from pytest_sme2.results import Artifact
from tests.support.gone import wait_until_gone
from tests.support.needs import needs_export

pytestmark = [
    needs_export,
    pytest.mark.skipif(not sys.platform.startswith("linux"), reason="forks are used on Linux"),
]

# How it ends is read from a file beside it, which is not part of the model.
MODEL = """
import os, subprocess, time
from pathlib import Path

import pandas
import torch
import tqdm
from pytest_sme2 import register_model

# Who made this program, and whether that process had warmed up, for the test.
print("parent", os.getppid())
print("warm", tqdm.tqdm.monitor_interval == 0)
end = Path(__file__).with_name("end.txt").read_text()
# What it leaves: a folder, a pipe, and a process with a session and without a parent.
Path("folder").mkdir()
os.mkfifo("pipe")
leave = f"sleep 600 & echo $! >> {Path(__file__).parents[2]}/left.txt"
subprocess.run(["sh", "-c", leave], start_new_session=True)
if end == "crash":
    os.kill(os.getpid(), 11)
if end == "hang":
    time.sleep(600)
if end == "stop":
    raise ValueError("as asked")

@register_model("small", variants=("int8",))
class Model:
    def get_eager_model(self):
        return torch.nn.Sequential(torch.nn.Linear(8, 8), torch.nn.ReLU())
    def get_example_inputs(self):
        return (torch.randn(1, 8),)
"""


class Small:
    """A model, exported by forks of one server."""

    def __init__(self, root: Path) -> None:
        self.folder = root / "models" / "small"
        self.folder.mkdir(parents=True)
        (self.folder / "model.py").write_text(MODEL)

    def export(self, cache: Path, *, end: str = "", seconds: float = 600) -> Artifact:
        (self.folder / "end.txt").write_text(end)
        entry = discover([self.folder.parent], entry_points=False).get("small")
        return export_model(entry, Variant("int8"), cache=cache, timeout_seconds=seconds)

    def stopped(self, cache: Path) -> str:
        """The log of an export that stops early."""
        with pytest.raises(ModelError, match="as asked") as caught:
            self.export(cache, end="stop")
        return Path(str(caught.value).rpartition("The full log: ")[2]).read_text()


def parent_in(log: str) -> int:
    """The process that started an export."""
    return int(next(line for line in log.splitlines() if line.startswith("parent ")).split()[1])


@pytest.fixture
def servers(monkeypatch: pytest.MonkeyPatch) -> Iterator[Servers]:
    made = Servers()
    monkeypatch.setattr(artifacts, "SERVERS", made)
    yield made
    made.close()


def test_forks_share_no_end_and_make_the_files_of_a_fresh_process(
    servers: Servers, tmp_path: Path
) -> None:
    small = Small(tmp_path)
    forked = small.export(tmp_path / "forked")
    log = (forked.folder / "export.log").read_text()
    parent = parent_in(log)
    assert parent != os.getpid()
    assert "warm False" in log, "from its second export on it is warm"

    with pytest.raises(ExportError, match="loading the model ended the process: signal SIGSEGV"):
        small.export(tmp_path, end="crash")
    with pytest.raises(ExportError, match="took more than 1 s"):
        small.export(tmp_path, end="hang", seconds=1)
    log = small.stopped(tmp_path)
    assert parent_in(log) == parent
    assert "warm True" in log

    os.kill(parent, signal.SIGKILL)
    # Without a server there is no reason to fail: an export has a process of its own.
    fresh = small.export(tmp_path / "fresh")
    left = (tmp_path / "left.txt").read_text().split()
    assert len(left) >= 4
    for pid in left:
        wait_until_gone(int(pid))
    assert parent_in((fresh.folder / "export.log").read_text()) == os.getpid()
    assert servers.get(ProcessEnvironment.of_this_process()) is None
    assert forked.folder.name == fresh.folder.name
    assert all(path.is_file() for path in fresh.folder.iterdir())
    metas = (artifact.folder / "export_meta.json" for artifact in (forked, fresh))
    facts = [json.loads(meta.read_text()) for meta in metas]
    for fact in facts:
        del fact["sealed"]  # over what follows
        del fact["files"]["export.log"]
        # Its archive has the time of its making.
        del fact["files"][f"{forked.pte.name}.etrecord"]
    assert facts[0] == facts[1]
    # The server had imported it before the model did.
    assert "pandas" in facts[0]["dependencies"]["packages"]


def here(**environment: str) -> ProcessEnvironment:
    return ProcessEnvironment(environment, sys.path, {"torch": "1"})


def test_other_circumstances_take_another_server(servers: Servers) -> None:
    first = servers.get(here(A="1"))
    assert first is not None
    assert servers.get(here(A="1")) is first
    second = servers.get(here(A="2"))
    assert second is not None
    assert second is not first
    with pytest.raises(EOFError):
        first.is_ready(1)
    # An export of another thread goes on; this one gets a process of its own.
    with second.busy:
        assert servers.get(here(A="3")) is None


@pytest.mark.parametrize(
    "script",
    [
        "import nothing_of_this_name",
        # As one does whose threads neither let it fork nor end.
        "import os, sys, time; os.close(int(sys.argv[1])); time.sleep(600)",
    ],
)
def test_a_server_that_cannot_serve_is_not_tried_again(
    servers: Servers, monkeypatch: pytest.MonkeyPatch, script: str
) -> None:
    monkeypatch.setattr(server, "_SERVER", script)
    one = servers.get(here())
    assert one is not None
    with pytest.raises(EOFError):
        one.is_ready(600)
    one.close()
    assert servers.get(here()) is None


def test_a_process_with_other_threads_does_not_fork() -> None:
    script = (
        "import threading; from pytest_sme2.export import server; print(server._can_fork())\n"
        "threading.Thread(target=threading.Event().wait, daemon=True).start()\n"
        "print(server._can_fork())"
    )
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    words = [sys.executable, "-c", script]
    done = subprocess.run(words, capture_output=True, text=True, check=True, env=environment)
    assert done.stdout.split() == ["True", "False"]
