"""Removes AF_VSOCK from this process and everything that it starts.

adbd listens on vsock and TCP. A network namespace does not reliably cover vsock: in a virtual
machine the hypervisor could reach it. A seccomp filter answers such sockets with "address family
not supported", which adbd tolerates.
"""

from __future__ import annotations

import ctypes
import errno
import os
import platform
import struct

_AF_VSOCK = 40
_PR_SET_NO_NEW_PRIVS = 38
_PR_SET_SECCOMP = 22
_SECCOMP_MODE_FILTER = 2
_ALLOW = 0x7FFF0000
_ERRNO = 0x00050000
# Machine -> (audit architecture, number of the socket system call).
_SYSTEM_CALLS = {"x86_64": (0xC000003E, 41), "aarch64": (0xC00000B7, 198)}
_LOAD, _JUMP_IF_EQUAL, _RETURN = 0x20, 0x15, 0x06


class _Program(ctypes.Structure):
    _fields_ = [("length", ctypes.c_ushort), ("filter", ctypes.c_void_p)]


def forbid_vsock() -> None:
    """Install the filter; raise OSError on a machine that it does not support."""
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
    libc = ctypes.CDLL(None, use_errno=True)
    for arguments in (
        (_PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0),
        (_PR_SET_SECCOMP, _SECCOMP_MODE_FILTER, ctypes.byref(program), 0, 0),
    ):
        if libc.prctl(*arguments) != 0:
            code_number = ctypes.get_errno()
            raise OSError(code_number, f"prctl: {os.strerror(code_number)}")
