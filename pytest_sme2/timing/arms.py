"""Processes of named arms, for pairs.py and frontier.py to start: alone on the target, or in turns.

What an arm is, only the caller knows: it gives the job for a label.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, Protocol

from pytest_sme2.results import Run, Turn
from pytest_sme2.targets.base import Job, TakesTurns
from pytest_sme2.timing.processes import process_median
from pytest_sme2.timing.sampling import PILOT_RUNS, PILOT_WARMUP, Sampling

if TYPE_CHECKING:
    from pytest_sme2.targets.base import Target


class RunArm(Protocol):
    """Starts one fresh process of an arm and waits for it."""

    def __call__(self, arm: str, /, *, warmup: int, runs: int) -> Run: ...


class RunInTurns(Protocol):
    """Starts one fresh process of each arm, which take turns, and waits for all."""

    def __call__(
        self, arms: Sequence[str], /, *, warmup: int, runs: int, turn: Turn
    ) -> dict[str, Run]: ...


class Beside(Protocol):
    """A program that is run now and then beside the arms."""

    @property
    def due(self) -> bool: ...

    def take(self) -> None:
        """Run it alone."""
        ...

    def job(self, how: Mapping[str, Any]) -> Job:
        """For a process that takes turns with those of the arms."""
        ...

    def took(self, run: Run) -> None:
        """What that process said."""
        ...


Redo = Callable[[Callable[[], dict[str, Run]]], dict[str, Run]]


@dataclass(frozen=True)
class Starter:
    """Starts one fresh process of each of several arms."""

    run_arm: RunArm
    in_turns: RunInTurns | None = None
    clock: Callable[[], float] = time.monotonic
    redo: Redo = lambda measure: measure()
    """For targets whose connection can be lost: it may measure again from the start."""
    runs: dict[str, list[Run]] = field(default_factory=dict)
    """By arm, those that were made so far; what was lost, or has no counterpart, is not there."""

    def start(self, order: Sequence[str], sampling: Sampling) -> dict[str, Run]:
        """In this order; all of them again where one was lost."""
        turn, in_turns = sampling.turn, self.in_turns

        def measure() -> dict[str, Run]:
            if in_turns is not None and turn is not None:
                return in_turns(order, turn=turn, warmup=sampling.warmup, runs=sampling.runs)
            return {arm: self.run_arm(arm, **sampling.of(arm)) for arm in order}

        found = self.redo(measure)
        for arm, run in found.items():
            self.runs.setdefault(arm, []).append(run)
        return found

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


def starter_on(
    target: Target,
    jobs: Mapping[str, Job],
    *,
    beside: Beside | None = None,
    turns: bool = True,
    clock: Callable[[], float] = time.monotonic,
    redo: Redo = lambda measure: measure(),
) -> Starter:
    """Starts processes of these jobs: in turns, where the target and all runners can do that and
    ``turns`` does not forbid it. Where one core does for all, ``beside`` takes turns with them, so
    that it feels what they feel; else it is run alone between them.

    A process has a folder of its own in its job's. Outputs are kept of an arm's first one alone.
    """
    runs: dict[str, list[Run]] = {arm: [] for arm in jobs}

    def measuring() -> float:
        return clock() - target.waited_seconds

    def next_job(arm: str, **how: Any) -> Job:
        job, number = jobs[arm], len(runs[arm])
        first = job.request.keep_outputs and not number
        request = replace(job.request, keep_outputs=first, **how)
        return replace(job, request=request, folder=job.folder / f"process_{number:03}")

    def alone(arm: str, /, **how: Any) -> Run:
        job = next_job(arm, **how)
        run = target.run(job.runner, job.request, job.folder)
        # Where it takes turns, these are the short processes of the pilot.
        if beside is not None and beside.due and not (able and joins):
            beside.take()
        return run

    # One core does for one thread each; a generation's turns are steps, which no other has.
    requests = [job.request for job in jobs.values()]
    joins = len(jobs) > 1 and all(each.threads == 1 and not each.generate for each in requests)
    able = turns and all(job.runner.takes_turns for job in jobs.values())
    able = able and isinstance(target, TakesTurns)
    if not able or not isinstance(target, TakesTurns):
        return Starter(alone, None, measuring, redo, runs)
    run_in_turns = target.run_in_turns

    def together(arms: Sequence[str], /, **how: Any) -> dict[str, Run]:
        ours = [next_job(arm, **how) for arm in arms]
        if beside is None or not beside.due:
            return dict(zip(arms, run_in_turns(ours), strict=True))
        if joins:
            *made, other = run_in_turns([*ours, beside.job(how)])
            beside.took(other)
        else:
            made = run_in_turns(ours)
            beside.take()
        return dict(zip(arms, made, strict=True))

    return Starter(alone, together, measuring, redo, runs)
