"""The cache: where exports, runners and tools are kept, and which of it is ours to delete.

It is one folder of our own with a mark. Without the mark nothing in it is ever deleted, and what is
deleted is listed in a log.
"""

from __future__ import annotations

import contextlib
import errno
import glob
import hashlib
import os
import pwd
import re
import secrets
import shlex
import shutil
import stat
import tempfile
import time
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from pytest_sme2.errors import BuildError, BusyError, Sme2Error, StorageError, UsageError
from pytest_sme2.system.files import (
    close_to_others,
    file_sha256,
    make_folders,
    replacing,
    total_bytes,
    write_text,
)
from pytest_sme2.system.locks import locked
from pytest_sme2.system.terminal import Say

NAME = "pytest-sme2"
MARK = "pytest-sme2-cache"
# Another version has another layout, so it does not delete anything of this one.
_MARKED = b"pytest-sme2 cache, version 1\n"
# By the Cache Directory Tagging convention: backups leave such folders out.
_TAG = """Signature: 8a477f597d28d172789f06886806bc55
# This file is a cache directory tag created by pytest-sme2.
# For information about cache directory tags, see https://bford.info/cachedir/
"""
LOG = "removed.log"
TOLD = "told.txt"
_LONGEST_LOG = 200_000
_TOKEN = "[0-9a-f]" * 8
# What a killed process leaves: half made, or half removed.
LEFT_OVER = rf"\..+\.{_TOKEN}\.(part|removed)"


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
    """Whether a folder has our mark, of this version."""
    mark = folder / MARK
    try:
        with mark.open("rb") as file:
            return not mark.is_symlink() and file.read(len(_MARKED) + 1) == _MARKED
    except OSError:
        return False


def mark_cache(folder: Path) -> None:
    """Make a cache of ours, unless there is something: in one step, never without its mark."""
    with contextlib.suppress(FileNotFoundError):
        if any(folder.iterdir()):
            return
    make_folders(folder.parent)
    with tempfile.TemporaryDirectory(dir=folder.parent, prefix=f".{NAME}-") as temporary:
        made = Path(temporary) / NAME
        made.mkdir()
        (made / "CACHEDIR.TAG").write_text(_TAG, encoding="utf-8")
        (made / MARK).write_bytes(_MARKED)
        # A group that shares the parent folder shares the cache.
        close_to_others(made, folder.parent)
        made.rename(folder)


def discard(path: Path, why: str) -> None:
    """Remove a file or folder of a cache with our mark, and list it in the cache's log."""
    cache = next((parent for parent in path.parents if is_ours(parent)), None)
    if cache is None:
        raise StorageError(
            f"{path} is not deleted: no folder above it has the mark of a cache ({MARK}), so it "
            "may not be ours. Move it away, or set SME2_CACHE_DIR to another folder."
        )
    # Rename it first, so that no process finds half of it.
    gone = path.with_name(f".{path.name[:200].lstrip('.')}.{secrets.token_hex(4)}.removed")
    try:
        path.rename(gone)
    except OSError:
        return
    with contextlib.suppress(OSError):
        log = cache / LOG
        if log.exists() and log.stat().st_size > _LONGEST_LOG:
            log.replace(cache / f"{LOG}.old")
        moment = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())
        with log.open("a", encoding="utf-8") as file:
            file.write(f"{moment} {str(path.relative_to(cache))!a}: {why}\n")
    if gone.is_dir() and not gone.is_symlink():
        shutil.rmtree(gone, ignore_errors=True)
    else:
        gone.unlink()


