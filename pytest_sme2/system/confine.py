"""Confines what reads files that others made: no network, and little time, memory and disk.

The readers have limits of their own; this holds where one was forgotten: commands that only read
confine themselves. Only the standard library is needed here: the first process of a fake phone's
sandbox uses it, too.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import resource
import signal
import sys
from collections.abc import Iterable
from pathlib import Path
from types import FrameType

from pytest_sme2.errors import Sme2Error, UsageError
from pytest_sme2.system.files import total_bytes

SECONDS_VARIABLE = "SME2_READ_SECONDS"
# A run of 300 cases, 83 MB, takes 35 s to merge.
_SECONDS, _SECONDS_PER_MEGABYTE = 60.0, 2.0
_MEMORY_BYTES = 8 << 30
_FILE_BYTES = 16 << 30
TOO_MUCH_MEMORY = (
    f"Reading took more than {_MEMORY_BYTES >> 30} GiB of memory: a file is damaged, or made to "
    "take much."
)
_CLONE_NEWUSER, _CLONE_NEWNET = 0x10000000, 0x40000000


def confine(files: Iterable[Path]) -> bool:
    """Confine this process, which reads these files; whether it also lost the network."""
    megabytes = sum(map(total_bytes, files)) / 1e6
    seconds = _given_seconds() or _SECONDS + _SECONDS_PER_MEGABYTE * megabytes

    def give_up(_signal: int, _frame: FrameType | None) -> None:
        raise Sme2Error(
            f"Reading took more than {seconds:.0f} s of CPU time: a file is damaged, or made to "
            f"take long. If you trust it, allow more with {SECONDS_VARIABLE}."
        )

    signal.signal(signal.SIGXCPU, give_up)
    limit_process(int(seconds) + 1)
    return _leave_network()


def limit_process(seconds: int | None = None) -> None:
    limits = {"RLIMIT_AS": _MEMORY_BYTES, "RLIMIT_FSIZE": _FILE_BYTES, "RLIMIT_CORE": 0}
    for name, most in limits.items():
        _lower(getattr(resource, name), most, most)
    if seconds is not None:
        # The second limit ends what does not come to handle the signal of the first.
        _lower(resource.RLIMIT_CPU, seconds, seconds + 10)


def _lower(kind: int, soft: int, hard: int) -> None:
    """Never raise a limit that somebody else set."""
    soft, hard = (
        wanted if there == resource.RLIM_INFINITY else min(wanted, there)
        for wanted, there in zip((soft, hard), resource.getrlimit(kind), strict=True)
    )
    # macOS refuses a limit of memory.
    with contextlib.suppress(ValueError, OSError):
        resource.setrlimit(kind, (min(soft, hard), hard))


def _leave_network() -> bool:
    """Move to a network without interfaces; False where the system does not allow it."""
    if not sys.platform.startswith("linux"):
        return False
    user, group = os.geteuid(), os.getegid()
    if user and not os.access("/proc/self/uid_map", os.W_OK):
        return False
    kind = _CLONE_NEWNET | (_CLONE_NEWUSER if user else 0)
    if ctypes.CDLL(None, use_errno=True).unshare(kind):
        return False
    if user:
        # Files keep their owners' numbers.
        maps = (("setgroups", "deny"), ("uid_map", f"{user} {user} 1"))
        for name, text in (*maps, ("gid_map", f"{group} {group} 1")):
            Path("/proc/self", name).write_text(text, encoding="utf-8")
    return True


def _given_seconds() -> float:
    value = os.environ.get(SECONDS_VARIABLE, "")
    if not value:
        return 0.0
    if not value.isdecimal() or not 0 < int(value) < 10**6:
        raise UsageError(f"{SECONDS_VARIABLE}={value!r} is not a number of seconds.")
    return float(value)
