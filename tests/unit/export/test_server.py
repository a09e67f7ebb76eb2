"""Exports as forks of one process: the same files, and one that fails takes nothing else down."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import AbstractContextManager
from pathlib import Path

import pytest

from pytest_sme2.errors import ExportError, ModelError
from pytest_sme2.export import artifacts, server
from pytest_sme2.export.artifacts import export_model
from pytest_sme2.export.registry import discover
from pytest_sme2.export.server import ProcessEnvironment, Server, Servers
from pytest_sme2.export.variant import Variant
from pytest_sme2.results.run import Artifact
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
        entry = discover([self.folder.parent]).get("small")
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


def test_forks_share_no_end_and_make_the_files_of_a_process_without_forks(
    servers: Servers, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    small = Small(tmp_path)
    forked = small.export(tmp_path / "forked")
    log = (forked.folder / "export.log").read_text()
    parent = parent_in(log)
    assert parent != os.getpid()
    assert "warm False" in log, "from its second export on it is warm"

    with pytest.raises(ExportError, match="loading the model ended the process: signal SIGSEGV"):
        small.export(tmp_path, end="crash")
    log = small.stopped(tmp_path)
    assert parent_in(log) == parent
    assert "warm True" in log
    with pytest.raises(ExportError, match="took more than 1 s"):
        small.export(tmp_path, end="hang", seconds=1)
    wait_until_gone(parent)

    alone = f"{server._SERVER.rpartition(';')[0]}; server._can_fork = bool; server.serve()"
    monkeypatch.setattr(server, "_SERVER", alone)
    fresh = small.export(tmp_path / "fresh")
    left = (tmp_path / "left.txt").read_text().split()
    assert len(left) >= 4
    for pid in left:
        wait_until_gone(int(pid))
    assert parent_in((fresh.folder / "export.log").read_text()) == os.getpid()
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


def test_only_the_same_circumstances_take_the_same_server(
    servers: Servers, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Neither an export of another thread, nor one after an error, nor one after it has ended."""
    monkeypatch.setattr(server, "_SERVER", "input()")
    with (tmp_path / "log").open("wb") as log:

        def taken(**environment: str) -> AbstractContextManager[Server]:
            return servers.borrowed(here(**environment), log)

        with taken(A="1") as first, taken(A="1") as beside:
            assert beside is not first
        with taken(A="1") as again:
            assert again is beside
        with taken(A="2") as other:
            assert other is not beside
        with pytest.raises(LookupError), taken(A="2"):
            raise LookupError
        with taken(A="2") as new:
            assert new is not other
            new.ask(tmp_path, tmp_path)
            assert new.hear(600) == {"ended": 0}
        with taken(A="2") as last:
            assert last is not new


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
