"""What a fake phone's sandbox asks of the kernel: its own root, network and processes.

Runs inside the sandbox, with the standard library only.
"""

from __future__ import annotations

import contextlib
import ctypes
import errno
import fcntl
import os
import platform
import signal
import socket
import struct
from collections.abc import Callable
from pathlib import Path

# Android's numbers: the user of a shell, and the group that may see all processes.
SHELL = 2000
READ_PROCESSES = 3009
SHELL_GROUPS = (1004, 1007, 1011, 1015, 1028, 3001, 3002, 3003, 3006, READ_PROCESSES, 3011)
_CLONE_NEWUSER = 0x10000000
_CLONE_NEWPID = 0x20000000
_MS_BIND = 0x1000
_MNT_DETACH = 2
_SIOCGIFFLAGS = 0x8913
_SIOCSIFFLAGS = 0x8914
_IFF_UP = 0x1
_AF_VSOCK = 40
_PR_SET_NO_NEW_PRIVS = 38
_PR_SET_SECCOMP = 22
_SECCOMP_MODE_FILTER = 2
_ALLOW = 0x7FFF0000
_ERRNO = 0x00050000
# Machine -> (audit architecture, number of the socket system call).
_SYSTEM_CALLS = {"x86_64": (0xC000003E, 41), "aarch64": (0xC00000B7, 198)}
_LOAD, _JUMP_IF_EQUAL, _RETURN = 0x20, 0x15, 0x06
_libc = ctypes.CDLL(None, use_errno=True)


def _check(doing: str, status: int) -> None:
    if status != 0:
        number = ctypes.get_errno()
        raise OSError(number, f"a fake phone cannot {doing}: {os.strerror(number)}")


def bring_up_loopback() -> None:
    """Start the loopback interface, the only one of a new network namespace."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as control:
        request = fcntl.ioctl(control, _SIOCGIFFLAGS, struct.pack("16sh14x", b"lo", 0))
        flags = struct.unpack("16sh14x", request)[1]
        fcntl.ioctl(control, _SIOCSIFFLAGS, struct.pack("16sh14x", b"lo", flags | _IFF_UP))


def mount(kind: str, place: Path, options: str = "") -> None:
    words = (kind.encode(), os.fsencode(place), kind.encode(), 0, options.encode())
    # In a new process, because /proc shows the processes of the one that mounts it.
    child = os.fork()
    if child == 0:
        os._exit(ctypes.get_errno() if _libc.mount(*words) else 0)
    number = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    if number:
        raise OSError(number, f"a fake phone cannot mount {kind}: {os.strerror(number)}")


def bind(source: Path, place: Path) -> None:
    """Show a file or folder at a second place."""
    words = (os.fsencode(source), os.fsencode(place), None, _MS_BIND, None)
    _check(f"show {source} at {place}", _libc.mount(*words))


def leave_machine(root: Path) -> None:
    """Make ``root``, a mount, the whole file system. No path leads to this machine's files then."""
    os.chdir(root)
    # Mounted over each other at one place, and the upper one, the old root, taken away.
    _check("change its root", _libc.pivot_root(b".", b"."))
    _check("leave this machine's files", _libc.umount2(b".", _MNT_DETACH))
    os.chdir("/")


def becoming_shell(root: Path, shell: int) -> Callable[[], None]:
    """What a new process does before its program: go to a phone's root, as its shell's user."""

    def become() -> None:
        if shell:
            os.chroot(root)
            os.setgroups(SHELL_GROUPS)
            os.setgid(shell)
            os.setuid(shell)
        else:
            # There is one user in the sandbox. In there it gets the number.
            _check("have a user of its own", _libc.unshare(_CLONE_NEWUSER))
            for name, text in (("setgroups", "deny"), ("gid_map", "MAP"), ("uid_map", "MAP")):
                Path("/proc/self", name).write_text(text.replace("MAP", f"{SHELL} 0 1"), "utf-8")
            os.chroot(root)
        os.chdir("/")

    return become


class ProcessTree:
    """As a context manager: processes started inside the block belong to the tree.

    A phone sees, and can kill, only its own: a phone that cleans up must not end others' runs.
    Its first process only waits. It is not the phone's adbd, so killing adbd does not end the rest
    of the phone. It also adopts orphans, which the kernel removes because SIGCHLD is ignored.
    """

    def __init__(self) -> None:
        self._home = os.open("/proc/self/ns/pid", os.O_RDONLY)
        _check("have processes of its own", _libc.unshare(_CLONE_NEWPID))
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
        _check("enter its processes", _libc.setns(namespace, _CLONE_NEWPID))


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


class _Program(ctypes.Structure):
    _fields_ = [("length", ctypes.c_ushort), ("filter", ctypes.c_void_p)]


def forbid_vsock() -> None:
    """Remove AF_VSOCK from this process and everything that it starts.

    adbd listens on vsock and TCP. A network namespace does not reliably cover vsock: in a virtual
    machine the hypervisor could reach it. A seccomp filter answers such sockets with "address
    family not supported", which adbd tolerates.
    """
    machine = platform.machine()
    if machine not in _SYSTEM_CALLS:
        raise OSError(errno.ENOSYS, f"a fake phone does not run on {machine}")
    architecture, number = _SYSTEM_CALLS[machine]
    # seccomp_data: the call's number at 0, the architecture at 4, the first argument at 16.
    instructions = [
        (_LOAD, 0, 0, 4),
        (_JUMP_IF_EQUAL, 0, 5, architecture),
        (_LOAD, 0, 0, 0),
        (_JUMP_IF_EQUAL, 0, 3, number),
        (_LOAD, 0, 0, 16),
        (_JUMP_IF_EQUAL, 0, 1, _AF_VSOCK),
        (_RETURN, 0, 0, _ERRNO | errno.EAFNOSUPPORT),
        (_RETURN, 0, 0, _ALLOW),
    ]
    code = b"".join(struct.pack("=HBBI", *instruction) for instruction in instructions)
    buffer = ctypes.create_string_buffer(code, len(code))
    program = _Program(len(instructions), ctypes.cast(buffer, ctypes.c_void_p))
    for arguments in (
        (_PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0),
        (_PR_SET_SECCOMP, _SECCOMP_MODE_FILTER, ctypes.byref(program), 0, 0),
    ):
        _check("do without vsock", _libc.prctl(*arguments))
