"""Keeps a run directory to one run at a time: the files of two would be taken for one's."""

from __future__ import annotations

import contextlib
import errno
import fcntl
import os
import time
import weakref
from pathlib import Path

from pytest_sme2.errors import UsageError
from pytest_sme2.system.files import unwritable
from pytest_sme2.system.locks import open_lock_file

LOCK = ".run.lock"
# Somebody is about to write a name into the file, which takes no time at all.
_TRIES = 500
_PAUSE_SECONDS = 0.01


def make_ignored_folder(folder: Path) -> None:
    """Make a folder for results, which git then ignores. One that is there stays as it is."""
    if folder.is_dir() and any(folder.iterdir()):
        return
    folder.mkdir(parents=True, exist_ok=True)
    (folder / ".gitignore").write_text("# Results of pytest-sme2\n*\n", encoding="utf-8")


class RunLock:
    """A run directory that is this run's until it is left, or the process ends.

    All processes of one run, which know each other by its name, hold it together.
    """

    def __init__(self, folder: Path, run: str) -> None:
        """Raises UsageError where another run uses it."""
        try:
            make_ignored_folder(folder)
            descriptor = open_lock_file(folder / LOCK, 0o666)
        except OSError as error:
            raise unwritable(folder / LOCK, error) from error
        self._close = weakref.finalize(self, os.close, descriptor)
        if os.fstat(descriptor).st_nlink > 1:
            self.leave()
            raise UsageError(
                f"{folder / LOCK} has another name (a hard link), and that file would be changed "
                "with it. Remove it, and run again."
            )
        try:
            holder = _holder(descriptor, run)
        except OSError as error:
            self.leave()
            if error.errno in (errno.ENOLCK, errno.ENOTSUP, errno.ENOSYS):
                return  # A file system without locks cannot tell, and must not be in the way.
            raise unwritable(folder / LOCK, error) from error
        if holder != run:
            self.leave()
            raise UsageError(
                f"{folder} is in use by another run ({holder or 'just starting'}). Wait for it, "
                "or give this one a folder of its own: --sme2-out (pytest), --out (sme2 run)."
            )

    def leave(self) -> None:
        self._close()


def _holder(descriptor: int, run: str) -> str:
    """The run that holds the file; if no run does, this one takes it."""
    for _ in range(_TRIES):
        with contextlib.suppress(BlockingIOError):
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            os.ftruncate(descriptor, 0)
            os.pwrite(descriptor, run.encode("utf-8", "replace"), 0)
        with contextlib.suppress(BlockingIOError):
            # In between another may have come first, so the name is read in any case.
            fcntl.flock(descriptor, fcntl.LOCK_SH | fcntl.LOCK_NB)
            return os.pread(descriptor, 4096, 0).decode("utf-8", "replace")
        time.sleep(_PAUSE_SECONDS)
    return ""
