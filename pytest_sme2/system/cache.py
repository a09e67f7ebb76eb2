"""The cache: where exports, runners and tools are kept, and which of it is ours to delete.

It is one folder of our own with our tag. Where that is not, nothing is ever deleted.
"""

from __future__ import annotations

import contextlib
import errno
import glob
import hashlib
import os
import re
import secrets
import shlex
import shutil
import stat
import tempfile
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from pytest_sme2.errors import BuildError, BusyError, Sme2Error, StorageError, UsageError
from pytest_sme2.system.files import (
    close_to_others,
    file_sha256,
    make_folders,
    total_bytes,
    write_text,
)
from pytest_sme2.system.locks import locked
from pytest_sme2.system.terminal import Say

NAME = "pytest-sme2"
TAG = "CACHEDIR.TAG"
# By the Cache Directory Tagging convention: backups leave such folders out. Another version has
# another layout, and then another text, so it does not delete anything of this one.
_TAG_TEXT = """Signature: 8a477f597d28d172789f06886806bc55
# This file is a cache directory tag created by pytest-sme2.
# For information about cache directory tags, see https://bford.info/cachedir/
"""
TOLD = "told.txt"
_TOKEN = "[0-9a-f]" * 8


def cache_folder() -> Path:
    """The cache, made now if it is missing."""
    folder = find_cache()
    try:
        mark_cache(folder)
    except OSError as error:
        # Otherwise the folder is read-only, or another process was faster.
        if error.errno in (errno.ENOSPC, errno.EDQUOT):
            raise StorageError(
                f"{folder}: cannot be written: {error.strerror}. Free space there, or set "
                "SME2_CACHE_DIR to another folder."
            ) from error
    return folder


def untold(sentences: Sequence[str]) -> list[str]:
    """Those that no run with this cache has printed; from now on they count as known."""
    try:
        file = cache_folder() / TOLD
        known = file.read_text("utf-8").splitlines() if file.exists() else []
        new = [text for text in sentences if text not in known]
        if new:
            write_text(file, "\n".join([*known, *new]))
    except (Sme2Error, OSError, ValueError):
        return [*sentences]
    return new


def find_cache() -> Path:
    """The cache, which may not exist yet: what ``SME2_CACHE_DIR`` names if that is a cache of ours,
    else a folder in it; without the variable, one in the platform's folder for caches.
    """
    chosen = os.environ.get("SME2_CACHE_DIR")
    try:
        folder = Path(chosen).expanduser().resolve() if chosen else _usual_cache_folder()
        around = folder
        if chosen and not is_ours(folder):
            folder = folder / NAME
        # The home of another user: every later access to a file in there would fail.
        folder.exists()
        checkout = next((one for one in folder.parents if (one / ".git").exists()), None)
    except (RuntimeError, OSError) as error:
        raise StorageError(
            f"{chosen or 'The default cache folder'!r} cannot be used for exports and runners: "
            f"{error}. Set SME2_CACHE_DIR to another folder."
        ) from error
    if checkout is not None and os.environ.get("CI"):
        raise StorageError(
            f"The cache {folder} is in the repository {checkout}: whoever changes that could write "
            "it, and in CI what is in a cache is believed. Set SME2_CACHE_DIR to a folder outside."
        )
    return trusted(folder, around, alone=True)


def is_ours(folder: Path) -> bool:
    """Whether a folder has our tag, of this version."""
    tag = folder / TAG
    try:
        with tag.open("rb") as file:
            return not tag.is_symlink() and file.read(len(_TAG_TEXT) + 1) == _TAG_TEXT.encode()
    except OSError:
        return False


def mark_cache(folder: Path) -> None:
    """Make a cache of ours, unless there is something: in one step, never without its tag."""
    with contextlib.suppress(FileNotFoundError):
        if any(folder.iterdir()):
            return
    make_folders(folder.parent)
    with tempfile.TemporaryDirectory(dir=folder.parent, prefix=f".{NAME}-") as temporary:
        made = Path(temporary) / NAME
        made.mkdir()
        (made / TAG).write_bytes(_TAG_TEXT.encode())
        close_to_others(made)
        made.rename(folder)


