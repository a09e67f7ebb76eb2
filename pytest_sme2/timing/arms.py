"""Processes of named arms, for pairs.py to start: alone on the target, or in turns.

What an arm is, only the caller knows: it makes the job for a label.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from pytest_sme2.targets.base import Job, TakesTurns

if TYPE_CHECKING:
    from pytest_sme2.results import Run, Turn
    from pytest_sme2.targets.base import Target
    from pytest_sme2.timing.pairs import RunArm, RunInTurns

MakeJob = Callable[[str], Job]
"""The job of one process of an arm; how much it runs is put in here."""
Keep = Callable[[str, "Run"], None]


def _keep_nothing(_label: str, _run: Run) -> None:
    """For callers that need only the measurement."""


def one_at_a_time(target: Target, make_job: MakeJob, keep: Keep = _keep_nothing) -> RunArm:
    """Starts one process of an arm and waits for it."""

    def start(label: str, /, *, warmup: int, runs: int) -> Run:
        job = make_job(label)
        request = replace(job.request, warmup=warmup, runs=runs)
        run = target.run(job.runner, request, job.folder)
        keep(label, run)
        return run

    return start


def in_turns(
    target: Target, make_job: MakeJob, able: bool, keep: Keep = _keep_nothing
) -> RunInTurns | None:
    """Starts one process of each arm, which take turns. None if the target cannot do that, or if
    the runners are not ``able`` to.
    """
    if not able or not isinstance(target, TakesTurns):
        return None
    together = target.run_in_turns

    def start(labels: Sequence[str], /, *, warmup: int, runs: int, turn: Turn) -> dict[str, Run]:
        jobs = [make_job(label) for label in labels]
        jobs = [
            replace(job, request=replace(job.request, warmup=warmup, runs=runs, turn=turn))
            for job in jobs
        ]
        found = dict(zip(labels, together(jobs), strict=True))
        for label, run in found.items():
            keep(label, run)
        return found

    return start
