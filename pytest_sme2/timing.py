"""Times one case on its target: pairs where SME2 can be switched, single processes elsewhere."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from pytest_sme2.measure import (
    PILOT_RUNS,
    PILOT_WARMUP,
    Plan,
    RunArm,
    choose_sampling,
    measure_pairs,
    tracing_overhead,
)
from pytest_sme2.results import Arm, Measurement, Run
from pytest_sme2.starting import alone, in_turns
from pytest_sme2.targets.base import Job
from pytest_sme2.yardstick import Yardstick

if TYPE_CHECKING:
    from pytest_sme2.session import Case, Session


@dataclass(frozen=True)
class Timing:
    """The untraced processes of one case."""

    processes: Mapping[Arm, Sequence[Run]]
    measurement: Measurement | None
    """The pairs; None where only one arm could be measured."""
    yardstick_ns: float | None = None
    """What a program that never changes took meanwhile."""


def measure_case(session: Session, case: Case) -> Timing:
    """Measure until the answer is clear or the budget is spent."""
    processes: dict[Arm, list[Run]] = {arm: [] for arm in session.arms}
    root = session.folder(case)

    def make_job(label: str) -> Job:
        arm = Arm(label)
        folder = root / f"timing_sme2_{arm}" / f"process_{len(processes[arm]):03}"
        return Job(session.runner, session.request(case, arm), folder)

    yardstick = Yardstick(session.target, session.runner, root / "yardstick")

    def keep(label: str, run: Run) -> None:
        processes[Arm(label)].append(run)
        yardstick.take()

    run_arm = alone(session.target, make_job, keep)
    plan = Plan(threshold=None, budget_seconds=session.settings.budget_seconds)
    if len(session.arms) == 1:
        arm = session.arms[0]
        alone_runs = measure_alone(run_arm, arm, plan)
        return Timing({arm: alone_runs}, None, yardstick.median_ns)
    measurement = measure_pairs(
        run_arm,
        str(Arm.OFF),
        str(Arm.ON),
        plan,
        progress=lambda progress: session.show_progress(case, progress),
        redo=session.redo,
        in_turns=in_turns(session.target, make_job, session.runner.takes_turns, keep),
    )
    # The first process of each arm is the pilot: it also warms the file cache.
    counted = {arm: runs[1:] for arm, runs in processes.items()}
    medians = {
        Arm.OFF: [pair.reference_ns for pair in measurement.pairs],
        Arm.ON: [pair.candidate_ns for pair in measurement.pairs],
    }
    overhead = {
        str(arm): tracing_overhead(medians[arm], [session.traced(case, arm)]) for arm in medians
    }
    measurement = replace(measurement, tracing_overhead=overhead)
    return Timing(counted, measurement, yardstick.median_ns)


def measure_alone(run_arm: RunArm, arm: Arm, plan: Plan) -> list[Run]:
    """Fresh processes of one arm: as many as a first look takes, fewer if the budget ends."""
    begun = time.monotonic()
    pilot = run_arm(str(arm), warmup=PILOT_WARMUP, runs=PILOT_RUNS)
    spent = time.monotonic() - begun
    single = min(pilot.wall_ns) / 1e9
    overhead = max(0.0, spent - single * (PILOT_WARMUP + PILOT_RUNS))
    # Half of it would be the other arm's.
    left = 2 * (plan.budget_seconds - spent)
    sampling = choose_sampling(single, overhead, left, plan)
    counted: list[Run] = []
    while len(counted) < plan.looks[0]:
        counted.append(run_arm(str(arm), warmup=sampling.warmup, runs=sampling.runs))
        used = time.monotonic() - begun
        if used + (used - spent) / len(counted) > plan.budget_seconds:
            break
    return counted
