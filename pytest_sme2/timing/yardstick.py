"""A program that never changes, run beside a measurement: how fast the machine itself is meanwhile.

A latency that was stored at another time can only be compared if the machine is as fast as it was
then. Neither its name nor the CPU time shows that: a neighbour on the same core, heat or another
clock make everything slower without a trace. So the self-check's program is timed as well, then
and now. Pairs that are measured together do not need it.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import TYPE_CHECKING

from pytest_sme2.results import Arm, Run, RunRequest
from pytest_sme2.timing.processes import process_median
from pytest_sme2.timing.selfcheck import selfcheck_artifact

if TYPE_CHECKING:
    from pytest_sme2.runners.base import Runner
    from pytest_sme2.targets.base import Target

WARMUP, RUNS = 2, 10
CROWD_RUNS = 100
"""Of each of several processes at once: long enough for all of them to run at the same time."""
FEWEST = 3
SHARE = 0.05
"""Of the measurement's own time that may go into this, once there are a few."""


class Yardstick:
    """Takes the program's time now and then while something else is measured."""

    def __init__(
        self,
        target: Target,
        runner: Runner,
        folder: Path,
        clock: Callable[[], float] = time.monotonic,
        at_once: int = 1,
    ) -> None:
        """``at_once`` is on how many cores the measured program runs. With several, its own CPU
        time does not show whether it had them to itself; that of as many processes does.
        """
        self.target = target
        self.runner = runner
        self.folder = folder
        self.clock = clock
        self.at_once = at_once
        self.times_ns: list[float] = []
        self.levels: list[float] = []
        self.spent = 0.0
        self.begun = clock()
        target.put([selfcheck_artifact().pte])

    def take(self) -> None:
        """Once more, where that does not hold up the measurement too much."""
        elapsed = self.clock() - self.begun
        if len(self.times_ns) >= FEWEST and self.spent > SHARE * elapsed:
            return
        started = self.clock()
        self.times_ns.append(process_median(self._run(self.folder, RUNS)))
        if self.at_once > 1:
            self._take_crowd()
        self.spent += self.clock() - started

    def _run(self, folder: Path, runs: int) -> Run:
        request = RunRequest(selfcheck_artifact(), Arm.OFF, warmup=WARMUP, runs=runs)
        return self.target.run(self.runner, request, folder)

    def _take_crowd(self) -> None:
        """Wall time over CPU time, less 1, of several processes at once."""
        folders = [self.folder / f"at_once_{number}" for number in range(self.at_once)]
        with ThreadPoolExecutor(self.at_once) as pool:
            found = list(pool.map(lambda folder: self._run(folder, CROWD_RUNS), folders))
        cpu = sum(sum(run.cpu_ns) for run in found)
        if cpu:
            self.levels.append(sum(sum(run.wall_ns) for run in found) / cpu - 1)

    @property
    def interference(self) -> float | None:
        """How busy the cores were; None where one is used, or where CPU time is not known."""
        return statistics.median(self.levels) if self.levels else None

    @property
    def median_ns(self) -> float:
        return statistics.median(self.times_ns)
