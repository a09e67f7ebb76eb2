"""How much to measure: the looks, the time they may take, and how many runs a process makes."""

from __future__ import annotations

import math
import statistics
from collections.abc import Mapping
from dataclasses import dataclass, field

from pytest_sme2.results import Turn
from pytest_sme2.timing import stats

PROCESS_SECONDS = 0.3
"""How long the measured runs of a process take together: enough for a steady median."""

TURNS_SECONDS = 0.15
"""The same where two processes take turns: their ratio is steady much sooner."""

FEWEST_RUNS, MOST_RUNS = 5, 200

MIN_RUNS_SLOW_MODEL = 1
"""Of a slow model: processes get shorter before pairs get fewer."""

WARMUP_SECONDS = 0.3
"""How long a process warms up where it has the core to itself: a clock takes 0.2 s to rise."""
ALIKE = 1.2
"""Arms whose runs differ by less make as many of them."""

LEAST_WARMUP = 3
MIN_WARMUP_SLOW_MODEL = 1

LIMIT_OF_BUDGETS = 10
"""The hard limit of a measurement in time budgets, where none is given."""
BUDGETS_IN_DOUBT = 6
"""An answer that is still open is worth more time."""

PILOT_WARMUP, PILOT_RUNS = 1, 3

TURN_SECONDS = 0.002
"""How long a turn takes, or one run where that is longer: shorter than the spells of noise."""

LEAD_SECONDS = 0.005
"""Runs shorter than this lose enough to the other's use of the caches for an untimed one first."""

MIXED_CORES_LEAD_SECONDS = 0.1
"""The same where a process that waited may wake on a slow core, or on one whose clock is low."""


BLOCK_SECONDS = 1.0
"""How long a turn takes in a pair that shows whether short turns disturb each other."""
BLOCK_PAIRS = 4
"""How many such pairs a session measures."""


@dataclass(frozen=True)
class SamplingPlan:
    """How to measure; the defaults are those that docs/measuring.md gives figures for."""

    threshold: float | None = stats.TOLERATED_SLOWDOWN
    """The tolerated slowdown of the candidate; a least speedup of s is 1/s - 1. None: only the
    ratio is asked for, and measuring ends when it is known to within ``ratio_width``."""
    ratio_width: float = 0.01
    alpha: float = stats.FALSE_ALARM_RATE
    family: int = 1
    """How many verdicts the session will give; see stats.decide_ratio."""
    looks: tuple[int, ...] = stats.LOOKS
    split: tuple[float, ...] = stats.ERROR_SPLIT
    budget_seconds: float = 60.0
    """For all looks after the first, which is completed even where it takes longer. There are
    BUDGETS_IN_DOUBT of it where the answer is open."""
    limit_seconds: float | None = None
    """After this even the first look is given up; None: LIMIT_OF_BUDGETS budgets."""
    seed: int = 0
    runs: int | None = None
    """Runs per process; None lets a pilot run choose."""
    fewest_runs: int = FEWEST_RUNS
    """Where that chooses, if there is time for them."""
    warmup: int | None = None
    redo_limit: int = 10
    """How many pairs may be dropped for interference and measured again."""
    blocks: int = 0
    """How many pairs to measure in blocks of BLOCK_SECONDS, besides those in short turns."""

    def __post_init__(self) -> None:
        if self.threshold is not None and not -1 < self.threshold < math.inf:
            raise ValueError(f"A tolerated slowdown of {self.threshold} is not above -1.")
        for name, seconds in (("budget", self.budget_seconds), ("limit", self.limit_seconds)):
            if seconds is not None and not seconds > 0:
                raise ValueError(f"A time {name} of {seconds} s leaves no time.")

    @property
    def hard_limit(self) -> float:
        """In seconds; never below the budget."""
        limit = self.limit_seconds or LIMIT_OF_BUDGETS * self.budget_seconds
        return max(self.budget_seconds, limit)


