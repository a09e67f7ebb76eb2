"""Locks between processes: one holder at a time, and a line that says what the others wait for."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from pathlib import Path

from pytest_sme2.errors import BusyError, StorageError
from pytest_sme2.system.terminal import Say


@contextlib.contextmanager
def locked(
    file: Path, doing: str, *, say: Say | None = None, timeout_seconds: float = -1
) -> Iterator[None]:
    """Hold the lock on ``file``; its folder is made where it is missing.

    The lock ends with its process, however that ends.

    Args:
        file: a file that only serves as the lock.
        doing: what the holder does, after "another process is": ``exporting toy_cnn fp32``.
        say: is told, once, that this process waits.
        timeout_seconds: the longest wait; below zero there is no limit.

    Raises:
        BusyError: another process held it all the time.
        StorageError: the file cannot be made.
    """
    # Imported late: most runs of pytest need no lock.
    from filelock import FileLock, Timeout

    lock = FileLock(file)
    try:
        file.parent.mkdir(parents=True, exist_ok=True)
        try:
            lock.acquire(timeout=0)
        except Timeout:
            if timeout_seconds and say is not None:
                say(f"another process is {doing}; waiting for it")
            lock.acquire(timeout=timeout_seconds)
    except Timeout as error:
        waited = f" This one has waited for {timeout_seconds:g} s." if timeout_seconds else ""
        raise BusyError(
            f"Another process is {doing}.{waited} Wait for it, or end it, and run again. "
            f"It holds the lock {file}."
        ) from error
    except OSError as error:
        raise StorageError(
            f"{file} cannot be written: {error.strerror or error}. "
            "Make room there, or name another folder in SME2_CACHE_DIR."
        ) from error
    try:
        yield
    finally:
        lock.release()
