"""Measures the frontier of one case: every arm with every number of threads of the run."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from pytest_sme2.errors import NotMeasurableError
from pytest_sme2.results import Frontier
from pytest_sme2.targets.base import HasCores, Job
from pytest_sme2.targets.phone.cores import cores_text
from pytest_sme2.timing.arms import in_turns, one_at_a_time
from pytest_sme2.timing.frontier import MeasuredRounds
from pytest_sme2.timing.sampling import SamplingPlan

if TYPE_CHECKING:
    from pytest_sme2.session.cases import Case
    from pytest_sme2.session.session import Session

USUAL_COUNTS = (1, 2, 4, 8)
MOST_BYTES = 10**9
"""Of programs in memory at the same time; larger ones run one after the other."""


def device_counts(session: Session) -> tuple[int, ...]:
    """The numbers of threads worth a look on the device."""
    target = session.bench.target
    cores = len(target.cores) if isinstance(target, HasCores) else 0
    return tuple(threads for threads in USUAL_COUNTS if threads <= (cores or 4))


def measure_frontier(session: Session, case: Case) -> Frontier:
    """In rounds, alone on the device; an error where it cannot be told, or there is no choice."""
    bench, settings = session.bench, session.settings
    if len(settings.threads) < 2:
        raise NotMeasurableError("there is one number of threads: give several, as --threads 1,2,4")
    if case.threads != settings.threads[0]:
        raise NotMeasurableError(
            f"all numbers of threads are compared at once, with {settings.threads[0]}"
        )
    target = bench.target
    cores = target.cores if isinstance(target, HasCores) else ()
    cells, requests = {}, {}
    for threads in settings.threads:
        pinned = target.pinned(threads) if isinstance(target, HasCores) else ()
        for arm in bench.arms:
            label = f"sme2_{arm}_t{threads}"
            cells[label] = (arm, threads)
            request = bench.request(session.artifact(case), arm, threads)
            requests[label] = replace(request, cpus=pinned)
    folder = session.folder(case) / "frontier"
    made = dict.fromkeys(cells, 0)

    def make_job(label: str) -> Job:
        made[label] += 1
        place = folder / label / f"process_{made[label] - 1:03}"
        return Job(bench.runner, requests[label], place)

    # Processes that take turns are in memory together.
    fits = session.artifact(case).pte.stat().st_size * len(cells) < MOST_BYTES
    plan = SamplingPlan(
        threshold=None,
        # As much as pairs of each number would take.
        budget_seconds=bench.settings.budget_seconds * len(settings.threads),
        limit_seconds=bench.settings.limit_seconds,
    )
    bench.cool_down()
    with bench.exclusively():
        return MeasuredRounds(
            one_at_a_time(target, make_job),
            in_turns(target, make_job, bench.runner.takes_turns and fits),
            cells,
            plan,
            say=lambda line: session.say(f"{case.id}: {line}"),
            clock=bench.clock,
            redo=bench.redo,
            cores=lambda threads: cores_text(
                cores, target.pinned(threads) if isinstance(target, HasCores) else ()
            ),
        ).measure()
