"""The cache: where exports, runners and tools are kept."""

from __future__ import annotations

import contextlib
import os
import pwd
import shlex
import shutil
import stat
from collections.abc import Iterator
from pathlib import Path

from pytest_sme2.errors import StorageError


def cache_folder() -> Path:
    """Where exports, runners and tools are kept: ``SME2_CACHE_DIR``, else the platform's own."""
    chosen = os.environ.get("SME2_CACHE_DIR")
    try:
        folder = Path(chosen).expanduser().resolve() if chosen else _usual_cache_folder()
        # The home of another user: every later access to a file in there would fail.
        folder.exists()
    except (RuntimeError, OSError) as error:
        raise StorageError(
            f"{chosen or 'The default cache folder'!r} cannot be used for exports and runners: "
            f"{error}. Set SME2_CACHE_DIR to another folder."
        ) from error
    return trusted(folder, folder)


def trusted(path: Path, cache: Path) -> Path:
    """``path``, after checking that nobody else could have put it there: it may be executed.

    Every folder from the cache down to it must belong to this user, to root, or to the group that
    the cache is shared with, and must not be writable for everybody.
    """
    try:
        shared = cache.stat()
    except OSError:
        return path
    steps = [cache, *(parent for parent in path.parents if parent.is_relative_to(cache)), path]
    for step in steps:
        try:
            found = step.stat()
        except OSError:
            continue
        if found.st_mode & stat.S_IWOTH:
            raise StorageError(
                f"{step} cannot be used: every user of this machine can write to it, and programs "
                f"in the cache are executed. Run: chmod -R o-w {shlex.quote(str(cache))}, or set "
                "SME2_CACHE_DIR to a folder of your own. To share a cache, use a group: "
                "docs/troubleshooting.md."
            )
        owners = {0, os.geteuid()}
        group = shared.st_mode & stat.S_IWGRP and found.st_gid == shared.st_gid
        ours = found.st_gid in {os.getegid(), *os.getgroups()}
        if found.st_uid not in owners and not (group and ours):
            raise StorageError(
                f"{step} cannot be used: it belongs to {_user_name(found.st_uid)}, and programs in "
                "the cache are executed. Set SME2_CACHE_DIR to a folder of your own, make it yours "
                "with chown, or share it with a group: docs/troubleshooting.md."
            )
    return path


def _user_name(number: int) -> str:
    try:
        return pwd.getpwuid(number).pw_name
    except KeyError:
        return f"user {number}"


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
    folder = final.with_name(f".{final.name}.part")
    # Files that a killed process left.
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir()
    try:
        yield folder
    finally:
        shutil.rmtree(folder, ignore_errors=True)
