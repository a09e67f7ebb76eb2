"""How pip is found, and how a version is named."""

from __future__ import annotations

import importlib.util
from pathlib import Path

import pytest

from pytest_sme2.errors import BuildError
from pytest_sme2.runners import sdk
from pytest_sme2.runners.sdk import Pin, parse_pin


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("executorch==1.5.0", Pin("executorch", "1.5.0")),
        (" Torch == 2.13.0+cpu ", Pin("torch", "2.13.0+cpu")),
        ("executorch", None),
        ("executorch=1.5.0", None),
        ("executorch==", None),
        ("v1.0", None),
        ("==1.5.0", None),
        ("a==1 --target=/", None),
    ],
)
def test_a_pin_is_a_name_and_a_version(text: str, expected: Pin | None) -> None:
    assert parse_pin(text) == expected


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
