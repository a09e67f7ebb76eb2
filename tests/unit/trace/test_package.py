from __future__ import annotations

import io
import os
import zipfile
from pathlib import Path

import pytest

from pytest_sme2.errors import LibraryError, UsageError
from pytest_sme2.trace import library as reader
from pytest_sme2.trace.library import read_package
from tests.support.library_writer import KERNEL, SME2_KERNEL, macho

LIBRARY = macho(SME2_KERNEL, [KERNEL])
METADATA = b"Metadata-Version: 2.4\nName: executorch\nVersion: 1.5.1\n"


def zipped(files: dict[str, bytes], method: int = zipfile.ZIP_DEFLATED) -> bytes:
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w", method) as archive:
        for name, content in files.items():
            archive.writestr(name, content)
    return buffer.getvalue()


def write(folder: Path, files: dict[str, bytes], name: str = "app.apk") -> Path:
    path = folder / name
    path.write_bytes(zipped(files))
    return path


def names(path: Path) -> list[str]:
    return [library.name for library in read_package(path).libraries]


def test_damage_names_the_archive_and_the_library_in_it(tmp_path: Path) -> None:
    path = write(tmp_path, {"lib/libexecutorch.so": LIBRARY[:100]})
    with pytest.raises(LibraryError, match=r"^app\.apk: lib/libexecutorch\.so is a truncated"):
        read_package(path)


def test_a_library_itself(tmp_path: Path) -> None:
    path = tmp_path / "lib.dylib"
    path.write_bytes(LIBRARY)
    assert names(path) == ["lib.dylib"]


def test_libraries_in_a_zip_and_in_a_zip_in_it(tmp_path: Path) -> None:
    inner = zipped({"jni/arm64-v8a/libexecutorch.so": LIBRARY})
    path = write(
        tmp_path, {"a.so": LIBRARY, "b.aar": inner, "c.bin": inner, "text": b"PK", "d": b""}
    )
    assert names(path) == ["a.so", "b.aar!/jni/arm64-v8a/libexecutorch.so"]


def test_a_folder_is_read_without_its_links(tmp_path: Path) -> None:
    folder = tmp_path / "App.framework"
    (folder / "Versions" / "A").mkdir(parents=True)
    (folder / "Versions" / "A" / "App").write_bytes(LIBRARY)
    (folder / "App").symlink_to("Versions/A/App")
    (folder / "Versions" / "Current").symlink_to("A")
    os.mkfifo(folder / "pipe")
    (folder / "nested.aar").write_bytes(zipped({"x.so": LIBRARY}))
    assert names(folder) == ["nested.aar!/x.so", "Versions/A/App"]


def test_the_version_of_executorch_is_read(tmp_path: Path) -> None:
    path = write(tmp_path, {"executorch-1.5.1.dist-info/METADATA": METADATA, "a.so": LIBRARY})
    assert read_package(path).executorch == "1.5.1"
    assert (
        read_package(write(tmp_path, {"torch-2.dist-info/METADATA": METADATA})).executorch is None
    )


@pytest.mark.parametrize("name", ["../a.so", "/a.so", "x/../../a.so", "..\\a.so"])
def test_a_path_that_leads_outside_is_refused(tmp_path: Path, name: str) -> None:
    with pytest.raises(LibraryError, match="leads out of the archive"):
        read_package(write(tmp_path, {name: LIBRARY}))


def test_a_zip_bomb_is_refused(tmp_path: Path) -> None:
    with pytest.raises(LibraryError, match="as in a zip bomb"):
        read_package(write(tmp_path, {"a.so": LIBRARY + bytes(20 << 20)}))


def test_zips_in_zips_in_zips_are_refused(tmp_path: Path) -> None:
    inner = zipped({"b.zip": zipped({"c.so": LIBRARY})})
    with pytest.raises(LibraryError, match=r"b\.zip cannot be read: it is a zip in a zip in a zip"):
        read_package(write(tmp_path, {"a.zip": inner}))


@pytest.mark.parametrize(
    ("limit", "value", "message"),
    [
        ("LARGEST_FILE", 100, "a file may have"),
        ("LARGEST_TOTAL", 2 * len(LIBRARY) - 1, "a file may have"),
        ("MOST_FILES", 1, "more than 1 files"),
    ],
)
def test_sizes_have_limits(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, limit: str, value: int, message: str
) -> None:
    path = write(tmp_path, {"a.so": LIBRARY, "b.so": LIBRARY})
    assert names(path) == ["a.so", "b.so"]
    monkeypatch.setattr(reader, limit, value)
    with pytest.raises(LibraryError, match=message):
        read_package(path)


def test_a_damaged_zip_is_one_error(tmp_path: Path) -> None:
    whole = zipped({"a.so": LIBRARY}, zipfile.ZIP_STORED)
    path = tmp_path / "app.apk"
    changed = bytearray(whole)
    changed[40] ^= 1
    locked = bytearray(whole)
    start = whole.index(b"PK\x01\x02")
    locked[6], locked[start + 8] = 1, 1
    for data in (
        whole[:-30],
        whole[: len(whole) // 2],
        bytes(changed),
        bytes(locked),
        b"PK\x03\x04",
    ):
        path.write_bytes(data)
        with pytest.raises(LibraryError, match=r"damaged or locked zip.*Fetch it again"):
            read_package(path)


def test_an_unusual_compression_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "app.apk"
    path.write_bytes(zipped({"a.so": LIBRARY}, zipfile.ZIP_LZMA))
    with pytest.raises(LibraryError, match="unusual way"):
        read_package(path)


def test_what_is_no_package_is_said(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="No such file"):
        read_package(tmp_path / "missing.so")
    text = tmp_path / "text.tgz"
    text.write_bytes(b"\x1f\x8b")
    with pytest.raises(UsageError, match=r"no library and no package.*give the folder"):
        read_package(text)
    os.mkfifo(tmp_path / "pipe.so")
    with pytest.raises(UsageError, match="not a plain file"):
        read_package(tmp_path / "pipe.so")
