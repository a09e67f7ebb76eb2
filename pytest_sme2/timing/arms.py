"""Processes of named arms, for pairs.py and frontier.py to start: alone on the target, or in turns.

What an arm is, only the caller knows: it makes the job for a label.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Protocol

from pytest_sme2.results import Run, Turn
from pytest_sme2.targets.base import Job, TakesTurns
from pytest_sme2.timing.processes import process_median
from pytest_sme2.timing.sampling import PILOT_RUNS, PILOT_WARMUP, Sampling

if TYPE_CHECKING:
    from pytest_sme2.targets.base import Target

MakeJob = Callable[[str], Job]
"""The job of one process of an arm; how much it runs is put in here."""
Keep = Callable[[str, Run], None]


class RunArm(Protocol):
    """Starts one fresh process of an arm and waits for it."""

    def __call__(self, arm: str, /, *, warmup: int, runs: int) -> Run: ...


class RunInTurns(Protocol):
    """Starts one fresh process of each arm, which take turns, and waits for all."""

    def __call__(
        self, arms: Sequence[str], /, *, warmup: int, runs: int, turn: Turn
    ) -> dict[str, Run]: ...


Redo = Callable[[Callable[[], dict[str, Run]]], dict[str, Run]]


@dataclass(frozen=True)
class Starter:
    """Starts one fresh process of each of several arms."""

    run_arm: RunArm
    in_turns: RunInTurns | None = None
    clock: Callable[[], float] = time.monotonic
    redo: Redo = lambda measure: measure()
    """For targets whose connection can be lost: it may measure again from the start."""

    def start(self, order: Sequence[str], sampling: Sampling) -> dict[str, Run]:
        """In this order; all of them again where one was lost."""
        turn, in_turns = sampling.turn, self.in_turns
        how = {"warmup": sampling.warmup, "runs": sampling.runs}
        if in_turns is not None and turn is not None:
            return self.redo(lambda: in_turns(order, turn=turn, **how))
        return self.redo(lambda: {arm: self.run_arm(arm, **how) for arm in order})

    def pilot(self, arms: Sequence[str]) -> tuple[dict[str, Run], float, float]:
        """A short process of each arm, the seconds of a usual run, and those that a start costs.

        It also brings files into memory, so it never counts.
        """
        found: dict[str, Run] = {}
        singles, overheads = [], []
        for arm in arms:
            begun = self.clock()
            found |= self.start([arm], Sampling(PILOT_WARMUP, PILOT_RUNS))
            process_median(found[arm])  # refuses what is not a time
            singles.append(min(found[arm].wall_ns) / 1e9)
            spent = self.clock() - begun
            overheads.append(max(0.0, spent - singles[-1] * (PILOT_WARMUP + PILOT_RUNS)))
        return found, statistics.fmean(singles), max(overheads)


def one_at_a_time(
    target: Target, make_job: MakeJob, keep: Keep = lambda label, run: None
) -> RunArm:
    """Starts one process of an arm and waits for it."""

    def start(label: str, /, *, warmup: int, runs: int) -> Run:
        job = make_job(label)
        request = replace(job.request, warmup=warmup, runs=runs)
        run = target.run(job.runner, request, job.folder)
        keep(label, run)
        return run

    return start


def in_turns(
    target: Target, make_job: MakeJob, able: bool, keep: Keep = lambda label, run: None
) -> RunInTurns | None:
    """Starts one process of each arm, which take turns. None if the target cannot do that, or if
    the runners are not ``able`` to.
    """
    if not able or not isinstance(target, TakesTurns):
        return None
    together = target.run_in_turns

    def start(labels: Sequence[str], /, *, warmup: int, runs: int, turn: Turn) -> dict[str, Run]:
        jobs = [
            replace(job, request=replace(job.request, warmup=warmup, runs=runs, turn=turn))
            for job in map(make_job, labels)
        ]
        found = dict(zip(labels, together(jobs), strict=True))
        for label, run in found.items():
            keep(label, run)
        return found

    return start
