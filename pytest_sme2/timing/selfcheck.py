"""A program that never changes, as a measure of the machine. The command prints what it shows.

Measured against itself, it says how noisy this machine is, and what can be seen on it: any
difference found is a false alarm. Run beside a measurement, it says how fast the machine itself is
meanwhile (``Yardstick``).
"""

from __future__ import annotations

import functools
import statistics
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pytest_sme2.results import Arm, Artifact, Outcome, PairedTiming, Run, RunRequest, TensorSpec
from pytest_sme2.system.files import file_sha256
from pytest_sme2.targets.base import Job
from pytest_sme2.timing import stats
from pytest_sme2.timing.pairs import INTERFERENCE_MARGIN, measure_pairs
from pytest_sme2.timing.processes import SamplingPlan, Starter, process_median

if TYPE_CHECKING:
    from pytest_sme2.runners.base import Runner
    from pytest_sme2.targets.base import Target

SAME = ("A", "A again")
PROGRAM = Path(__file__).parent / "selfcheck.pte"
"""Ten equal convolutions, made by benchmarks/detection_programs.py: no torch is needed here."""

GOVERNOR = Path("/sys/devices/system/cpu/cpu0/cpufreq/scaling_governor")
WANTED = 0.03
"""A machine that cannot show a slowdown of this size with all pairs is called noisy."""
DROPPED_SHARE = 0.1

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


@dataclass(frozen=True)
class SelfCheck:
    """What A/A measurements on one machine came to."""

    target: str
    threshold: float
    measurements: tuple[PairedTiming, ...]
    governor: str | None = None

    def count(self, outcome: Outcome) -> int:
        decisions = (measurement.decision for measurement in self.measurements)
        return sum(decision is not None and decision.outcome is outcome for decision in decisions)

    @property
    def false_alarms(self) -> int:
        return self.count(Outcome.REGRESSED)

    @property
    def dropped(self) -> int:
        return sum(len(measurement.dropped) for measurement in self.measurements)

    @property
    def pairs(self) -> int:
        """All that were measured, dropped ones included."""
        return self.dropped + sum(len(measurement.pairs) for measurement in self.measurements)

    @property
    def noise_floor(self) -> float | None:
        """Median over the measurements; None if all were too short."""
        floors = [entry.noise_floor for entry in self.measurements if entry.noise_floor is not None]
        return statistics.median(floors) if floors else None

    @functools.cached_property
    def detectable(self) -> tuple[float, ...]:
        """The smallest slowdown caught 4 times of 5, after each look; empty where unknown."""
        if self.noise_floor is None:
            return ()
        ratios = [pair.log_ratio for entry in self.measurements for pair in entry.pairs]
        return stats.smallest_detectable(stats.robust_spread(ratios), self.threshold)

    @property
    def advice(self) -> tuple[str, ...]:
        """What to do, most likely cause first; nothing where the machine is quiet."""
        if not self.detectable:
            return ("There was too little time for a single look: give more --minutes.",)
        if self.detectable[-1] <= WANTED:
            return ()
        causes = tuple(self._causes()) or (
            "No single cause was seen. Shared virtual machines and laptops on battery are often "
            "like this; a machine of its own, plugged in, is the cure.",
        )
        return (
            *causes,
            f"Until then a slowdown below {self.detectable[-1]:.1%} will mostly go unseen: expect "
            "INCONCLUSIVE, give a larger --sme2-budget, or gate on structure alone.",
        )

    def _causes(self) -> Iterator[str]:
        pairs = (pair for entry in self.measurements for pair in entry.pairs)
        levels = [pair.interference for pair in pairs if pair.interference is not None]
        busy = bool(levels) and statistics.median(levels) > INTERFERENCE_MARGIN
        if busy or self.dropped > DROPPED_SHARE * self.pairs:
            yield (
                "Other programs take the cores while it measures. Stop them, or measure when the "
                "machine is idle; on a CI host, run one job at a time."
            )
        if self.governor not in (None, "performance"):
            yield (
                f"The CPU's frequency governor is {self.governor!r}. Set it to 'performance' "
                "(cpupower frequency-set -g performance) while measuring."
            )
        if any(measurement.drift for measurement in self.measurements):
            yield (
                "Runs drift within a process: the machine heats up or changes its clock. Plug it "
                "in, switch low-power modes off, let it cool."
            )


def check_machine(
    starter: Starter,
    target: str,
    *,
    seconds: float,
    threshold: float = stats.TOLERATED_SLOWDOWN,
    progress: Callable[[str], None] | None = None,
) -> SelfCheck:
    """Measure A against A again and again for about so long; at least once."""
    clock = starter.clock
    deadline = clock() + seconds
    measurements: list[PairedTiming] = []
    longest = 0.0
    while not measurements or clock() + longest < deadline:
        number = len(measurements)

        def tell(line: str, number: int = number) -> None:
            if progress is not None:
                progress(f"measurement {number + 1}: {line}")

        begun = clock()
        plan = SamplingPlan(
            threshold=threshold,
            seed=number,
            # Many short measurements say more about false alarms than one long one.
            looks=stats.USUAL_LOOKS,
            split=stats.USUAL_SPLIT,
            budget_seconds=max(1.0, deadline - begun),
        )
        measurement = measure_pairs(starter, *SAME, plan, tell)
        measurements.append(measurement)
        longest = max(longest, clock() - begun)
    return SelfCheck(target, threshold, tuple(measurements), _governor())


def _governor() -> str | None:
    try:
        return GOVERNOR.read_text().strip()
    except OSError:
        return None


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
