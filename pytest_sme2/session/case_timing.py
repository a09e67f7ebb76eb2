"""Times one case on its target: pairs where SME2 can be switched, single processes elsewhere; and
its frontier: every arm with every number of threads of the run.
"""

from __future__ import annotations

import os
import statistics
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING

from pytest_sme2.errors import NotMeasurableError
from pytest_sme2.results import Arm, Artifact, Frontier, PairedTiming, Run, RunRequest
from pytest_sme2.session.cases import Case
from pytest_sme2.targets.base import Job, Target
from pytest_sme2.targets.local import LocalTarget
from pytest_sme2.targets.phone.silicon import cores_text
from pytest_sme2.timing.arms import Starter
from pytest_sme2.timing.frontier import MeasuredRounds
from pytest_sme2.timing.processes import process_median
from pytest_sme2.timing.sampling import FEWEST_RUNS, SamplingPlan, choose_sampling
from pytest_sme2.timing.selfcheck import Yardstick
from pytest_sme2.verdict.judging import MEAN_CLOCK, MOVED_CAP

if TYPE_CHECKING:
    from pytest_sme2.session.bench import Bench

USUAL_COUNTS = (1, 2, 4, 8)
MOST_BYTES = 10**9
"""Of programs in memory at the same time; larger ones run one after the other."""


@dataclass(frozen=True)
class Timing:
    """The untraced processes of one case."""

    processes: Mapping[Arm, Sequence[Run]]
    measurement: PairedTiming | None
    """The pairs; None where only one arm could be measured."""
    yardstick_ns: float | None = None
    """What a program that never changes took meanwhile."""
    conditions: Mapping[str, str] = field(default_factory=dict)
    """What else may change the speed of the machine, as it is at the end."""
    interference: float | None = None
    """How busy the cores were, where several threads run on this machine."""


def measure_case(
    bench: Bench,
    title: str,
    root: Path,
    requests: Mapping[Arm, RunRequest],
    traced: Mapping[Arm, Run],
    fewest_runs: int = FEWEST_RUNS,
) -> Timing:
    """Measure until the answer is clear or the time is used up; files go below ``root``."""
    jobs = {
        str(arm): Job(bench.runner, requests[arm], root / f"timing_sme2_{arm}")
        for arm in (Arm.OFF, Arm.ON)
        if arm in requests
    }
    threads = next(iter(requests.values())).threads
    # A phone's cores are not this machine's: there a run of its own per core would take long.
    at_once = min(threads, os.cpu_count() or 1) if isinstance(bench.target, LocalTarget) else 1
    yardstick = Yardstick(bench.target, bench.runner, root / "yardstick", bench.clock, at_once)
    starter = bench.starter(jobs, beside=yardstick)
    plan = bench.plan(blocks=bench.blocks_due, fewest_runs=fewest_runs)
    if len(jobs) == 1:
        alone = {arm: measure_alone(starter, plan) for arm in requests}
        return _timing(alone, None, yardstick, bench)
    measurement = bench.measure_pairs(title, starter, plan)
    bench.blocks_due -= len(measurement.blocks)
    # The first process of each arm is the pilot: it also warms the file cache.
    counted = {
        Arm(label): [runs[1 + pair.index] for pair in measurement.pairs]
        for label, runs in starter.runs.items()
    }
    sides = {
        Arm.OFF: statistics.median(pair.reference_ns for pair in measurement.pairs),
        Arm.ON: statistics.median(pair.candidate_ns for pair in measurement.pairs),
    }
    overhead = {str(arm): process_median(traced[arm]) / usual - 1 for arm, usual in sides.items()}
    measurement = replace(measurement, tracing_overhead=overhead)
    return _timing(counted, measurement, yardstick, bench)


def _timing(
    processes: Mapping[Arm, Sequence[Run]],
    measurement: PairedTiming | None,
    yardstick: Yardstick,
    bench: Bench,
) -> Timing:
    conditions, target = dict(bench.conditions()), bench.target
    # This machine's system chooses by itself.
    if not isinstance(target, LocalTarget):
        threads = next(run.request.threads for runs in processes.values() for run in runs)
        conditions["cores"] = cores_text(target.cores, target.pinned(threads)) or "any"
    conditions |= _mean_clocks(processes)
    runs = (run for each in processes.values() for run in each)
    if moved := next((run.clock_change for run in runs if run.clock_change), ""):
        conditions[MOVED_CAP] = moved
    return Timing(processes, measurement, yardstick.median_ns, conditions, yardstick.interference)


def _mean_clocks(processes: Mapping[Arm, Sequence[Run]]) -> dict[str, str]:
    """Of each arm's processes; or why cycles are not counted, said once."""
    found: dict[str, str] = {}
    for arm, runs in processes.items():
        clocks = [run.clock_ghz for run in runs if run.clock_ghz is not None]
        if clocks and len(clocks) == len(runs):
            found[MEAN_CLOCK.format(arm)] = f"{statistics.median(clocks):.3f} GHz"
        elif why := next((run.uncounted for run in runs if run.uncounted), ""):
            found["cycles"] = f"not counted ({why})"
    return found


def measure_alone(starter: Starter, plan: SamplingPlan) -> list[Run]:
    """Processes of the only arm: as many as a first look takes, fewer only at the hard limit."""
    ((arm, runs),) = starter.runs.items()
    begun = starter.clock()
    _, single, overhead = starter.pilot([arm])
    spent = starter.clock() - begun
    # Half of it would be the other arm's.
    left = 2 * (plan.budget_seconds - spent)
    sampling = choose_sampling(single, overhead, left, plan)
    for made in range(1, plan.looks[0] + 1):
        starter.start([arm], sampling)
        used = starter.clock() - begun
        if used + (used - spent) / made > plan.hard_limit:
            break
    return runs[1:]


def device_counts(target: Target) -> tuple[int, ...]:
    """The numbers of threads worth a look on the device."""
    return tuple(threads for threads in USUAL_COUNTS if threads <= (len(target.cores) or 4))


def measure_frontier(
    bench: Bench,
    case: Case,
    counts: Sequence[int],
    artifact_of: Callable[[Case], Artifact],
    folder_of: Callable[[Case], Path],
) -> Frontier:
    """In rounds, alone on the device; an error where it cannot be told, or there is no choice."""
    bench.require_timing()
    if len(counts) < 2:
        raise NotMeasurableError("there is one number of threads: give several, as --threads 1,2,4")
    if case.threads != counts[0]:
        raise NotMeasurableError(f"all numbers of threads are compared at once, with {counts[0]}")
    artifact, folder = artifact_of(case), folder_of(case) / "frontier"
    target = bench.target
    cores = target.cores
    cells = {f"sme2_{arm}_t{threads}": (arm, threads) for threads in counts for arm in bench.arms}
    pinned = {count: target.pinned(count, mixed=True) for count in counts}
    jobs = {
        label: Job(
            bench.runner,
            replace(bench.request(artifact, arm, threads), cpus=pinned[threads]),
            folder / label,
        )
        for label, (arm, threads) in cells.items()
    }
    # Processes that take turns are in memory together.
    fits = artifact.pte.stat().st_size * len(cells) < MOST_BYTES
    # As much time as pairs of each number would take.
    plan = bench.plan(budget_seconds=bench.settings.budget_seconds * len(counts))
    bench.cool_down()
    with bench.exclusively():
        return MeasuredRounds(
            bench.starter(jobs, turns=fits),
            cells,
            plan,
            say=lambda line: bench.say(f"{case.id}: {line}"),
            cores=lambda count: cores_text(cores, pinned[count]),
        ).measure()