def trusted(path: Path, cache: Path, *, alone: bool = False) -> Path:
    """``path``, after checking that only this user could have put it there: it is believed, and may
    be executed.

    Every folder from the cache down to it, and all that is in it, must belong to this user, to
    root, or to the group that the cache is shared with, and must not be writable for everybody.
    ``alone``: whatever is in it is looked at when it is used.
    """
    try:
        shared = cache.stat()
    except OSError:
        return path
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
                f"{shlex.quote(str(step))}, or set "
                "SME2_CACHE_DIR to a folder of your own. To share a cache, use a group: "
                "docs/troubleshooting.md."
            )
        owners = {0, os.geteuid()}
        group = shared.st_mode & stat.S_IWGRP and found.st_gid == shared.st_gid
        ours = found.st_gid in {os.getegid(), *os.getgroups()}
        if found.st_uid not in owners and not (group and ours):
            owner = f"user {found.st_uid}"
            with contextlib.suppress(KeyError):
                owner = pwd.getpwuid(found.st_uid).pw_name
            raise StorageError(
                f"{step} cannot be used: it belongs to {owner}, and programs in the cache are "
                "executed. Set SME2_CACHE_DIR to a folder of your own, make it yours with chown, "
                "or share it with a group: docs/troubleshooting.md."
            )
    return path


# File systems keep times this coarsely: what changed a moment ago may change again unseen.
_SETTLED_NS = 3 * 10**9


def contents_sha256(*folders: Path, cache: Path | None = None) -> str:
    """One hash over all files in some folders, but for what Python compiles there itself.

    They are read again only if one has another name, size, inode or time than it had; nobody can
    set the time at which an inode was changed.
    """
    files = [(number, path) for number, folder in enumerate(folders) for path in _files_in(folder)]
    found = [Path(path).stat() for _, path in files]
    times = [(one.st_size, one.st_mtime_ns, one.st_ctime_ns, one.st_ino) for one in found]
    state = _text_sha256(repr((files, times)))
    root = cache or cache_folder()
    kept = root / "hashes" / _text_sha256(repr(folders))[:24]
    with contextlib.suppress(OSError, ValueError, StorageError):
        known, content = trusted(kept, root).read_text("ascii").split()
        if known == state:
            return content
    names = [(number, os.path.relpath(path, folders[number])) for number, path in files]
    content = _text_sha256(repr((names, [file_sha256(Path(path)) for _, path in files])))
    if time.time_ns() - max((max(one[1:3]) for one in times), default=0) > _SETTLED_NS:
        with contextlib.suppress(OSError):
            make_folders(kept.parent)
            with replacing(kept) as file:
                file.write(f"{state} {content}".encode())
    return content


def _files_in(folder: Path) -> list[str]:
    found = []
    for place, folders, names in os.walk(folder):
        folders[:] = [name for name in folders if name != "__pycache__"]
        found += [f"{place}/{name}" for name in names]
    return sorted(found)


def _text_sha256(text: str) -> str:
    return hashlib.sha256(text.encode(errors="surrogateescape")).hexdigest()


def is_believed(entry: Path, cache: Path | None = None) -> bool:
    """Whether an entry of the cache is there, and only this user could have put it there."""
    try:
        return trusted(entry, cache or find_cache()).is_dir()
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
            discard(left_over, "left by a killed process")
    folder = final.with_name(f".{final.name}.{secrets.token_hex(4)}.part")
    make_folders(folder.parent)
    # Nobody else may write into what is half made, whatever the umask is.
    folder.mkdir(stat.S_IRWXU)
    try:
        yield folder
    finally:
        shutil.rmtree(folder, ignore_errors=True)


@contextlib.contextmanager
def keeping(what: str, folder: Path, doing: str, say: Say | None) -> Iterator[None]:
    """Hold the lock of ``folder`` while it is made; BuildError where it cannot be kept there."""
    try:
        with locked(Path(f"{folder}.lock"), doing, say=say):
            yield
    except OSError as error:
        raise BuildError(
            f"{what} cannot be kept in {folder}: {error}. "
            "Free space there, or set SME2_CACHE_DIR to another folder."
        ) from error


def put_in_place(made: Path, final: Path) -> None:
    """Rename ``made`` to ``final``, whose lock is held; what is there is damaged or outdated.

    Only this user may write to it, and the group that shares the cache.
    """
    close_to_others(made, final.parent)
    if final.exists() or final.is_symlink():
        discard(final, "made again")
    made.rename(final)
    _made.add(final)