@dataclass(frozen=True)
class Sampling:
    """How many runs a process makes, equal in both arms."""

    warmup: int
    runs: int
    turn: Turn | None = None
    """How two processes take turns; None where they run one after the other."""
    note: str | None = None
    scale: Mapping[str, float] = field(default_factory=dict)
    """By how much the runs of an arm are more than these. One after the other, processes of equal
    time see the same of a clock that rises or falls; processes of equal runs do not."""

    def of(self, arm: str) -> dict[str, int]:
        """The runs of one process of this arm."""
        scale = self.scale.get(arm, 1.0)
        return {
            "warmup": round(self.warmup * scale) if self.warmup else 0,
            "runs": max(1, round(self.runs * scale)),
        }


def choose_turn(
    single_seconds: float, mixed_cores: bool = False, steps: int = 1, threads: int = 1
) -> Turn:
    """How much a process does in a turn, from how long one run takes, and of how many steps it is.

    ``mixed_cores``: the machine has fast and slow cores, and nothing can be pinned to one.
    """
    if steps > 1:
        # What goes on from step to step cannot have an untimed one first, so turns are longer:
        # whole where to wake, or for a pool to come to rest, takes longer than steps do.
        few = max(1, round(LEAD_SECONDS * steps / single_seconds))
        return Turn(steps if mixed_cores or threads > 1 else min(steps, few))
    runs = max(1, round(TURN_SECONDS / single_seconds))
    limit = MIXED_CORES_LEAD_SECONDS if mixed_cores else LEAD_SECONDS
    return Turn(runs, lead=1 if single_seconds < limit else 0)


def choose_blocks(single_seconds: float, sampling: Sampling) -> Sampling | None:
    """The same in blocks, the order of the first round reversed in the second (ABBA); None where
    there are no turns, or where they are nearly as long.
    """
    turn, runs = sampling.turn, round(BLOCK_SECONDS / single_seconds)
    if turn is None or runs < 4 * turn.runs:
        return None
    return Sampling(sampling.warmup, 2 * runs, Turn(runs, turn.lead))


def equal_time(singles: Mapping[str, float]) -> dict[str, float]:
    """How many more runs each arm makes so that both take as long, by what one takes."""
    quickest, slowest = min(singles.values()), max(singles.values())
    if slowest < ALIKE * quickest:
        return {}
    usual = statistics.fmean(singles.values())
    return {arm: usual / single for arm, single in singles.items()}


def choose_sampling(
    single_seconds: float,
    overhead_seconds: float,
    seconds_left: float,
    plan: SamplingPlan,
    turn: Turn | None = None,
) -> Sampling:
    """Runs per process, from how long one run and the start of a process took in the pilot.

    Processes are the replicates, so where time is short there are fewer runs, never fewer pairs.
    """
    wanted = (PROCESS_SECONDS if turn is None else TURNS_SECONDS) / single_seconds
    runs = plan.runs or min(MOST_RUNS, max(plan.fewest_runs, round(wanted)))
    warmup = plan.warmup if plan.warmup is not None else max(LEAST_WARMUP, runs // 10)
    if turn is None and plan.warmup is None:
        warmup = max(warmup, math.ceil(WARMUP_SECONDS / single_seconds))
    if plan.runs is not None:
        return Sampling(warmup, runs, turn)
    process_seconds = 0.8 * seconds_left / (2 * plan.looks[0]) - overhead_seconds
    # What a turn begins with is paid for as well, though it does not count.
    share = 1.0 if turn is None else turn.runs / (turn.runs + turn.lead)
    affordable = int(process_seconds / single_seconds * share)
    if affordable >= warmup + runs:
        return Sampling(warmup, runs, turn)
    if plan.warmup is None:
        warmup = min(warmup, max(MIN_WARMUP_SLOW_MODEL, affordable // 4))
    fewer = min(runs, max(MIN_RUNS_SLOW_MODEL, affordable - warmup))
    why = f"so that {plan.looks[0]} pairs fit into {plan.budget_seconds:.0f} s"
    if affordable < warmup + fewer:
        needed = 2 * plan.looks[0] * (overhead_seconds + (warmup + fewer) * single_seconds / share)
        why = (
            f"and {plan.looks[0]} pairs still take about {needed:.0f} s, more than the budget of "
            f"{plan.budget_seconds:.0f} s"
        )
    return Sampling(
        warmup,
        fewer,
        turn,
        f"The model is slow: runs per process {fewer} instead of {runs}, warm-up runs {warmup}, "
        f"{why}. A larger --sme2-budget makes each process's median steadier.",
    )
