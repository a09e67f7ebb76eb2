"""A program that never changes. Run beside a measurement, it says how fast the machine is."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pytest_sme2.results import Arm, Artifact, Run, RunRequest, TensorSpec
from pytest_sme2.system.files import file_sha256
from pytest_sme2.targets.base import Job
from pytest_sme2.timing.processes import process_median

if TYPE_CHECKING:
    from pytest_sme2.runners.base import Runner
    from pytest_sme2.targets.base import Target

PROGRAM = Path(__file__).parent / "selfcheck.pte"
"""Ten equal convolutions, made by benchmarks/detection_programs.py: no torch is needed here."""

WARMUP, RUNS = 200, 50
"""Alone it warms up until a clock has risen, which takes 0.2 s."""
FEWEST = 3
SHARE = 0.05
"""Of the measurement's own time that may go into the yardstick, once there are a few."""


def selfcheck_artifact() -> Artifact:
    spec = TensorSpec("float32", (1, 8, 64, 64))
    return Artifact(
        model="selfcheck",
        variant="fp32",
        folder=PROGRAM.parent,
        pte=PROGRAM,
        sha256=file_sha256(PROGRAM),
        inputs=(spec,),
        outputs=(spec,),
        weights="random (seed 0)",
    )


@dataclass
class Yardstick:
    """Takes the program's time now and then while something else is measured.

    A latency that was stored at another time can only be compared if the machine is as fast as it
    was then. Neither its name nor the CPU time shows that: a neighbour on the same core, heat or
    another clock make everything slower without a trace. Pairs that are measured together do not
    need it.
    """

    target: Target
    runner: Runner
    folder: Path
    clock: Callable[[], float] = time.monotonic
    times_ns: list[float] = field(default_factory=list)
    spent: float = 0.0

    def __post_init__(self) -> None:
        self.begun = self.clock()

    @property
    def due(self) -> bool:
        """Whether it is asked once more: that must not hold up the measurement too much."""
        elapsed = self.clock() - self.begun
        return len(self.times_ns) < FEWEST or self.spent <= SHARE * elapsed

    def take(self) -> None:
        started = self.clock()
        job = self.job({"warmup": WARMUP, "runs": RUNS})
        run = self.target.run(job.runner, job.request, job.folder)
        self.times_ns.append(process_median(run))
        self.spent += self.clock() - started

    def job(self, how: Mapping[str, Any]) -> Job:
        return Job(self.runner, RunRequest(selfcheck_artifact(), Arm.OFF, **how), self.folder)

    def took(self, run: Run) -> None:
        self.times_ns.append(process_median(run))
        self.spent += sum(run.wall_ns) / 1e9

    @property
    def median_ns(self) -> float:
        return statistics.median(self.times_ns)
