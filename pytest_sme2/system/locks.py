"""Locks between processes: one holder at a time, and a line that says whom the others wait for."""

from __future__ import annotations

import contextlib
import functools
import getpass
import json
import os
import socket
import stat
import time
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

from pytest_sme2.errors import BusyError, StorageError
from pytest_sme2.system.files import make_folders, open_plain
from pytest_sme2.system.platforms import sysctl
from pytest_sme2.system.terminal import Say

if TYPE_CHECKING:
    from filelock import FileLock

_PAUSE_SECONDS = 0.05
# Every user of a machine may make files there, and remove only their own.
_MACHINE_FOLDERS = (Path("/run/lock"), Path("/var/lock"), Path("/tmp"))  # noqa: S108 - see above
_BOOT = Path("/proc/sys/kernel/random/boot_id")


@contextlib.contextmanager
def locked(
    file: Path,
    doing: str,
    *,
    say: Say | None = None,
    timeout_seconds: float = -1,
    shared: bool = False,
) -> Iterator[None]:
    """Hold the lock on ``file``, which is only a lock; it ends with its process, even if killed.

    ``doing`` stands after "another process is". ``say`` is told once for each holder that this
    process waits. BusyError: it waited for ``timeout_seconds``, of which a negative number is none.
    ``shared``: other users of this machine lock it as well, see ``machine_lock``.
    """
    # Imported late, since that takes long.
    from filelock import FileLock

    mode = 0o666 if shared else 0o644
    try:
        make_folders(file.parent)
        lock = FileLock(file, mode=mode, fallback_to_soft=False, on_acquired=_write_holder)
        _wait_for(lock, file, doing, say, timeout_seconds)
    except (OSError, NotImplementedError) as error:
        reason = getattr(error, "strerror", None) or error
        raise StorageError(
            f"{file} cannot be locked: {reason}. Free space there, correct its permissions, or use "
            "another folder: SME2_CACHE_DIR for the cache, --sme2-baseline-dir for baselines, "
            "--sme2-out for results."
        ) from error
    try:
        yield
    finally:
        lock.release()


def _wait_for(
    lock: FileLock, file: Path, doing: str, say: Say | None, timeout_seconds: float
) -> None:
    from filelock import Timeout

    began, told = time.monotonic(), set()
    while True:
        try:
            lock.acquire(timeout=0)
            return
        except Timeout:
            holder = holder_of(file)
        if 0 <= timeout_seconds <= time.monotonic() - began:
            enough = f" This one has waited for {timeout_seconds:g} s." if timeout_seconds else ""
            raise BusyError(
                f"Another process is {doing}{holder}.{enough} Wait for it, or end it, and run "
                f"again. It holds the lock {file}."
            )
        if say is not None and holder not in told:
            told.add(holder)
            say(f"another process is {doing}{holder}; waiting for it")
        time.sleep(_PAUSE_SECONDS)


shared_lock = functools.partial(locked, shared=True, timeout_seconds=0)


def machine_lock(name: str) -> Path:
    """The file of a lock that all users of this machine share: the same path for all of them."""
    for folder in _MACHINE_FOLDERS:
        with contextlib.suppress(OSError):
            mode = folder.stat().st_mode
            if mode & stat.S_IWOTH and mode & stat.S_ISVTX and os.access(folder, os.W_OK):
                return folder / f"pytest-sme2-{name}.lock"
    return _MACHINE_FOLDERS[-1] / f"pytest-sme2-{name}.lock"


def machine_since_boot(place: Path) -> str:
    """This machine since its start, as the locks at ``place`` see it.

    Machines that are copies of one have equal names, devices and inodes, but no common start.
    Containers of one machine have that, and different file systems.
    """
    try:
        started = _BOOT.read_text("ascii").strip()
    except (OSError, ValueError):
        started = sysctl("kern.bootsessionuuid")
    status = place.stat()
    return f"{socket.gethostname()}:{started}:{status.st_dev}:{status.st_ino}"


def _write_holder(descriptor: int) -> None:
    """Only a note for waiting processes: with a full disk the lock works without it."""
    with contextlib.suppress(OSError):
        if os.fstat(descriptor).st_nlink > 1:
            return  # by its other name it may be anything
        known = {"pid": os.getpid(), "user": user_name(), "since": time.time()}
        os.ftruncate(descriptor, 0)
        os.pwrite(descriptor, json.dumps(known).encode(), 0)


def holder_of(file: Path) -> str:
    """Who took the lock last, in brackets and after a space; empty if unknown."""
    with contextlib.suppress(OSError), open_plain(file) as opened:
        return _holder_in(opened.read(4096))
    return ""


def user_name() -> str:
    try:
        return getpass.getuser()
    except (KeyError, OSError):
        return str(os.getuid())


def _holder_in(note: bytes) -> str:
    """``(process 12 of anna, since 14:03:20)``; empty where the holder did not say."""
    with contextlib.suppress(ValueError, KeyError, TypeError, RecursionError):
        known = json.loads(note)
        since = time.strftime("%H:%M:%S", time.localtime(float(known["since"])))
        user = "".join(letter for letter in str(known["user"])[:40] if letter.isprintable())
        return f" (process {int(known['pid'])} of {user}, since {since})"
    return ""
