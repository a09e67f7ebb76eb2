"""How pip is found, and how a version is named."""

from __future__ import annotations

import importlib.util
from pathlib import Path

import pytest

from pytest_sme2.errors import BuildError
from pytest_sme2.runners import sdk


def test_an_environment_without_pip_uses_uv_or_says_so(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(BuildError, match="torchao must be downloaded, but this Python has no pip"):
        sdk.find_pip("torchao")
    (tmp_path / "uv").write_text("#!/bin/sh\n")
    (tmp_path / "uv").chmod(0o755)
    assert sdk.find_pip("torchao")[:3] == [str(tmp_path / "uv"), "tool", "run"]
