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
from pathlib import Path
from typing import TYPE_CHECKING

from pytest_sme2.results import Arm, RunRequest
from pytest_sme2.timing.processes import process_median
from pytest_sme2.timing.selfcheck import selfcheck_artifact

if TYPE_CHECKING:
    from pytest_sme2.runners.base import Runner
    from pytest_sme2.targets.base import Target

WARMUP, RUNS = 2, 10
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
    ) -> None:
        self.target = target
        self.runner = runner
        self.folder = folder
        self.clock = clock
        self.times_ns: list[float] = []
        self.spent = 0.0
        self.begun = clock()
        target.put([selfcheck_artifact().pte])

    def take(self) -> None:
        """Once more, where that does not hold up the measurement too much."""
        elapsed = self.clock() - self.begun
        if len(self.times_ns) >= FEWEST and self.spent > SHARE * elapsed:
            return
        started = self.clock()
        request = RunRequest(selfcheck_artifact(), Arm.OFF, warmup=WARMUP, runs=RUNS)
        self.times_ns.append(process_median(self.target.run(self.runner, request, self.folder)))
        self.spent += self.clock() - started

    @property
    def median_ns(self) -> float:
        return statistics.median(self.times_ns)
