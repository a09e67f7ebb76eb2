"""Measures the frontier of one case: every arm with every number of threads of the run."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path

from pytest_sme2.errors import NotMeasurableError
from pytest_sme2.results import Artifact, Frontier
from pytest_sme2.session.bench import Bench
from pytest_sme2.session.cases import Case
from pytest_sme2.targets.base import HasCores, Job, Target
from pytest_sme2.targets.phone.silicon import cores_text
from pytest_sme2.timing.frontier import MeasuredRounds

USUAL_COUNTS = (1, 2, 4, 8)
MOST_BYTES = 10**9
"""Of programs in memory at the same time; larger ones run one after the other."""


def device_counts(target: Target) -> tuple[int, ...]:
    """The numbers of threads worth a look on the device."""
    cores = len(target.cores) if isinstance(target, HasCores) else 0
    return tuple(threads for threads in USUAL_COUNTS if threads <= (cores or 4))


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
    cores = target.cores if isinstance(target, HasCores) else ()
    cells = {f"sme2_{arm}_t{threads}": (arm, threads) for threads in counts for arm in bench.arms}
    requests = {label: bench.request(artifact, *cell) for label, cell in cells.items()}
    pinned = {
        count: target.pinned(count) if isinstance(target, HasCores) else () for count in counts
    }
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
