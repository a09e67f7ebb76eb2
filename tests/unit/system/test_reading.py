"""Files from outside: whatever they are, one error with the place and the remedy."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import pytest

from pytest_sme2.errors import EtdumpError, Sme2Error, UsageError
from pytest_sme2.system.files import (
    file_sha256,
    read_bytes,
    read_json,
    read_text_if_there,
    read_toml,
)
from pytest_sme2.trace.etdump import read_etdump
from pytest_sme2.trace.etrecord import read_attribution


def terabyte(path: Path) -> None:
    path.touch()
    os.truncate(path, 1 << 40)


ODD: dict[str, Callable[[Path], object]] = {
    "a pipe": os.mkfifo,
    "a folder": Path.mkdir,
    "an endless device": lambda path: path.symlink_to("/dev/zero"),
    "a link to itself": lambda path: path.symlink_to(path.name),
    "a terabyte of nothing": terabyte,
}


@pytest.fixture(params=ODD, ids=str)
def odd(request: pytest.FixtureRequest, tmp_path: Path) -> Path:
    path = tmp_path / "file.json"
    ODD[request.param](path)
    return path


def test_odd_files_are_one_error(odd: Path) -> None:
    for read in (read_bytes, read_json, read_toml, read_text_if_there):
        with pytest.raises(UsageError, match=r"file\.json cannot be read: .*\. Give another\.$"):
            read(odd, remedy="Give another.", error=UsageError)


@pytest.mark.parametrize("read", [read_etdump, read_attribution])
def test_odd_traces_are_one_error(odd: Path, read: Callable[[Path], object]) -> None:
    with pytest.raises(EtdumpError, match=r"file\.json"):
        read(odd)


@pytest.mark.parametrize("kind", ["a pipe", "a folder", "an endless device"])
def test_only_a_plain_file_has_a_hash(tmp_path: Path, kind: str) -> None:
    ODD[kind](tmp_path / "file")
    with pytest.raises(OSError, match="file"):
        file_sha256(tmp_path / "file")


def test_an_editor_s_mark_of_utf8_is_no_damage(tmp_path: Path) -> None:
    path = tmp_path / "file"
    path.write_text("\ufeff[1]\n1 = 2\n", "utf-8")
    assert read_toml(path, remedy="") == {"1": {"1": 2}}
    path.write_text("\ufeff[1]", "utf-8")
    assert read_json(path, remedy="") == [1]
    assert read_text_if_there(path, remedy="") == "[1]"


def test_a_missing_file_need_not_be_an_error(tmp_path: Path) -> None:
    assert read_text_if_there(tmp_path / "none", remedy="") is None
    with pytest.raises(Sme2Error, match="No such file"):
        read_bytes(tmp_path / "none", remedy="")
    (tmp_path / "text").write_bytes(b"\xff")
    with pytest.raises(Sme2Error, match="byte 0 is not UTF-8"):
        read_text_if_there(tmp_path / "text", remedy="")
