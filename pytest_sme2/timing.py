"""Times one case on its target: pairs where SME2 can be switched, single processes elsewhere."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

from pytest_sme2.assemble import Timing, speedup_of
from pytest_sme2.measure import (
    PILOT_RUNS,
    PILOT_WARMUP,
    Plan,
    RunArm,
    choose_sampling,
    measure_pairs,
    process_median,
)
from pytest_sme2.results import Arm, Run

if TYPE_CHECKING:
    from pytest_sme2.session import Case, Session


def measure_case(session: Session, case: Case) -> Timing:
    """Measure until the answer is clear or the budget is spent."""
    processes: dict[Arm, list[Run]] = {arm: [] for arm in session.arms}
    root = session.folder(case)

    def run_arm(label: str, *, warmup: int, runs: int) -> Run:
        arm = Arm(label)
        request = session.request(case, arm, warmup=warmup, runs=runs)
        folder = root / f"timing_sme2_{arm}" / f"process_{len(processes[arm]):03}"
        run = session.target.run(session.runner, request, folder)
        processes[arm].append(run)
        return run

    plan = Plan(threshold=None, budget_seconds=session.settings.budget_seconds)
    if len(session.arms) == 1:
        arm = session.arms[0]
        counted = measure_alone(run_arm, arm, plan)
        medians = tuple(process_median(run) for run in counted)
        return Timing(medians_ns={arm: medians}, processes={arm: counted})
    measurement = measure_pairs(
        run_arm,
        str(Arm.OFF),
        str(Arm.ON),
        plan,
        progress=lambda progress: session.show_progress(case, progress),
    )
    return Timing(
        medians_ns={
            Arm.OFF: tuple(pair.reference_ns for pair in measurement.pairs),
            Arm.ON: tuple(pair.candidate_ns for pair in measurement.pairs),
        },
        # The first process of each arm is the pilot: it also warms the file cache.
        processes={arm: runs[1:] for arm, runs in processes.items()},
        speedup=speedup_of(measurement),
        measurement=measurement,
    )


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
