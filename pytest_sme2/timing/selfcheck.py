"""A program measured against itself: how noisy this machine is, and what can be seen on it.

Any difference found here is a false alarm. The command prints it.
"""

from __future__ import annotations

import functools
import statistics
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from pytest_sme2.results import Artifact, Outcome, PairedTiming, TensorSpec
from pytest_sme2.system.files import file_sha256
from pytest_sme2.timing import stats
from pytest_sme2.timing.arms import RunArm, RunInTurns
from pytest_sme2.timing.pairs import INTERFERENCE_MARGIN, measure_pairs
from pytest_sme2.timing.sampling import SamplingPlan

PROGRAM = Path(__file__).parent / "selfcheck.pte"
"""Ten equal convolutions, made by benchmarks/detection_programs.py: no torch is needed here."""

GOVERNOR = Path("/sys/devices/system/cpu/cpu0/cpufreq/scaling_governor")
WANTED = 0.03
"""A machine that cannot show a slowdown of this size with all pairs is called noisy."""
DROPPED_SHARE = 0.1


@dataclass(frozen=True)
class SelfCheck:
    """What A/A measurements on one machine came to."""

    target: str
    threshold: float
    measurements: tuple[PairedTiming, ...]
    noise_floor: float | None
    """Median over the measurements; None if all were too short."""
    detectable: tuple[float, ...]
    """The smallest slowdown caught 4 times of 5, after each look; empty where unknown."""
    advice: tuple[str, ...]

    def count(self, outcome: Outcome) -> int:
        return sum(
            measurement.decision is not None and measurement.decision.outcome is outcome
            for measurement in self.measurements
        )

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


def check_machine(
    run_arm: RunArm,
    target: str,
    *,
    seconds: float,
    threshold: float = stats.TOLERATED_SLOWDOWN,
    progress: Callable[[int, str], None] | None = None,
    finished: Callable[[int, PairedTiming], None] | None = None,
    in_turns: RunInTurns | None = None,
    clock: Callable[[], float] = time.monotonic,
) -> SelfCheck:
    """Measure A against A again and again for about so long; at least once."""
    deadline = clock() + seconds
    measurements: list[PairedTiming] = []
    longest = 0.0
    while not measurements or clock() + longest < deadline:
        number = len(measurements)
        begun = clock()
        plan = SamplingPlan(
            threshold=threshold,
            seed=number,
            # Many short measurements say more about false alarms than one long one.
            looks=stats.USUAL_LOOKS,
            split=stats.USUAL_SPLIT,
            budget_seconds=max(1.0, deadline - begun),
        )
        tell = None if progress is None else functools.partial(progress, number)
        measurement = measure_pairs(
            run_arm, "A", "A again", plan, progress=tell, clock=clock, in_turns=in_turns
        )
        measurements.append(measurement)
        longest = max(longest, clock() - begun)
        if finished is not None:
            finished(number, measurement)
    return summarise(target, threshold, tuple(measurements), _governor())


def _governor() -> str | None:
    try:
        return GOVERNOR.read_text().strip()
    except OSError:
        return None


def summarise(
    target: str, threshold: float, measurements: tuple[PairedTiming, ...], governor: str | None
) -> SelfCheck:
    """The figures of all measurements together, and what to do about them."""
    floors = [
        measurement.noise_floor
        for measurement in measurements
        if measurement.noise_floor is not None
    ]
    ratios = [pair.log_ratio for measurement in measurements for pair in measurement.pairs]
    detectable: tuple[float, ...] = ()
    if floors:
        detectable = stats.smallest_detectable(stats.robust_spread(ratios), threshold)
    return SelfCheck(
        target=target,
        threshold=threshold,
        measurements=measurements,
        noise_floor=statistics.median(floors) if floors else None,
        detectable=detectable,
        advice=advise(measurements, detectable, governor),
    )


def advise(
    measurements: tuple[PairedTiming, ...], detectable: tuple[float, ...], governor: str | None
) -> tuple[str, ...]:
    """What to do, most likely cause first; nothing where the machine is quiet."""
    if not detectable:
        return ("There was too little time for a single look: give more --minutes.",)
    if detectable[-1] <= WANTED:
        return ()
    advice = []
    pairs = [pair for measurement in measurements for pair in measurement.pairs]
    levels = [pair.interference for pair in pairs if pair.interference is not None]
    dropped = sum(len(measurement.dropped) for measurement in measurements)
    busy = bool(levels) and statistics.median(levels) > INTERFERENCE_MARGIN
    if busy or dropped > DROPPED_SHARE * (dropped + len(pairs)):
        advice.append(
            "Other programs take the cores while it measures. Stop them, or measure when the "
            "machine is idle; on a CI host, run one job at a time."
        )
    if governor not in (None, "performance"):
        advice.append(
            f"The CPU's frequency governor is {governor!r}. Set it to 'performance' "
            "(cpupower frequency-set -g performance) while measuring."
        )
    if any(measurement.drift for measurement in measurements):
        advice.append(
            "Runs drift within a process: the machine heats up or changes its clock. Plug it in, "
            "switch low-power modes off, let it cool."
        )
    if not advice:
        advice.append(
            "No single cause was seen. Shared virtual machines and laptops on battery are often "
            "like this; a machine of its own, plugged in, is the cure."
        )
    advice.append(
        f"Until then a slowdown below {detectable[-1]:.1%} will mostly go unseen: expect "
        "INCONCLUSIVE, give a larger --sme2-budget, or gate on structure alone."
    )
    return tuple(advice)
