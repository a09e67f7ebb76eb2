"""A process tree per fake phone: a phone sees, and can kill, only its own processes.

Runs inside the sandbox, with the standard library only. Without it, phones would share one /proc,
and a phone that cleans up would end the runs of the others.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import signal

_CLONE_NEWPID = 0x20000000


class ProcessTree:
    """As a context manager: processes started inside the block belong to the tree.

    Its first process only waits. It is not the phone's adbd, so killing adbd does not end the rest
    of the phone. It also adopts orphans, which the kernel removes because SIGCHLD is ignored.
    """

    def __init__(self) -> None:
        self._libc = ctypes.CDLL(None, use_errno=True)
        self._home = os.open("/proc/self/ns/pid", os.O_RDONLY)
        self._check(self._libc.unshare(_CLONE_NEWPID))
        try:
            first = os.fork()
            if first == 0:
                _wait_for_ever()
            self._tree = os.open(f"/proc/{first}/ns/pid", os.O_RDONLY)
        finally:
            self._enter(self._home)

    def __enter__(self) -> None:
        self._enter(self._tree)

    def __exit__(self, *details: object) -> None:
        self._enter(self._home)

    def _enter(self, namespace: int) -> None:
        """Affects only the future children of this process."""
        self._check(self._libc.setns(namespace, _CLONE_NEWPID))

    def _check(self, status: int) -> None:
        if status != 0:
            number = ctypes.get_errno()
            raise OSError(number, f"a fake phone needs process namespaces: {os.strerror(number)}")


def _wait_for_ever() -> None:
    # This is a copy of the supervisor; never return into its code.
    try:
        os.closerange(0, os.sysconf("SC_OPEN_MAX"))
        signal.signal(signal.SIGCHLD, signal.SIG_IGN)
        while True:
            signal.pause()
    finally:
        with contextlib.suppress(OSError):
            os._exit(1)
