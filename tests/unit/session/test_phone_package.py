"""The package with the runner for phones: a wheel that says what is in it."""

from __future__ import annotations

import base64
import csv
import hashlib
import io
import zipfile
from pathlib import Path

import pytest

from pytest_sme2.cli.main import main
from pytest_sme2.errors import BundleError
from pytest_sme2.session.bundle import write_package


@pytest.fixture
def bundle(tmp_path: Path) -> Path:
    path = tmp_path / "a bundle"
    path.write_bytes(b"content")
    return path


def test_every_file_is_in_the_record_with_its_hash(bundle: Path, tmp_path: Path) -> None:
    path = write_package(tmp_path / "out", bundle, "1.5.1")
    assert path.name == "pytest_sme2_phone-1.5.1-py3-none-any.whl"
    with zipfile.ZipFile(path) as archive:
        files = {name: archive.read(name) for name in archive.namelist()}
    about = "pytest_sme2_phone-1.5.1.dist-info"
    assert files["pytest_sme2_phone/bundle.tar.gz"] == b"content"
    assert b"Name: pytest-sme2-phone\nVersion: 1.5.1\n" in files[f"{about}/METADATA"]
    recorded = list(csv.reader(io.StringIO(files[f"{about}/RECORD"].decode())))
    assert {row[0] for row in recorded} == set(files)
    for name, digest, size in recorded[:-1]:
        wanted = base64.urlsafe_b64encode(hashlib.sha256(files[name]).digest()).decode()
        assert (digest, size) == (f"sha256={wanted.rstrip('=')}", str(len(files[name])))


def test_equal_content_is_equal_bytes(bundle: Path, tmp_path: Path) -> None:
    first = write_package(tmp_path / "a", bundle, "1.5.1").read_bytes()
    assert write_package(tmp_path / "b", bundle, "1.5.1").read_bytes() == first


def test_a_folder_that_cannot_be_written(bundle: Path, tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(BundleError, match="cannot be written"):
        write_package(tmp_path / "file" / "out", bundle, "1.5.1")


def test_only_the_runner_for_phones_is_a_package(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["bundle", "--wheel", "out"]) == 2
    assert "--wheel needs --phone" in capsys.readouterr().err
