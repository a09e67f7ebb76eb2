"""The one command for a new ExecuTorch: its steps, and what it says that changed."""

from __future__ import annotations

import argparse
import importlib.metadata
import subprocess
from pathlib import Path

import pytest

from pytest_sme2.errors import UsageError
from tools import new_version


@pytest.mark.parametrize(
    ("release", "version"),
    [
        ("1.6.0", "1.6.0"),
        ("dist/executorch-1.6.0-cp311-cp311-manylinux_2_28_x86_64.whl", "1.6.0"),
        ("executorch-1.7.0.dev20261101+cpu-cp311-cp311-linux.whl", "1.7.0.dev20261101+cpu"),
        ("torch-2.13.0-cp311-cp311-linux.whl", ""),
        ("newest", ""),
    ],
)
def test_a_release_is_a_version_or_a_wheel(release: str, version: str) -> None:
    if version:
        assert new_version.version_of(release) == version
    else:
        with pytest.raises(UsageError, match="no version of ExecuTorch, and no wheel"):
            new_version.version_of(release)


@pytest.mark.parametrize(("version", "failing", "code"), [("1.5.1", "", 0), ("1.5.1", "pytest", 1),
                                                          ("1.6.0", "", 0)])  # fmt: skip
def test_each_step_runs_and_what_failed_is_told(
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    version: str,
    failing: str,
    code: int,
) -> None:
    ran: list[list[str]] = []

    def run(words: list[str], cwd: Path) -> argparse.Namespace:
        ran.append(words)
        return argparse.Namespace(returncode=int(bool(failing) and failing in words))

    monkeypatch.setattr(subprocess, "run", run)
    monkeypatch.setattr(importlib.metadata, "version", lambda _: "1.5.1")
    words = ["--only", "linear-*", "--models", "toy_cnn"]
    assert new_version.main([version, *words]) == code
    said = capsys.readouterr()
    if version == "1.6.0":
        assert ran[1][-1] == "executorch==1.6.0"
        assert ran[2][1:] == ["-m", "tools.new_version", "1.6.0", *words]
        return
    tools = [next(word for word in each if not word.startswith(("/", "-"))) for each in ran]
    assert tools == ["run", "pytest", "tools.matrix", "tools.names", "pytest"]
    assert "ExecuTorch 1.5.0 to 1.5.1: " in (told := said.out + said.err)
    assert told.count("failed: ") == 2 * code
