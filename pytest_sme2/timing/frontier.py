"""The best of each arm over several numbers of threads: measured in rounds, chosen, compared.

A round is one process of every cell (an arm with a number of threads). They take turns where the
target can do that, else one runs after the other, so that all cells see the same clock and heat.
Threads that wait for work spin for a while, and take a core from the next cell: so a turn begins
with runs that do not count.

The best of many looks better than it is. So the even rounds choose the cells, and the odd rounds,
which had no part in that, say how they compare: their interval keeps its error.
"""

from __future__ import annotations

import math
import random
import statistics
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np

from pytest_sme2.results.run import Arm, CoreUse, Run, Turn
from pytest_sme2.results.timing import MATTERS, TIME_LIMIT, Estimate, Frontier, FrontierCell, Ship
from pytest_sme2.timing import stats
from pytest_sme2.timing.processes import (
    Sampling,
    SamplingPlan,
    Starter,
    choose_sampling,
    estimate_of,
    process_median,
    why_spoiled,
)

TURN_SECONDS = 0.005
SPIN_SECONDS = 0.008
"""For how long the threads of the cell before may still be in the way; they wait for work so long.
"""
MOST_LEAD = 200
FEWEST_ROUNDS = 2
"""One to choose, one to judge, however slow the model is."""

Cell = tuple[Arm, int]


class Choice(NamedTuple):
    """What the rounds so far come to."""

    candidate: int
    reference: int
    speedup: Estimate
    """How many times faster the candidate is."""
    unsure: tuple[int, ...]

    @property
    def ship(self) -> Ship:
        low, high = self.speedup.low, self.speedup.high
        if high < 1 + MATTERS and low > 1 / (1 + MATTERS):
            return Ship.EITHER
        return Ship.CANDIDATE if low > 1 else Ship.REFERENCE if high < 1 else Ship.UNCLEAR


def choose(cells: Sequence[Cell], rounds: Sequence[Sequence[float]], alpha: float) -> Choice:
    """The best cell of each arm, and how they compare at one level. Pure.

    ``rounds`` has a time for each cell in each round; FEWEST_ROUNDS are the fewest.
    """
    times = np.log(np.asarray(rounds, dtype=float))
    choosing, judging = times[0::2], times[1::2]
    # What a round has in common, such as its clock, says nothing about a cell.
    level = choosing - choosing.mean(axis=1, keepdims=True)
    centres = [stats.hodges_lehmann(level[:, index]) for index in range(len(cells))]

    def best(members: Sequence[int]) -> int:
        return min(members, key=lambda index: (centres[index], cells[index][1]))

    arms = {arm: [i for i, cell in enumerate(cells) if cell[0] is arm] for arm, _ in cells}
    if len(arms) > 1:
        candidate, reference = best(arms[Arm.ON]), best(arms[Arm.OFF])
    else:
        candidate = best(range(len(cells)))
        reference = best([index for index in range(len(cells)) if index != candidate])

    def may_be_faster(index: int, chosen: int) -> bool:
        apart = choosing[:, chosen] - choosing[:, index]
        return index != chosen and stats.signed_rank_interval(apart, alpha)[1] > math.log1p(MATTERS)

    chosen = {cells[index][0]: index for index in (reference, candidate)}
    unsure = [i for i, (arm, _) in enumerate(cells) if may_be_faster(i, chosen[arm])]
    speedup = estimate_of(judging[:, reference] - judging[:, candidate], alpha)
    return Choice(candidate, reference, speedup, tuple(unsure))


def choose_turn(single_seconds: float) -> Turn:
    """How much a process does in a turn, and before it, from how long one run usually takes."""
    return Turn(
        runs=max(1, round(TURN_SECONDS / single_seconds)),
        lead=min(MOST_LEAD, math.ceil(SPIN_SECONDS / single_seconds)),
    )