def discard(path: Path) -> None:
    """Remove a file or folder of a cache with our tag."""
    if not any(map(is_ours, path.parents)):
        raise StorageError(
            f"{path} is not deleted: no folder above it has our {TAG}, so it may not be ours. Move "
            "it away, or set SME2_CACHE_DIR to another folder."
        )
    # Rename it first, so that no process finds half of it.
    gone = path.with_name(f".{path.name[:200].lstrip('.')}.{secrets.token_hex(4)}.removed")
    try:
        path.rename(gone)
    except OSError:
        return
    if gone.is_dir() and not gone.is_symlink():
        shutil.rmtree(gone, ignore_errors=True)
    else:
        gone.unlink()


def trusted(path: Path, cache: Path, *, alone: bool = False) -> Path:
    """``path``, after checking that only this user could have put it there: it is believed, and may
    be executed.

    Every folder from the cache down to it, and all that is in it, must belong to this user or to
    root, and must not be writable for everybody. ``alone``: whatever is in it is looked at when it
    is used.
    """
    above = (one for one in path.parents if one.is_relative_to(cache))
    inside = (
        Path(place, name) for place, folders, files in os.walk(path) for name in (*folders, *files)
    )
    for step in (cache, *above, path, *(() if alone else inside)):
        try:
            found = step.stat()
        except OSError:
            continue
        if found.st_mode & stat.S_IWOTH:
            raise StorageError(
                f"{step} cannot be used: every user of this machine can write to it, and programs "
                f"in the cache are executed. Run: chmod {'' if step == cache else '-R '}o-w "
                f"{shlex.quote(str(step))}, or set SME2_CACHE_DIR to a folder of your own."
            )
        if found.st_uid not in (0, os.geteuid()):
            raise StorageError(
                f"{step} cannot be used: it belongs to user {found.st_uid}, and programs in "
                "the cache are executed. Set SME2_CACHE_DIR to a folder of your own, or make it "
                "yours with chown."
            )
    return path


def contents_sha256(*folders: Path) -> str:
    """One hash over all files in some folders, but for what Python compiles there itself."""
    found = []
    for number, folder in enumerate(folders):
        for path in folder.rglob("*"):
            if path.is_file() and "__pycache__" not in path.parts:
                found.append((number, os.fspath(path.relative_to(folder)), file_sha256(path)))
    return hashlib.sha256(repr(sorted(found)).encode(errors="surrogateescape")).hexdigest()


def is_believed(entry: Path) -> bool:
    """Whether an entry of a cache is there, and only this user could have put it there."""
    try:
        return trusted(entry, entry.parent.parent).is_dir()
    except StorageError:
        return False


def _usual_cache_folder() -> Path:
    import platformdirs

    try:
        folder = platformdirs.user_cache_path("pytest-sme2", appauthor=False)
    except RuntimeError:
        folder = Path("~")
    # Without a home folder the name starts with a tilde, and would be made in any folder.
    if not folder.is_absolute():
        raise StorageError(
            "This user has no home folder for exports and runners. "
            "Set SME2_CACHE_DIR to a folder for them."
        )
    return folder


@contextlib.contextmanager
def working_folder(final: Path) -> Iterator[Path]:
    """An empty folder beside ``final``, removed afterwards. Hold the lock of ``final``."""
    for left_over in final.parent.glob(f".{glob.escape(final.name)}.{_TOKEN}.part"):
        with contextlib.suppress(StorageError):
            discard(left_over)
    folder = final.with_name(f".{final.name}.{secrets.token_hex(4)}.part")
    make_folders(folder.parent)
    # Nobody else may write into what is half made, whatever the umask is.
    folder.mkdir(stat.S_IRWXU)
    try:
        yield folder
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def put_in_place(made: Path, final: Path) -> None:
    """Rename ``made`` to ``final``, whose lock is held; what is there is damaged or outdated.

    Only this user may write to it.
    """
    close_to_others(made)
    if final.exists() or final.is_symlink():
        discard(final)
    made.rename(final)
    _made.add(final)


_made: set[Path] = set()


def made_once(
    folder: Path,
    doing: str,
    make: Callable[[Path], Path],
    *,
    whole: Callable[[Path], bool] | None = None,
    fresh: bool = False,
    say: Say | None = None,
) -> Path:
    """An entry of the cache: as it is there, else made now, by one process and in one step.

    ``make`` gets an empty folder, and says which folder in it becomes the entry. ``whole`` says
    whether what is there is believed. ``fresh``: made by this process in any case.
    """

    def is_there() -> bool:
        return (whole or is_believed)(folder) and (not fresh or is_made_here(folder))

    try:
        if not is_there():
            with locked(Path(f"{folder}.lock"), doing, say=say):
                if not is_there():
                    if say is not None:
                        say(doing)
                    with working_folder(folder) as work:
                        put_in_place(make(work), folder)
    except OSError as error:
        raise BuildError(
            f"Nothing can be kept in {folder}: {error}. "
            "Free space there, or set SME2_CACHE_DIR to another folder."
        ) from error
    mark_used(folder)
    return folder


