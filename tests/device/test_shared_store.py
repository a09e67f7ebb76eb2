"""A machine whose cache is empty and elsewhere has everything from the store of another one."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from pytest_sme2.export import artifacts
from pytest_sme2.export.artifacts import export_model
from pytest_sme2.export.discovery import discover
from pytest_sme2.export.variant import parse_variant
from pytest_sme2.results import Arm, RunRequest
from pytest_sme2.runners import sme2
from pytest_sme2.system import shared_store
from pytest_sme2.system.platforms import LINUX_AARCH64
from pytest_sme2.targets import census
from tests.device import provision
from tests.support.needs import needs_export
from tests.support.phones import MODEL
from tests.support.web_server import TOKEN, WebServer, web_server

# What the model imports lies beside its folder, in the clone.
IMPORTING = MODEL.replace("import torch\n", "import torch\nfrom shared_parts import WIDTH\n", 1)


@pytest.fixture
def server(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[WebServer]:
    with web_server(tmp_path / "server") as running:
        monkeypatch.setenv("SME2_STORE", f"{running.address}/store")
        monkeypatch.setenv("SME2_STORE_KEY", "one for all jobs")
        monkeypatch.setenv("SME2_STORE_TOKEN", TOKEN)
        monkeypatch.setenv("SME2_STORE_WRITE", "1")
        monkeypatch.setattr(shared_store, "ANSWER_SECONDS", 120.0)
        shared_store._opened.cache_clear()
        yield running
    shared_store._opened.cache_clear()


@needs_export
def test_another_machine_makes_nothing_again(
    tmp_path: Path, server: WebServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    clone = tmp_path / "clone"
    (clone / "models" / "importing").mkdir(parents=True)
    (clone / "models" / "importing" / "model.py").write_text(
        IMPORTING.format(name="importing", width="WIDTH")
    )
    (clone / "shared_parts.py").write_text("WIDTH = 6\n")
    emulator = provision.emulator()

    def work(clone: Path, out: Path) -> tuple[object, ...]:
        monkeypatch.syspath_prepend(str(clone))
        entry = discover([clone / "models"], entry_points=False).get("importing")
        artifact = export_model(entry, parse_variant("fp32"))
        runner = sme2.wheel_runner(LINUX_AARCH64)
        request = RunRequest(artifact, Arm.ON, warmup=0, runs=1, counted=True, keep_outputs=True)
        made, _ = census.remembered_run(emulator, runner, request, out)
        outputs = [output.sha256 for output in made.run.outputs]
        return artifact.sha256, runner.sha256, made.counted, outputs

    first = work(clone, tmp_path / "out1")
    clone.rename(tmp_path / "another clone")
    monkeypatch.setenv("SME2_CACHE_DIR", str(tmp_path / "another cache"))
    for module, name in ((artifacts, "_Export"), (sme2, "_build_into"), (census, "observed_run")):
        monkeypatch.setattr(module, name, None)
    monkeypatch.setenv("SME2_STORE_WRITE", "0")
    assert work(tmp_path / "another clone", tmp_path / "out2") == first


@needs_export
@pytest.mark.nightly
def test_a_suite_with_a_warm_store_exports_and_counts_nothing(
    tmp_path: Path, server: WebServer
) -> None:
    """Two machines: other paths, and the second one only reads."""
    tools = provision.emulator().qemu.path.parent
    said = []
    for machine, write in (("first", "1"), ("a second one", "0")):
        project = tmp_path / machine
        shutil.copytree(provision.MODELS / "toy_cnn", project / "models" / "toy_cnn")
        (project / "pytest.ini").write_text("[pytest]\nsme2_models = models\n")
        command = [
            *(sys.executable, "-m", "pytest", str(provision.MODELS.parent / "tests/performance")),
            *("-c", "pytest.ini", "-p", "no:cacheprovider", "-q"),
            *("--device=emulated", "-m", "structure or numerics"),
        ]
        environment = os.environ | {
            "SME2_CACHE_DIR": str(project / "cache"),
            "SME2_STORE_WRITE": write,
            "PATH": f"{tools}{os.pathsep}{os.environ['PATH']}",
        }
        done = subprocess.run(
            command, cwd=project, env=environment, capture_output=True, text=True, timeout=3600
        )
        assert done.returncode == 0, done.stdout[-3000:] + done.stderr[-3000:]
        said.append(re.search(r"(\d+) passed", done.stdout)[1])
        if write == "1":
            before = server.state()
    assert said[0] == said[1]
    assert server.state() == before
    for kind in ("exports", "runners", "emulated"):
        first, second = (
            sorted(
                path.name for path in (tmp_path / machine / "cache/pytest-sme2" / kind).iterdir()
            )
            for machine in ("first", "a second one")
        )
        assert [name for name in second if not name.endswith(".lock")] == [
            name for name in first if not name.endswith((".lock", "logs"))
        ]
