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
from pytest_sme2.timing.processes import tracing_overhead
from pytest_sme2.timing.sampling import PILOT_RUNS, PILOT_WARMUP, SamplingPlan, choose_sampling
from pytest_sme2.timing.selfcheck import Yardstick
from pytest_sme2.verdict.judging import MEAN_CLOCK

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
) -> Timing:
    """Measure until the answer is clear or the time is used up; files go below ``root``."""
    processes: dict[Arm, list[Run]] = {arm: [] for arm in requests}

    def make_job(label: str) -> Job:
        arm = Arm(label)
        folder = root / f"timing_sme2_{arm}" / f"process_{len(processes[arm]):03}"
        return Job(bench.runner, requests[arm], folder)

    threads = next(iter(requests.values())).threads
    # A phone's cores are not this machine's: there a run of its own per core would take long.
    at_once = min(threads, os.cpu_count() or 1) if isinstance(bench.target, LocalTarget) else 1
    yardstick = Yardstick(bench.target, bench.runner, root / "yardstick", bench.clock, at_once)

    def keep(label: str, run: Run) -> None:
        processes[Arm(label)].append(run)
        yardstick.take()

    starter = bench.starter(make_job, able=bench.runner.takes_turns, keep=keep)
    plan = bench.plan(blocks=bench.blocks_due)
    if len(requests) == 1:
        arm = next(iter(requests))
        return _timing({arm: measure_alone(starter, str(arm), plan)}, None, yardstick, bench)
    measurement = bench.measure_pairs(title, (str(Arm.OFF), str(Arm.ON)), plan, starter)
    bench.blocks_due -= len(measurement.blocks)
    # The first process of each arm is the pilot: it also warms the file cache. Blocks run longer.
    counted = {
        arm: [run for run in runs[1:] if run.request.runs == measurement.runs]
        for arm, runs in processes.items()
    }
    medians = {
        Arm.OFF: [pair.reference_ns for pair in measurement.pairs],
        Arm.ON: [pair.candidate_ns for pair in measurement.pairs],
    }
    overhead = {str(arm): tracing_overhead(medians[arm], [traced[arm]]) for arm in medians}
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


def measure_alone(starter: Starter, arm: str, plan: SamplingPlan) -> list[Run]:
    """Fresh processes of one arm: as many as a first look takes, fewer only at the hard limit."""
    run_arm, clock = starter.run_arm, starter.clock
    begun = clock()
    pilot = run_arm(arm, warmup=PILOT_WARMUP, runs=PILOT_RUNS)
    spent = clock() - begun
    single = min(pilot.wall_ns) / 1e9
    overhead = max(0.0, spent - single * (PILOT_WARMUP + PILOT_RUNS))
    # Half of it would be the other arm's.
    left = 2 * (plan.budget_seconds - spent)
    sampling = choose_sampling(single, overhead, left, plan)
    counted: list[Run] = []
    while len(counted) < plan.looks[0]:
        counted.append(run_arm(arm, warmup=sampling.warmup, runs=sampling.runs))
        used = clock() - begun
        if used + (used - spent) / len(counted) > plan.hard_limit:
            break
    return counted


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
    requests = {label: bench.request(artifact, *cell) for label, cell in cells.items()}
    pinned = {count: target.pinned(count) for count in counts}
    made = dict.fromkeys(cells, 0)

    def make_job(label: str) -> Job:
        made[label] += 1
        place = folder / label / f"process_{made[label] - 1:03}"
        request = replace(requests[label], cpus=pinned[requests[label].threads])
        return Job(bench.runner, request, place)

    # Processes that take turns are in memory together.
    fits = artifact.pte.stat().st_size * len(cells) < MOST_BYTES
    # As much time as pairs of each number would take.
    plan = bench.plan(budget_seconds=bench.settings.budget_seconds * len(counts))
    bench.cool_down()
    with bench.exclusively():
        return MeasuredRounds(
            bench.starter(make_job, able=bench.runner.takes_turns and fits),
            cells,
            plan,
            say=lambda line: bench.say(f"{case.id}: {line}"),
            cores=lambda count: cores_text(cores, pinned[count]),
        ).measure()