def is_made_here(entry: Path) -> bool:
    """Whether this process has made an entry: with ``--sme2-fresh`` it believes no other."""
    return entry in _made


LIMIT_VARIABLE = "SME2_CACHE_LIMIT"
DEFAULT_LIMIT = 10 * 10**9
KINDS = (
    *("exports", "runners", "emulated", "bundles", "sdk", "packages", "source-builds"),
    *("tools", "weights", "fake-phone"),
)
"""Each is a folder of the cache; each folder in it is an entry."""
# Fetched from elsewhere, perhaps by hand: only removed when somebody asks for it.
_KEPT = KINDS[-3:]
_NO_ENTRIES = ("locks", "logs")
# A run that began earlier than this ago may still use what it found then.
IN_USE_SECONDS = 6 * 3600.0
# Looking at every file takes a second in a large cache, and every run ends with it.
LOOK_SECONDS = 3600.0
_LOOKED = "cleaned"
_UNITS = {"": 1, "B": 1, "KB": 10**3, "MB": 10**6, "GB": 10**9, "TB": 10**12}


@dataclass(frozen=True)
class CacheEntry:
    kind: str
    path: Path
    bytes: int
    used: float
    """When it was last used, in seconds since the epoch."""


def mark_used(folder: Path) -> None:
    """Remember that an entry was used just now; a read-only cache cannot, and that is all right."""
    with contextlib.suppress(OSError):
        os.utime(folder)


def entries(cache: Path) -> list[CacheEntry]:
    """What the cache holds, the least recently used first."""
    found = []
    for kind in KINDS:
        with contextlib.suppress(OSError):
            for path in (cache / kind).iterdir():
                if path.is_dir() and not path.is_symlink() and path.name not in _NO_ENTRIES:
                    found.append(CacheEntry(kind, path, total_bytes(path), path.stat().st_mtime))
    return sorted(found, key=lambda entry: (entry.used, entry.path))


def to_remove(found: Iterable[CacheEntry], keep: int) -> list[CacheEntry]:
    """The least recently used entries, until the rest fits."""
    every = [*found]
    left, gone = sum(entry.bytes for entry in every), list[CacheEntry]()
    for entry in every:
        if left <= keep:
            break
        gone.append(entry)
        left -= entry.bytes
    return gone


def apply_limit(cache: Path | None = None) -> list[CacheEntry]:
    """Above the limit, remove what was not used for longest; what may be in use stays."""
    limit, root = limit_from(os.environ.get(LIMIT_VARIABLE)), cache or find_cache()
    if limit is None or not is_ours(root):
        return []
    now, looked = time.time(), root / _LOOKED
    with contextlib.suppress(OSError):
        if 0 <= now - looked.stat().st_mtime < LOOK_SECONDS:
            return []
    try:
        with locked(root / "cleaning.lock", "cleaning the cache", timeout_seconds=0):
            looked.touch()
            found = to_remove((e for e in entries(root) if e.kind not in _KEPT), limit)
            removed = [entry for entry in found if now - entry.used >= IN_USE_SECONDS]
            for entry in removed:
                discard(entry.path)
    except (BusyError, StorageError, OSError):
        # Another process is at it, or the cache is read-only.
        return []
    return removed


def limit_from(text: str | None) -> int | None:
    """Bytes; None where there is no limit."""
    if text is None or not text.strip():
        return DEFAULT_LIMIT
    if text.strip().lower() == "none":
        return None
    return parse_size(text)


def parse_size(text: str) -> int:
    """``2 GB`` in bytes."""
    match = re.fullmatch(r"\s*(\d{1,9}(?:\.\d{1,3})?)\s*([KMGT]?B?)\s*", text.upper())
    if match is None or match[2] not in _UNITS:
        raise UsageError(f"{text!r} is not a size. Write it as 500 MB or 2 GB.")
    return int(float(match[1]) * _UNITS[match[2]])
