"""What pip is asked, and what is made of its answers. pip itself is played."""

from __future__ import annotations

import base64
import hashlib
import importlib.util
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

import pytest

from pytest_sme2.errors import BuildError, StorageError
from pytest_sme2.system import pip
from pytest_sme2.system.cache import mark_cache
from pytest_sme2.system.pip import Pin, known_versions, package_folder, parse_pin
from pytest_sme2.system.processes import Finished

PIN = Pin("torchao", "0.17.0")


class PlayedPip:
    """Answers, and installs a package of one file."""

    def __init__(self) -> None:
        self.returncode = 0
        self.stdout = self.stderr = ""
        self.calls: list[list[str]] = []

    def __call__(
        self, arguments: Sequence[str], *, timeout_seconds: float, environment: Mapping[str, str]
    ) -> Finished:
        words = list(arguments)
        self.calls.append(words)
        if "--target" in words and self.returncode == 0:
            self._install(Path(words[words.index("--target") + 1]))
        return Finished(tuple(words), self.returncode, self.stdout, self.stderr, False)

    def _install(self, folder: Path) -> None:
        about = folder / "torchao-0.17.0.dist-info"
        about.mkdir(parents=True)
        (folder / "torchao.py").write_text("version = 17\n")
        digest = hashlib.sha256(b"version = 17\n").digest()
        text = base64.urlsafe_b64encode(digest).decode().rstrip("=")
        (about / "METADATA").write_text("Metadata-Version: 2.1\nName: torchao\nVersion: 0.17.0\n")
        (about / "RECORD").write_text(
            f"torchao.py,sha256={text},13\n../../bin/tool,sha256=x,1\n{about.name}/RECORD,,\n"
        )


@pytest.fixture
def played(monkeypatch: pytest.MonkeyPatch) -> PlayedPip:
    made = PlayedPip()
    monkeypatch.setattr(pip, "run_process", made)
    return made


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


def test_pip_is_asked_for_the_versions(played: PlayedPip) -> None:
    played.stdout = "torchao (0.18.0)\nAvailable versions: 0.18.0, 0.17.0, 0.1\nINSTALLED: 1\n"
    assert known_versions("torchao") == ["0.18.0", "0.17.0", "0.1"]
    assert played.calls[0][:5] == [sys.executable, "-m", "pip", "index", "versions"]


def test_an_environment_without_pip_uses_uv_or_says_so(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(BuildError, match="torchao must be downloaded, but this Python has no pip"):
        pip.find_pip("torchao")
    (tmp_path / "uv").write_text("#!/bin/sh\n")
    (tmp_path / "uv").chmod(0o755)
    assert pip.find_pip("torchao")[:3] == [str(tmp_path / "uv"), "tool", "run"]


def test_a_version_is_installed_once_and_checked_when_read(
    played: PlayedPip, tmp_path: Path
) -> None:
    told: list[str] = []
    mark_cache(tmp_path)
    folder = package_folder(PIN, cache=tmp_path, progress=told.append)
    assert (folder / "torchao.py").read_text() == "version = 17\n"
    assert folder.parent == tmp_path / pip.FOLDER
    assert "--no-deps" in played.calls[0]
    assert package_folder(PIN, cache=tmp_path, progress=told.append) == folder
    assert told == ["Installing torchao==0.17.0 into the cache"]
    record = folder / "torchao-0.17.0.dist-info" / "RECORD"
    damages = (
        lambda: (folder / "torchao.py").write_text("x"),
        (folder / "torchao.py").unlink,
        lambda: record.write_bytes(b"torchao.py,sha256=\xff,\n"),
        lambda: record.write_text("torchao.py,md5=x,13\n"),
        lambda: record.write_text(""),
        record.unlink,
        lambda: record.write_text("torchao.py,sha256=a,many\n"),
    )
    for damage in damages:
        damage()
        package_folder(PIN, cache=tmp_path)
        assert (folder / "torchao.py").read_text() == "version = 17\n"
    assert len(played.calls) == 1 + len(damages)


def test_a_pip_that_fails_is_quoted_and_leaves_nothing(played: PlayedPip, tmp_path: Path) -> None:
    played.returncode, played.stderr = 1, "ERROR: No matching distribution found for it\n"
    with pytest.raises(BuildError, match=r"versions of torchao there are: ERROR: No"):
        known_versions("torchao")
    with pytest.raises(BuildError, match=r"torchao==0\.17\.0 could not be installed: ERROR"):
        package_folder(PIN, cache=tmp_path)
    assert not [path for path in (tmp_path / pip.FOLDER).iterdir() if path.is_dir()]


def test_a_cache_that_cannot_be_written(played: PlayedPip, tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(StorageError, match="SME2_CACHE_DIR"):
        package_folder(PIN, cache=tmp_path / "file")
