"""Hostile and damaged device bundles; the bundles that are right are in tests/device/android."""

from __future__ import annotations

import hashlib
import io
import json
import lzma
import random
import tarfile
from pathlib import Path
from typing import Any

import pytest

from pytest_sme2.errors import BuildError
from pytest_sme2.results import Arm
from pytest_sme2.session.device_bundle import RECORD, read_bundle

FILES = {"sme2_runner": b"\x7fELF runner", "libc.so.6": b"\x7fELF libc"}


def record(files: dict[str, bytes]) -> bytes:
    hashes = {name: hashlib.sha256(data).hexdigest() for name, data in files.items()}
    facts = {"schema": 1, "platform": "linux-aarch64", "executorch": "1.5.1", "files": hashes}
    return json.dumps(facts).encode()


def member(name: str, kind: bytes = tarfile.REGTYPE, linkname: str = "") -> tarfile.TarInfo:
    entry = tarfile.TarInfo(name)
    entry.type, entry.linkname = kind, linkname
    return entry


def write(path: Path, files: dict[str, bytes], *more: tarfile.TarInfo, mode: Any = "w:gz") -> Path:
    with tarfile.open(path, mode, format=tarfile.PAX_FORMAT) as archive:
        for name, data in files.items():
            entry = member(name)
            entry.size = len(data)
            archive.addfile(entry, io.BytesIO(data))
        for entry in more:
            archive.addfile(entry)
    return path


@pytest.fixture
def cache(tmp_path: Path) -> Path:
    return tmp_path / "cache"


def kept(cache: Path) -> list[str]:
    """What is left in the cache beside the locks."""
    folder = cache / "device-bundles"
    return [path.name for path in folder.iterdir() if path.suffix != ".lock"]


def refused(path: Path, cache: Path, message: str) -> None:
    with pytest.raises(BuildError, match=message):
        read_bundle(path, cache=cache)
    assert kept(cache) == []


@pytest.mark.parametrize("mode", ["w", "w:gz"])
def test_a_whole_bundle_is_read(tmp_path: Path, cache: Path, mode: str) -> None:
    path = write(tmp_path / "b", {RECORD: record(FILES), **FILES}, mode=mode)
    for _ in range(2):
        runner = read_bundle(path, cache=cache)
        found = {file.name: file.read_bytes() for file in runner.files(Arm.ON)}
        assert found == FILES
        assert runner.executorch == "1.5.1"


@pytest.mark.parametrize(
    "name",
    [
        "../escaped",
        "/escaped",
        "//escaped",
        "sub/escaped",
        "./../escaped",
        "..",
        ".",
        "sme2_runner/../../escaped",
    ],
)
def test_a_name_that_is_more_than_a_name(tmp_path: Path, cache: Path, name: str) -> None:
    path = write(tmp_path / "evil.tgz", {RECORD: record(FILES), **FILES, name: b"evil"})
    refused(path, cache, "which no device bundle does")
    assert not list(tmp_path.rglob("*escaped*"))
    assert not Path("/escaped").exists()


def test_a_name_with_a_nul(tmp_path: Path, cache: Path) -> None:
    entry = member("x")
    entry.pax_headers = {"path": "sme2_runner\0evil"}
    path = write(tmp_path / "evil.tgz", {RECORD: record(FILES), **FILES}, entry)
    refused(path, cache, "cannot be read as a device bundle|which no device bundle does")


@pytest.mark.parametrize(
    "kind",
    [
        tarfile.SYMTYPE,
        tarfile.LNKTYPE,
        tarfile.DIRTYPE,
        tarfile.CHRTYPE,
        tarfile.BLKTYPE,
        tarfile.FIFOTYPE,
    ],
)
def test_only_plain_files(tmp_path: Path, cache: Path, kind: bytes) -> None:
    outside = tmp_path / "outside"
    outside.write_text("untouched", encoding="utf-8")
    entry = member("libevil.so", kind, str(outside))
    path = write(tmp_path / "evil.tgz", {RECORD: record(FILES), **FILES}, entry)
    refused(path, cache, "'libevil.so', which no device bundle does")
    assert outside.read_text(encoding="utf-8") == "untouched"


def test_nothing_is_written_through_a_link(tmp_path: Path, cache: Path) -> None:
    outside = tmp_path / "outside"
    outside.write_text("untouched", encoding="utf-8")
    path = tmp_path / "evil.tar"
    with tarfile.open(path, "w") as archive:
        archive.addfile(member("sme2_runner", tarfile.SYMTYPE, str(outside)))
        entry = member("sme2_runner")
        entry.size = 4
        archive.addfile(entry, io.BytesIO(b"evil"))
    refused(path, cache, "which no device bundle does")
    assert outside.read_text(encoding="utf-8") == "untouched"


