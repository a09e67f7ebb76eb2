"""Waits for the end of a process that this one did not start, and for anything else."""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from pathlib import Path


def wait_for(condition: Callable[[], bool]) -> None:
    for _ in range(12_000):
        if condition():
            return
        time.sleep(0.05)
    raise AssertionError("it did not happen within ten minutes")


def wait_until_gone(process: int) -> None:
    wait_for(lambda: _is_gone(process))


def _is_gone(process: int) -> bool:
    try:
        os.kill(process, 0)
    except ProcessLookupError:
        return True
    # Nobody may be there to reap an orphan; then it is a zombie, which is over too.
    status = Path(f"/proc/{process}/stat")
    return status.exists() and status.read_text().rpartition(")")[2].split()[0] == "Z"
