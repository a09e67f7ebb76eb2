"""Finds the libraries in a package: a library itself, a zip (AAR, APK, IPA, wheel), or a folder.

A package is made by others. Nothing of it is run or written to disk, and sizes have limits.
"""

from __future__ import annotations

import io
import os
import re
import struct
import zipfile
import zlib
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path, PurePosixPath
from typing import IO

from pytest_sme2.errors import LibraryError, UsageError
from pytest_sme2.system.reading import open_plain
from pytest_sme2.trace.library import Library, is_library, read_libraries

# torch's largest library has 0.5 GB, and all of them 1.5 GB.
LARGEST_FILE = 1 << 30
LARGEST_TOTAL = 4 << 30
MOST_FILES = 200_000
# Code shrinks to a third. A zip bomb shrinks to a thousandth.
_STRONGEST_COMPRESSION = 100
_UNSUSPICIOUS_BYTES = 16 << 20
_DEEPEST_ZIP = 2
_ZIP_NAMES = (".aab", ".aar", ".apk", ".apks", ".ipa", ".whl", ".xapk", ".zip")
_START_BYTES = 8
# Where a wheel, or a folder that one was installed to, has ExecuTorch's version.
_METADATA = re.compile(r"(?:^|/)executorch-[^/]*\.dist-info/METADATA$")
_VERSION = re.compile(rb"^Version: ([\w.+!-]{1,100})\r?$", re.MULTILINE)
_LONGEST_METADATA = 1 << 20
_DAMAGE = (EOFError, OSError, OverflowError, RuntimeError, ValueError)


@dataclass
class Package:
    """What was found; filled while files are read."""

    libraries: list[Library] = field(default_factory=list)
    executorch: str | None = None
    """ExecuTorch's version, where the package says it."""
    _files: int = 0
    _bytes: int = 0

    def take(self, name: str, size: int, open_file: Callable[[], IO[bytes]], depth: int) -> None:
        """One file; it is read whole only if it can hold a library."""
        self._files += 1
        if self._files > MOST_FILES:
            raise _refused(name, f"there are more than {MOST_FILES} files", "Give a smaller part")
        with open_file() as file:
            start = file.read(_START_BYTES)
            if _METADATA.search(name):
                version = _VERSION.search(start + file.read(_LONGEST_METADATA))
                self.executorch = version[1].decode() if version else None
            elif is_library(start):
                self.libraries += read_libraries(start + self._rest(file, name, size), name)
            elif start.startswith(b"PK\x03\x04") and name.lower().endswith(_ZIP_NAMES):
                if depth == _DEEPEST_ZIP:
                    raise _refused(name, "it is a zip in a zip in a zip", "Unpack the outer one")
                content = io.BytesIO(start + self._rest(file, name, size))
                self.take_zip(content, name, depth + 1, f"{name}!/")

    def _rest(self, file: IO[bytes], name: str, size: int) -> bytes:
        self._bytes += size
        if size > LARGEST_FILE or self._bytes > LARGEST_TOTAL:
            limits = f"a file may have {LARGEST_FILE >> 20} MiB, and all {LARGEST_TOTAL >> 20} MiB"
            raise _refused(name, limits, "Give the library itself, or a smaller part")
        # No more than was claimed, whatever happens to the file meanwhile.
        return file.read(max(size - _START_BYTES, 0))

    def take_zip(self, file: IO[bytes], name: str, depth: int, prefix: str = "") -> None:
        """All files of a zip; ``prefix`` stands before their names."""
        # What zipfile raises for damage; RuntimeError is for passwords.
        try:
            with zipfile.ZipFile(file) as archive:
                for member in archive.infolist():
                    inside = prefix + member.filename
                    _check(member, inside)
                    opened = lambda member=member: archive.open(member)  # noqa: E731
                    self.take(inside, member.file_size, opened, depth)
        except (zipfile.BadZipFile, zlib.error, struct.error, *_DAMAGE) as error:
            why = f"it is a damaged or locked zip: {str(error)[:200]}"
            raise _refused(name, why, "Fetch it again") from error


def _check(member: zipfile.ZipInfo, name: str) -> None:
    path = PurePosixPath(member.filename.replace("\\", "/"))
    if path.is_absolute() or ".." in path.parts:
        raise _refused(name, "its path leads out of the archive", "Do not unpack this archive")
    if member.compress_type not in (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED):
        raise _refused(name, "it is compressed in an unusual way", "Unpack it, and give the folder")
    small, size = member.compress_size, member.file_size
    if size > max(_UNSUSPICIOUS_BYTES, _STRONGEST_COMPRESSION * small):
        why = f"{small} bytes would become {size}, as in a zip bomb"
        raise _refused(name, why, "If you trust it, unpack it and give the folder")


def _refused(name: str, why: str, remedy: str) -> LibraryError:
    return LibraryError(f"{name} cannot be read: {why}. {remedy}.")


def read_package(path: Path) -> Package:
    """The libraries of a file or a folder. Links in a folder are not followed."""
    try:
        return _read(path)
    except LibraryError as error:
        if path.name in str(error):
            raise
        raise LibraryError(f"{path.name}: {error}") from error


def _read(path: Path) -> Package:
    package = Package()
    for parent, folders, names in os.walk(path):
        folders.sort()
        for entry in (Path(parent, name) for name in sorted(names)):
            if entry.is_file() and not entry.is_symlink():
                opened = lambda entry=entry: open_plain(entry)  # noqa: E731
                package.take(
                    entry.relative_to(path).as_posix(), entry.stat().st_size, opened, depth=0
                )
    if path.is_dir():
        return package
    try:
        file = open_plain(path)
    except (OSError, ValueError) as error:
        why = getattr(error, "strerror", None) or error
        raise UsageError(f"{path} cannot be read: {why}. Give a library or a package.") from error
    with file:
        start = file.read(_START_BYTES)
        file.seek(0)
        if start.startswith(b"PK"):
            package.take_zip(file, path.name, 1)
        elif is_library(start):
            package.take(path.name, os.fstat(file.fileno()).st_size, lambda: file, 0)
        else:
            raise UsageError(
                f"{path} is no library and no package: it is not ELF, Mach-O, a static library or "
                "a zip. Unpack other archives, and give the folder."
            )
    return package