_made: set[Path] = set()


def is_made_here(entry: Path) -> bool:
    """Whether this process has made an entry: with ``--sme2-fresh`` it believes no other."""
    return entry in _made


LIMIT_VARIABLE = "SME2_CACHE_LIMIT"
DEFAULT_LIMIT = 10 * 10**9
# Each kind is a folder of the cache, with the names that we give. What has another is not ours.
KINDS = {
    "exports": r".+-[0-9a-f]{24}-[0-9a-f]{8}",
    "runners": r".+-[0-9a-f]{12}",
    "emulated": r"[0-9a-f]{32}",
    "bundles": r"[0-9a-f]{32}",
    "sdk": r"executorch-.+",
    "packages": r".+-cp\d+-.+",
    "source-builds": r"[0-9a-f]{12}",
    "tools": r"qemu|llvm|vm-.+|(guest|block_counter)-[0-9a-f]+",
    "weights": r"[^.].*",
    "fake-phone": r"programs-.+",
}
# Fetched from elsewhere, perhaps by hand: only removed when somebody asks for it.
_KEPT = ("tools", "weights", "fake-phone")
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

    @property
    def left_over(self) -> bool:
        """Whether it is what a killed process left half made."""
        return self.path.name.startswith(".")


def mark_used(folder: Path) -> None:
    """Remember that an entry was used just now; a read-only cache cannot, and that is all right."""
    with contextlib.suppress(OSError):
        os.utime(folder)


def entries(cache: Path, kinds: Iterable[str] = KINDS) -> list[CacheEntry]:
    """What the cache holds, the least recently used first."""
    found = []
    for kind in kinds:
        with contextlib.suppress(OSError):
            for path in (cache / kind).iterdir():
                known = re.fullmatch(f"{KINDS[kind]}|{LEFT_OVER}", path.name)
                if known and path.is_dir() and not path.is_symlink():
                    found.append(CacheEntry(kind, path, total_bytes(path), path.stat().st_mtime))
    return sorted(found, key=lambda entry: (entry.used, entry.path))


def chosen(
    found: Iterable[CacheEntry],
    *,
    now: float,
    older_than: float | None = None,
    keep: int | None = None,
) -> list[CacheEntry]:
    """The entries to remove: those not used for so long, then the oldest until the rest fits."""
    found = list(found)
    old = [entry for entry in found if older_than is not None and now - entry.used >= older_than]
    left = [entry for entry in found if entry not in old]
    total = sum(entry.bytes for entry in left)
    while keep is not None and total > keep:
        old.append(left.pop(0))
        total -= old[-1].bytes
    return old


def remove(removed: Iterable[CacheEntry], why: str) -> None:
    for entry in removed:
        discard(entry.path, "left by a killed process" if entry.left_over else why)


def apply_limit(cache: Path | None = None) -> list[CacheEntry]:
    """Remove what killed processes left and, above the limit, what was not used for longest.

    What may be in use stays, so the limit is one for what is kept from run to run.
    """
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
            found = entries(root)
            idle = [entry for entry in found if now - entry.used >= IN_USE_SECONDS]
            removed = [entry for entry in idle if entry.left_over]
            rest = [entry for entry in found if entry not in removed]
            over = chosen(rest, now=now, keep=limit)
            removed += [entry for entry in over if entry in idle and entry.kind not in _KEPT]
            remove(removed, "the cache is above its limit")
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


def parse_age(text: str) -> float:
    """``30d`` or ``12h`` in seconds."""
    match = re.fullmatch(r"\s*(\d{1,6})\s*([dh])\s*", text.lower())
    if match is None:
        raise UsageError(f"{text!r} is not an age. Write it as 30d or 12h.")
    return int(match[1]) * (86400.0 if match[2] == "d" else 3600.0)
