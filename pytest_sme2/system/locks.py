"""Locks between processes: one holder at a time, and a line that says whom the others wait for."""

from __future__ import annotations

import contextlib
import errno
import fcntl
import functools
import getpass
import json
import os
import socket
import stat
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

from pytest_sme2.errors import BusyError, StorageError
from pytest_sme2.system.files import make_folders, umask
from pytest_sme2.system.platforms import sysctl
from pytest_sme2.system.terminal import Say

_PAUSE_SECONDS = 0.05
_NO_LOCKS = frozenset((errno.ENOLCK, errno.ENOTSUP, errno.EOPNOTSUPP, errno.ENOSYS, errno.EINVAL))
# Every user of a machine may make files there, and remove only their own.
_MACHINE_FOLDERS = (Path("/run/lock"), Path("/var/lock"), Path("/tmp"))  # noqa: S108 - see above
_ALL_USERS = 0o666
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
    try:
        make_folders(file.parent)
        mode = _ALL_USERS if shared else _ALL_USERS & ~umask() & ~stat.S_IWOTH
        descriptor = _acquire(file, mode, _Waiting(file, doing, say, timeout_seconds))
        _write_holder(descriptor)
    except OSError as error:
        raise StorageError(
            f"{file} cannot be written: {error.strerror or error}. Free space there, or correct "
            "its permissions. If it is in the cache, you can set SME2_CACHE_DIR to another folder."
        ) from error
    try:
        yield
    finally:
        os.close(descriptor)


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


def _acquire(file: Path, mode: int, waiting: _Waiting) -> int:
    while True:
        descriptor = open_lock_file(file, mode)
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            # If the file was removed meanwhile, this lock protects nothing.
            with contextlib.suppress(FileNotFoundError):
                if os.path.samestat(file.lstat(), os.fstat(descriptor)):
                    return descriptor
            os.close(descriptor)
        except OSError as error:
            holder = _read_holder(descriptor)
            os.close(descriptor)
            if error.errno in _NO_LOCKS:
                raise StorageError(
                    f"{file} cannot be locked: its file system has no locks. Use another folder: "
                    "SME2_CACHE_DIR for the cache, --sme2-baseline-dir for baselines."
                ) from error
            if error.errno not in (errno.EWOULDBLOCK, errno.EAGAIN, errno.EACCES):
                raise
            waiting.pause(holder)


def open_lock_file(file: Path, mode: int) -> int:
    """Open a lock file, or make it; never the target of a link that somebody put there."""
    always = os.O_RDWR | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK
    while True:
        # First without O_CREAT: the kernel refuses that for files of others in a shared folder.
        with contextlib.suppress(FileNotFoundError):
            descriptor = os.open(file, always)
            if not stat.S_ISREG(os.fstat(descriptor).st_mode):
                os.close(descriptor)
                raise OSError(errno.EINVAL, "it is not a plain file", str(file))
            return descriptor
        with contextlib.suppress(FileExistsError):
            descriptor = os.open(file, always | os.O_CREAT | os.O_EXCL, mode)
            os.fchmod(descriptor, mode)
            return descriptor


@dataclass
class _Waiting:
    """How long this process waits, and what it says meanwhile."""

    file: Path
    doing: str
    say: Say | None
    timeout_seconds: float
    began: float = field(default_factory=time.monotonic)
    said: set[str] = field(default_factory=set)

    def pause(self, holder: str) -> None:
        """Wait a moment for ``holder``; raises BusyError when this was long enough."""
        limit = self.timeout_seconds
        if 0 <= limit <= time.monotonic() - self.began:
            enough = f" This one has waited for {limit:g} s." if limit else ""
            raise BusyError(
                f"Another process is {self.doing}{holder}.{enough} Wait for it, or end it, and "
                f"run again. It holds the lock {self.file}."
            )
        if self.say is not None and holder not in self.said:
            self.said.add(holder)
            self.say(f"another process is {self.doing}{holder}; waiting for it")
        time.sleep(_PAUSE_SECONDS)


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
    try:
        descriptor = os.open(file, os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK)
    except OSError:
        return ""
    try:
        return _read_holder(descriptor)
    finally:
        os.close(descriptor)


def user_name() -> str:
    try:
        return getpass.getuser()
    except (KeyError, OSError):
        return str(os.getuid())


def _read_holder(descriptor: int) -> str:
    """``(process 12 of anna, since 14:03:20)``; empty where the holder did not say."""
    with contextlib.suppress(OSError, ValueError, KeyError, TypeError, RecursionError):
        known = json.loads(os.pread(descriptor, 4096, 0))
        since = time.strftime("%H:%M:%S", time.localtime(float(known["since"])))
        user = "".join(letter for letter in str(known["user"])[:40] if letter.isprintable())
        return f" (process {int(known['pid'])} of {user}, since {since})"
    return ""