def test_a_file_that_has_no_hash_never_gets_near_a_phone(tmp_path: Path, cache: Path) -> None:
    extra = {**FILES, "libevil.so": b"evil"}
    path = write(tmp_path / "evil.tgz", {RECORD: record(FILES), **extra})
    refused(path, cache, "'libevil.so' of the device bundle .* is not in its list of hashes")
    unlisted = write(tmp_path / "bare.tgz", {RECORD: record({}), **FILES})
    refused(unlisted, cache, "is not in its list of hashes")


def test_another_content_than_its_hash(tmp_path: Path, cache: Path) -> None:
    path = write(tmp_path / "evil.tgz", {RECORD: record(FILES), **FILES, "libc.so.6": b"evil"})
    refused(path, cache, "'libc.so.6' of the device bundle .* is damaged")
    missing = write(tmp_path / "less.tgz", {RECORD: record(FILES), "sme2_runner": b""})
    refused(missing, cache, "'libc.so.6' of the device bundle .* is missing")


def test_what_changed_in_the_cache_is_noticed(tmp_path: Path, cache: Path) -> None:
    path = write(tmp_path / "b.tgz", {RECORD: record(FILES), **FILES})
    folder = read_bundle(path, cache=cache).folder
    (folder / "libc.so.6").write_bytes(b"evil")
    with pytest.raises(BuildError, match=r"'libc.so.6' of the device bundle .* is damaged"):
        read_bundle(path, cache=cache)


def test_a_link_in_a_folder_is_no_file(tmp_path: Path) -> None:
    (tmp_path / "elsewhere").write_bytes(FILES["libc.so.6"])
    folder = tmp_path / "bundle"
    folder.mkdir()
    (folder / RECORD).write_bytes(record(FILES))
    (folder / "sme2_runner").write_bytes(FILES["sme2_runner"])
    (folder / "libc.so.6").symlink_to(tmp_path / "elsewhere")
    with pytest.raises(BuildError, match=r"'libc.so.6' of the device bundle .* is a link"):
        read_bundle(folder)


@pytest.mark.parametrize(
    "content",
    [
        b"",
        b"[]",
        b"{}",
        b'{"platform": 1, "executorch": 1, "files": ["a", "b"]}',
        b'{"platform": 1, "executorch": 1, "files": null}',
        b"[" * 100_000,
        b"\xff\xfe",
    ],
)
def test_a_record_of_the_wrong_form(tmp_path: Path, cache: Path, content: bytes) -> None:
    path = write(tmp_path / "b.tgz", {RECORD: content, **FILES})
    refused(path, cache, "is not a device bundle")


@pytest.mark.parametrize("name", ["../outside", "/etc/passwd", "sub/x", "", "runner.json"])
def test_a_hash_of_a_file_elsewhere(tmp_path: Path, cache: Path, name: str) -> None:
    (tmp_path / "outside").write_bytes(b"x")
    path = write(tmp_path / "b.tgz", {RECORD: record({**FILES, name: b"x"}), **FILES})
    refused(path, cache, "is missing")


def test_more_than_a_bundle_can_be(
    tmp_path: Path, cache: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("pytest_sme2.session.device_bundle._MOST_BYTES", 100)
    path = write(tmp_path / "b.tgz", {RECORD: record(FILES), "sme2_runner": b"\0" * 1000})
    refused(path, cache, "which no device bundle does")


def test_another_compression_is_not_tried(tmp_path: Path, cache: Path) -> None:
    whole = write(tmp_path / "b.tar", {RECORD: record(FILES), **FILES}, mode="w")
    (tmp_path / "b.tar.xz").write_bytes(lzma.compress(whole.read_bytes()))
    refused(tmp_path / "b.tar.xz", cache, "cannot be read as a device bundle")


def test_damage_anywhere_is_an_error_of_ours(tmp_path: Path, cache: Path) -> None:
    files = {name: data * 500 for name, data in FILES.items()}
    path = write(tmp_path / "b.tgz", {RECORD: record(files), **files})
    original = path.read_bytes()
    generator = random.Random(5)
    for trial in range(150):
        data = bytearray(original)
        if trial % 2:
            data = data[: generator.randrange(len(data))]
        else:
            data[generator.randrange(len(data))] ^= 1 << generator.randrange(8)
        path.write_bytes(bytes(data))
        try:
            runner = read_bundle(path, cache=cache / str(trial))
        except BuildError:
            continue
        # A flipped bit in the gzip header or the padding is no damage to the content.
        assert {file.name: file.read_bytes() for file in runner.files(Arm.ON)} == files
