"""Waits for the end of a process that this one did not start."""

from __future__ import annotations

import os
import time
from pathlib import Path


def wait_until_gone(process: int) -> None:
    for _ in range(10_000):
        try:
            os.kill(process, 0)
        except ProcessLookupError:
            return
        # Nobody may be there to reap an orphan; then it is a zombie, which is over too.
        status = Path(f"/proc/{process}/stat")
        if status.exists() and status.read_text().rpartition(")")[2].split()[0] == "Z":
            return
        time.sleep(0.05)
    raise AssertionError(f"process {process} is still there")