def round_times(runs: Sequence[Run], turn: Turn | None) -> list[float]:
    """What a run of each cell took in one round: how the cells differ within the turns of the
    quieter half, on the level that was usual there.

    All cells together say how quiet a turn was, so that no cell is favoured.
    """
    if turn is None:
        return [process_median(run) for run in runs]
    size = turn.runs
    times = np.log(
        [
            [statistics.median(run.wall_ns[at : at + size]) for run in runs]
            for at in range(0, len(runs[0].wall_ns), size)
        ]
    )
    levels = times.mean(axis=1)
    quiet = np.argsort(levels, kind="stable")[: max(1, (len(levels) + 1) // 2)]
    apart = np.median(times[quiet] - levels[quiet, None], axis=0)
    return [float(time) for time in np.exp(apart + np.median(levels[quiet]))]


@dataclass
class MeasuredRounds:
    """Rounds while they are measured."""

    starter: Starter
    cells: Mapping[str, Cell]
    """By the label that the starter takes."""
    plan: SamplingPlan
    say: Callable[[str], None] = field(default=lambda line: None)
    cores: Callable[[int], str] = field(default=lambda threads: "")

    def __post_init__(self) -> None:
        self.clock = self.starter.clock
        self.started = self.clock()
        self.order = random.Random(self.plan.seed)  # noqa: S311 - order, not secrets
        self.rounds: list[list[float]] = []
        self.dropped = self.throttled = 0
        self.longest = 0.0
        self.used: dict[str, list[CoreUse]] = {label: [] for label in self.cells}

    def measure(self) -> Frontier:
        """Until the answer is clear or the time is used up; the first look is completed."""
        sampling = self.pilot()
        cells, why = list(self.cells.values()), "all rounds done"
        for due, part in zip(self.plan.looks, self.plan.split, strict=True):
            first = due == self.plan.looks[0]
            in_time = self.collect(2 * due, sampling, first=first)
            choice = choose(cells, self.rounds, self.plan.alpha * part)
            if choice.ship is not Ship.UNCLEAR and not choice.unsure:
                why = "clear"
                break
            if not in_time:
                why = TIME_LIMIT if first else "time budget spent"
                break
        return self.result(choice, why, sampling)

    def pilot(self) -> Sampling:
        """How many runs a process makes, from a short one of each cell."""
        _, single, overhead = self.starter.pilot(list(self.cells))
        # Two halves, and as many cells in place of two arms.
        left = self.plan.budget_seconds / len(self.cells)
        turn = None if self.starter.in_turns is None else choose_turn(single)
        return choose_sampling(single, overhead, left, self.plan, turn)

    def collect(self, due: int, sampling: Sampling, *, first: bool) -> bool:
        """Bring the rounds up to ``due``; False if the time was used up before."""
        limit = self.plan.hard_limit if first else self.plan.budget_seconds
        while len(self.rounds) < due:
            begun = self.clock()
            left = limit - (begun - self.started)
            if len(self.rounds) >= FEWEST_ROUNDS and left < self.longest:
                return False
            order = list(self.cells)
            self.order.shuffle(order)
            self.say(f"round {len(self.rounds) + 1} of {due} to the next look, {left:.0f} s left")
            runs = self.starter.start(order, sampling)
            self.longest = max(self.longest, self.clock() - begun)
            # In turns, all cells share a clock that moves.
            moved = sampling.turn is None and len({run.clock_change for run in runs.values()}) > 1
            hot = moved or any(run.throttled or why_spoiled(run) for run in runs.values())
            if hot and self.dropped < self.plan.redo_limit:
                self.dropped += 1
                continue
            self.throttled += hot
            self.rounds.append(round_times([runs[label] for label in self.cells], sampling.turn))
            for label, run in runs.items():
                self.used[label] += [] if run.cores is None else [run.cores]
        return True

    def result(self, choice: Choice, why: str, sampling: Sampling) -> Frontier:
        cells = []
        for index, (label, (arm, threads)) in enumerate(self.cells.items()):
            medians = tuple(times[index] for times in self.rounds)
            used = self.used[label]
            whole = sum(entry.performance_ns + entry.efficiency_ns for entry in used)
            share = sum(entry.efficiency_ns for entry in used) / whole if whole else None
            cells.append(FrontierCell(arm, threads, medians, self.cores(threads), share))
        return Frontier(
            cells=tuple(cells),
            candidate=choice.candidate,
            reference=choice.reference,
            speedup=choice.speedup,
            ship=choice.ship,
            unsure=choice.unsure,
            dropped=self.dropped,
            throttled=self.throttled,
            stopped_because=why,
            seconds=self.clock() - self.started,
            notes=() if sampling.note is None else (sampling.note,),
        )
