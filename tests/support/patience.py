"""Time limits that follow the machine: in seconds as an idle one has them, not of a clock.

What takes a minute alone takes ten where ten want to run at once. So a limit is spent the slower,
the busier the machine is, and strikes only what hangs.
"""

from __future__ import annotations

import os
import subprocess
import time
from collections.abc import Callable, Sequence
from typing import Any

_YARDSTICK_SECONDS = 0.05


def slowness(load: Callable[[], tuple[float, float, float]] = os.getloadavg) -> float:
    """How many times longer than alone work takes here now; at least 1.

    By a piece of work that takes a known CPU time, and by how many want to run: the first is of
    this moment, and the second of the last minute.
    """
    begun, used = time.monotonic(), time.process_time()
    while time.process_time() - used < _YARDSTICK_SECONDS:
        pass
    waited = (time.monotonic() - begun) / _YARDSTICK_SECONDS
    return max(1.0, waited, load()[0] / (os.cpu_count() or 1))


def patient(seconds: float) -> float:
    """A limit for what begins now and cannot ask again; the machine may get twice as busy."""
    return 2 * seconds * slowness()


class Patience:
    """A limit that is asked again and again."""

    def __init__(self, seconds: float, slow: Callable[[], float] = slowness) -> None:
        self.left = seconds
        self._slow = slow
        self._since = time.monotonic()

    def spent(self) -> bool:
        now = time.monotonic()
        self.left -= (now - self._since) / self._slow()
        self._since = now
        return self.left < 0


def run_patiently(
    command: Sequence[str], seconds: float, **choices: Any
) -> subprocess.CompletedProcess[str]:
    """``subprocess.run`` with what it says, and a limit that follows the machine."""
    patience = Patience(seconds)
    pipe = subprocess.PIPE
    with subprocess.Popen(command, stdout=pipe, stderr=pipe, text=True, **choices) as process:
        while True:
            try:
                out, err = process.communicate(timeout=5)
                return subprocess.CompletedProcess(command, process.returncode, out, err)
            except subprocess.TimeoutExpired:
                if patience.spent():
                    process.kill()
                    raise
            except BaseException:
                process.kill()
                raise
