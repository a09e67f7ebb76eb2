"""Packages into a folder of our own, from the system's own mirror."""

import shutil
from pathlib import Path

import pytest

from pytest_sme2 import debian
from pytest_sme2.errors import BuildError

needs_apt = pytest.mark.skipif(shutil.which("apt-get") is None, reason="this system has no apt")


def fake_apt(folder: Path, monkeypatch: pytest.MonkeyPatch, script: str) -> None:
    program = folder / "apt-get"
    program.write_text(f"#!/bin/sh\n{script}\n")
    program.chmod(0o755)
    monkeypatch.setenv("PATH", str(folder), prepend=":")


@needs_apt
def test_the_mirror_is_the_systems_own() -> None:
    address, _ = debian.system_mirror()
    assert "://" in address or address.startswith("mirror+")


def test_the_security_source_is_not_taken_for_the_mirror(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    lines = "sec|$(SIGNED_BY)|stable-security\\nmain|/k.gpg|stable"
    fake_apt(tmp_path, monkeypatch, f"printf '{lines}\\n'")
    assert debian.system_mirror() == ("main", "/k.gpg")


def test_no_source_at_all_says_so(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    fake_apt(tmp_path, monkeypatch, "exit 0")
    with pytest.raises(BuildError, match="apt knows no package source"):
        debian.system_mirror()


def test_a_failure_names_the_command_and_its_last_words(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    fake_apt(tmp_path, monkeypatch, "echo 'E: no such suite' >&2; exit 100")
    with pytest.raises(BuildError, match="E: no such suite"):
        debian.system_mirror()


@needs_apt
def test_a_failed_fetch_leaves_the_old_folder_and_nothing_else(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = tmp_path / "tools" / "thing"
    folder.mkdir(parents=True)
    (folder / "old").write_text("kept")
    programs = tmp_path / "bin"
    programs.mkdir()
    fake_apt(
        programs,
        monkeypatch,
        'case "$*" in *indextargets*) echo "http://127.0.0.1:9/|$(echo)|stable";; '
        '*) echo "E: could not connect" >&2; exit 100;; esac',
    )
    with pytest.raises(BuildError, match="could not connect"):
        debian.unpack_packages(["hello"], "stable", folder)
    assert (folder / "old").read_text() == "kept"
    assert [entry.name for entry in folder.parent.iterdir()] == ["thing"]
