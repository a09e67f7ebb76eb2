"""The sampling plan: which process runs when, which pairs count, and when to stop.

It starts processes only through the function it is given, so it measures any two arms on any
target: SME2 on and off, or A and B. What the numbers mean is for stats.py and gate.py to say; who
wants the raw runs keeps them in that function. The reasons are told in docs/measuring.md.
"""

from __future__ import annotations

import math
import random
import statistics
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Protocol

from pytest_sme2.errors import RunError, TargetError
from pytest_sme2.results import (
    Decision,
    DroppedPair,
    Look,
    Measurement,
    Outcome,
    PairSample,
    Run,
    Turn,
)
from pytest_sme2.timing import stats

PROCESS_SECONDS = 0.3
"""How long the measured runs of a process take together: enough for a steady median."""
TURNS_SECONDS = 0.15
"""The same where two processes take turns: their ratio is steady much sooner."""
FEWEST_RUNS, MOST_RUNS = 5, 200
FEWEST_RUNS_IN_A_HURRY = 3
LEAST_WARMUP = 3
PILOT_WARMUP, PILOT_RUNS = 1, 3
TURN_SECONDS = 0.002
"""How long a turn takes, or one run where that is longer: shorter than the spells of noise."""
LEAD_SECONDS = 0.005
"""Runs shorter than this lose enough to the other's use of the caches for an untimed one first."""

INTERFERENCE_MARGIN = 0.05
"""A pair is suspect when wall time over CPU time is this much above its block's usual."""
INTERFERENCE_SPREADS = 5.0
DRIFT_LIMIT = 0.01
THREADS_SLOWER_LIMIT = 0.02
FEWEST_ROUNDS = 3


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
class Plan:
    """How to measure; the defaults are those that docs/measuring.md gives figures for."""

    threshold: float | None = stats.TOLERATED_SLOWDOWN
    """The tolerated slowdown of the candidate; a least speedup of s is 1/s - 1. None: only the
    ratio is asked for, and measuring ends when it is known to within ``precision``."""
    precision: float = 0.01
    alpha: float = stats.FALSE_ALARM_RATE
    family: int = 1
    """How many verdicts the session will give; see stats.decide_ratio."""
    looks: tuple[int, ...] = stats.LOOKS
    split: tuple[float, ...] = stats.ERROR_SPLIT
    budget_seconds: float = 60.0
    seed: int = 0
    runs: int | None = None
    """Runs a process; None lets a pilot run choose."""
    warmup: int | None = None
    redo_limit: int = 10
    """How many pairs may be dropped for interference and measured again."""

    def __post_init__(self) -> None:
        if self.threshold is not None and not -1 < self.threshold < math.inf:
            raise ValueError(f"A tolerated slowdown of {self.threshold} is not above -1.")
        if list(self.looks) != sorted(set(self.looks)) or not self.looks or self.looks[0] < 1:
            raise ValueError(f"The looks {self.looks} do not rise from 1 or more.")
        if len(self.split) != len(self.looks) or sum(self.split) > 1 + 1e-9:
            raise ValueError("Each look needs its part of the error, and the parts at most all.")
        if self.family < 1:
            raise ValueError("A session gives at least one verdict.")
        if not self.budget_seconds > 0:
            raise ValueError(f"A time budget of {self.budget_seconds} s leaves no time.")


@dataclass(frozen=True)
class Progress:
    """Where a measurement stands, for a progress line."""

    pairs: int
    look: int
    """The number of pairs at which the answer is looked at next."""
    most_pairs: int
    dropped: int
    ratio: float
    interval: tuple[float, float] | None
    """As it would be if the next look were now; for the eye, not for a verdict."""
    seconds_left: float


@dataclass(frozen=True)
class Sampling:
    """How many runs a process makes, equal in both arms."""

    warmup: int
    runs: int
    turn: Turn | None = None
    """How two processes take turns; None where they run one after the other."""
    note: str | None = None


# --- single processes -----------------------------------------------------------------------------


def process_median(run: Run) -> float:
    """The median wall time of a process's runs: one replicate."""
    if run.emulated:
        raise TargetError(
            "Emulated times say nothing about hardware and cannot be measured as latency. "
            "Choose a real target with --device, or leave the timing checks out."
        )
    if not run.wall_ns or min(run.wall_ns) <= 0:
        raise RunError(
            f"The runner on {run.target} gave no usable run times. "
            f"See its log{f' {run.log}' if run.log else ''}."
        )
    return float(statistics.median(run.wall_ns))


def pair_log_ratio(reference: Run, candidate: Run) -> float:
    """The candidate's time over the reference's, as a logarithm."""
    turn = reference.request.turn
    if turn is None or candidate.request.turn != turn:
        return math.log(process_median(candidate) / process_median(reference))
    return rounds_log_ratio(reference.wall_ns, candidate.wall_ns, turn.runs)


def rounds_log_ratio(reference: Sequence[int], candidate: Sequence[int], turn_runs: int) -> float:
    """The same where the two took turns of so many runs: of each round's two turns, and of these
    the median over the quieter half of the rounds.

    How quiet a round was is told by both its turns together, so that swapping the arms would
    choose the same rounds.
    """
    rounds = sorted(
        zip(_turn_logs(reference, turn_runs), _turn_logs(candidate, turn_runs), strict=True),
        key=sum,
    )
    quiet = rounds[: max(min(len(rounds), FEWEST_ROUNDS), len(rounds) // 2)]
    return statistics.median(other - one for one, other in quiet)


def _turn_logs(wall_ns: Sequence[int], turn_runs: int) -> list[float]:
    return [
        math.log(statistics.median(wall_ns[first : first + turn_runs]))
        for first in range(0, len(wall_ns), turn_runs)
    ]


def interference(run: Run) -> float | None:
    """Wall time over CPU time, less 1: the share of time that something else had the core.

    None where it cannot be known: several threads, or a runner that gives no CPU time.
    """
    if run.request.threads != 1 or len(run.cpu_ns) != len(run.wall_ns) or sum(run.cpu_ns) <= 0:
        return None
    return sum(run.wall_ns) / sum(run.cpu_ns) - 1


def process_drift(run: Run) -> float | None:
    """The last third of a process's runs over the first third, less 1; None if too short."""
    third = len(run.wall_ns) // 3
    if third < 2:
        return None
    return statistics.median(run.wall_ns[-third:]) / statistics.median(run.wall_ns[:third]) - 1


# --- choosing how much a process does -------------------------------------------------------------


def choose_turn(single_seconds: float) -> Turn:
    """How much a process does in a turn, from how long one run takes."""
    runs = max(1, round(TURN_SECONDS / single_seconds))
    return Turn(runs, lead=1 if single_seconds < LEAD_SECONDS else 0)


def choose_sampling(
    single_seconds: float,
    overhead_seconds: float,
    seconds_left: float,
    plan: Plan,
    turn: Turn | None = None,
) -> Sampling:
    """Runs a process, from how long one run and the start of a process took in the pilot.

    Processes are the replicates, so where time is short runs are cut before pairs are.
    """
    wanted = (PROCESS_SECONDS if turn is None else TURNS_SECONDS) / single_seconds
    runs = plan.runs or min(MOST_RUNS, max(FEWEST_RUNS, round(wanted)))
    warmup = plan.warmup if plan.warmup is not None else max(LEAST_WARMUP, runs // 10)
    if plan.runs is not None:
        return Sampling(warmup, runs, turn)
    process_seconds = 0.8 * seconds_left / (2 * plan.looks[0]) - overhead_seconds
    # What a turn begins with is paid for as well, though it does not count.
    share = 1.0 if turn is None else turn.runs / (turn.runs + turn.lead)
    affordable = int(process_seconds / single_seconds * share)
    if affordable >= warmup + runs:
        return Sampling(warmup, runs, turn)
    if plan.warmup is None:
        warmup = min(warmup, max(1, affordable // 4))
    fewer = min(runs, max(FEWEST_RUNS_IN_A_HURRY, affordable - warmup))
    return Sampling(
        warmup,
        fewer,
        turn,
        f"A process makes {fewer} runs after {warmup} warm-up runs instead of {runs}, so that "
        f"{plan.looks[0]} pairs fit into {plan.budget_seconds:.0f} s. A larger --budget "
        "makes each process's median steadier.",
    )


# --- judging pairs --------------------------------------------------------------------------------


def interference_limit(block: Iterable[float]) -> float:
    """What is too much, relative to the block's own usual level and spread."""
    levels = tuple(block)
    usual = statistics.median(levels)
    return usual + max(INTERFERENCE_MARGIN, INTERFERENCE_SPREADS * stats.robust_spread(levels))


@dataclass
class _Ledger:
    """The pairs of one measurement: kept, dropped, and not yet judged."""

    redo_limit: int
    kept: list[PairSample] = field(default_factory=list)
    dropped: list[DroppedPair] = field(default_factory=list)
    waiting: list[PairSample] = field(default_factory=list)

    @property
    def candidates(self) -> int:
        return len(self.kept) + len(self.waiting)

    def everything(self) -> list[PairSample]:
        return [*self.kept, *(entry.pair for entry in self.dropped), *self.waiting]

    def levels(self) -> list[float]:
        return [pair.interference for pair in self.everything() if pair.interference is not None]

    def judge(self) -> None:
        """Keep or drop what is waiting. Which arm was disturbed, or slower, is never asked: the
        worse process stands for its pair, and swapping the arms' labels would change nothing.
        """
        levels = self.levels()
        limit = interference_limit(levels) if levels else math.inf
        suspects = sorted(
            (pair for pair in self.waiting if pair.throttled or (pair.interference or 0.0) > limit),
            key=lambda pair: (pair.throttled, pair.interference or 0.0),
            reverse=True,
        )[: max(0, self.redo_limit - len(self.dropped))]
        for pair in self.waiting:
            if pair in suspects:
                reason = (
                    f"wall time {pair.interference or 0.0:.1%} over CPU time, "
                    f"limit {limit:.1%} in this block"
                )
                if pair.throttled:
                    reason = "the device slowed itself down against heat"
                self.dropped.append(DroppedPair(pair, reason))
            else:
                self.kept.append(pair)
        self.waiting.clear()

    def log_ratios(self) -> list[float]:
        return [pair.log_ratio for pair in self.kept]


# --- measuring ------------------------------------------------------------------------------------


def measure_pairs(
    run_arm: RunArm,
    reference: str,
    candidate: str,
    plan: Plan | None = None,
    *,
    progress: Callable[[Progress], None] | None = None,
    clock: Callable[[], float] = time.monotonic,
    redo: Redo | None = None,
    in_turns: RunInTurns | None = None,
) -> Measurement:
    """Measure two arms in interleaved pairs until the answer is clear or the means are used up.

    With ``in_turns`` the two processes of a pair take turns; else one runs after the other.
    ``redo`` is for targets whose connection can be lost: it is given what measures a whole pair
    and may call it again from the start (``targets.retry.redo_when_lost``).
    """
    return _Session(
        run_arm, reference, candidate, plan or Plan(), progress, clock, redo, in_turns
    ).measure()


class _Session:
    """One measurement while it runs."""

    def __init__(
        self,
        run_arm: RunArm,
        reference: str,
        candidate: str,
        plan: Plan,
        progress: Callable[[Progress], None] | None,
        clock: Callable[[], float],
        redo: Redo | None,
        in_turns: RunInTurns | None,
    ) -> None:
        if reference == candidate:
            raise ValueError("The two arms need different labels, even if they are the same thing.")
        self.run_arm = run_arm
        self.arms = (reference, candidate)
        self.plan = plan
        self.progress = progress
        self.clock = clock
        self.redo: Redo = redo or (lambda measure: measure())
        self.in_turns = in_turns
        self.started = clock()
        self.order = random.Random(plan.seed)  # noqa: S311 - order, not secrets
        self.ledger = _Ledger(plan.redo_limit)
        self.drift: dict[str, list[float]] = {arm: [] for arm in self.arms}
        self.threads = 1
        self.index = 0
        self.longest_pair = 0.0

    def measure(self) -> Measurement:
        sampling = self.pilot()
        stopped = "all pairs done"
        looks: tuple[Look, ...] = ()
        decision: Decision | None = None
        for due in self.plan.looks:
            in_time = self.collect(due, sampling)
            looks, decision = self.look()
            if self.clear(decision):
                stopped = "clear"
                break
            if decision is None and self.precise(looks[-1]):
                stopped = "precise"
                break
            if not in_time:
                stopped = "time budget spent"
                break
        return self.result(sampling, looks, decision, stopped)

    def seconds_left(self) -> float:
        return self.plan.budget_seconds - (self.clock() - self.started)

    def pilot(self) -> Sampling:
        """One short process of each arm. It also brings files into memory, so it never counts."""
        singles, overheads = [], []
        for arm in self.arms:
            begun = self.clock()
            run = self.start([arm], PILOT_WARMUP, PILOT_RUNS)[arm]
            process_median(run)
            self.threads = run.request.threads
            single = min(run.wall_ns) / 1e9
            singles.append(single)
            spent = self.clock() - begun
            overheads.append(max(0.0, spent - single * (PILOT_WARMUP + PILOT_RUNS)))
        single = math.sqrt(singles[0] * singles[1])
        return choose_sampling(
            single,
            max(overheads),
            self.seconds_left(),
            self.plan,
            None if self.in_turns is None else choose_turn(single),
        )

    def collect(self, due: int, sampling: Sampling) -> bool:
        """Bring the kept pairs up to ``due``; False if the time budget ended that before."""
        while len(self.ledger.kept) < due:
            while self.ledger.candidates < due:
                started_any = self.index > 0
                if started_any and self.seconds_left() < self.longest_pair:
                    self.ledger.judge()
                    return False
                self.ledger.waiting.append(self.pair(sampling))
                self.report(due)
            self.ledger.judge()
        return True

    def start(self, order: Sequence[str], warmup: int, runs: int) -> dict[str, Run]:
        """One fresh process of each arm, in this order; all of them again where one was lost."""
        return self.redo(
            lambda: {arm: self.run_arm(arm, warmup=warmup, runs=runs) for arm in order}
        )

    def start_in_turns(
        self, in_turns: RunInTurns, order: Sequence[str], sampling: Sampling, turn: Turn
    ) -> dict[str, Run]:
        return self.redo(
            lambda: in_turns(order, warmup=sampling.warmup, runs=sampling.runs, turn=turn)
        )

    def pair(self, sampling: Sampling) -> PairSample:
        begun = self.clock()
        order = list(self.arms)
        if self.order.random() < 0.5:
            order.reverse()
        if self.in_turns is not None and sampling.turn is not None:
            runs = self.start_in_turns(self.in_turns, order, sampling, sampling.turn)
        else:
            runs = self.start(order, sampling.warmup, sampling.runs)
        for arm, run in runs.items():
            drift = process_drift(run)
            if drift is not None:
                self.drift[arm].append(drift)
        levels = [interference(run) for run in runs.values()]
        known = [level for level in levels if level is not None]
        pair = PairSample(
            index=self.index,
            first=order[0],
            reference_ns=process_median(runs[self.arms[0]]),
            candidate_ns=process_median(runs[self.arms[1]]),
            log_ratio=pair_log_ratio(runs[self.arms[0]], runs[self.arms[1]]),
            interference=max(known) if len(known) == len(levels) else None,
            throttled=any(run.throttled for run in runs.values()),
        )
        self.index += 1
        self.longest_pair = max(self.longest_pair, self.clock() - begun)
        return pair

    def look(self) -> tuple[tuple[Look, ...], Decision | None]:
        plan, series = self.plan, self.ledger.log_ratios()
        if plan.threshold is not None:
            decision = stats.decide_ratio(
                series,
                plan.threshold,
                plan.alpha,
                looks=plan.looks,
                split=plan.split,
                family=plan.family,
            )
            return decision.looks, decision
        sizes = stats.planned_looks(len(series), plan.looks)
        looks = tuple(
            stats.take_look(series[:size], 0.0, plan.alpha * part)
            for size, part in zip(sizes, plan.split, strict=False)
        )
        return looks, None

    def clear(self, decision: Decision | None) -> bool:
        return decision is not None and decision.outcome is not Outcome.INCONCLUSIVE

    def precise(self, look: Look) -> bool:
        if look.interval is None:
            return False
        return math.log(look.interval[1] / look.interval[0]) / 2 <= self.plan.precision

    def report(self, due: int) -> None:
        if self.progress is None:
            return
        pairs = self.ledger.kept + self.ledger.waiting
        series = [pair.log_ratio for pair in pairs]
        part = self.plan.split[self.plan.looks.index(due)]
        look = stats.take_look(series, self.plan.threshold or 0.0, self.plan.alpha * part)
        self.progress(
            Progress(
                pairs=len(pairs),
                look=due,
                most_pairs=self.plan.looks[-1],
                dropped=len(self.ledger.dropped),
                ratio=look.estimate,
                interval=look.interval,
                seconds_left=max(0.0, self.seconds_left()),
            )
        )

    def result(
        self,
        sampling: Sampling,
        looks: tuple[Look, ...],
        decision: Decision | None,
        stopped: str,
    ) -> Measurement:
        plan, kept = self.plan, self.ledger.kept
        floor = detectable = None
        if len(kept) >= 3:
            floor = stats.noise_floor(
                [pair.reference_ns for pair in kept], [pair.candidate_ns for pair in kept]
            )
            by_look = stats.smallest_detectable(
                stats.robust_spread(self.ledger.log_ratios()),
                # Where only the ratio is asked for, any difference at all would be news.
                plan.threshold or 0.0,
                plan.alpha,
                looks=plan.looks,
                split=plan.split,
                family=plan.family,
            )
            reached = [size for size in plan.looks if size <= len(kept)]
            if reached and math.isfinite(by_look[len(reached) - 1]):
                detectable = by_look[len(reached) - 1]
        drift = drifting(self.drift)
        return Measurement(
            reference=self.arms[0],
            candidate=self.arms[1],
            seed=plan.seed,
            warmup=sampling.warmup,
            runs=sampling.runs,
            threads=self.threads,
            pairs=tuple(kept),
            dropped=tuple(self.ledger.dropped),
            decision=decision,
            looks=looks,
            stopped_because=stopped,
            noise_floor=floor,
            detectable=detectable,
            drift=drift,
            notes=self.notes(sampling, drift),
            seconds=self.clock() - self.started,
            turn=sampling.turn,
        )

    def notes(self, sampling: Sampling, drift: tuple[tuple[str, float], ...]) -> tuple[str, ...]:
        notes = [sampling.note] if sampling.note else []
        levels = self.ledger.levels()
        if not levels:
            why = "several threads run" if self.threads != 1 else "the runner gives no CPU time"
            notes.append(f"Interference was not checked: {why}.")
        elif (usual := statistics.median(levels)) > INTERFERENCE_MARGIN:
            notes.append(
                f"Wall time was {usual:.0%} over CPU time in the usual pair: the machine is busy. "
                "Stop what else runs on it, or measure when it is idle."
            )
        if len(self.ledger.dropped) >= self.plan.redo_limit > 0:
            notes.append(
                f"{len(self.ledger.dropped)} pairs were dropped for interference, as many as may "
                "be; later pairs were kept whatever they met."
            )
        for arm, amount in drift:
            direction = "slower" if amount > 0 else "faster"
            notes.append(
                f"Runs of {arm} get {abs(amount):.1%} {direction} within a process: the warm-up of "
                f"{sampling.warmup} runs is too short, or the machine heats up."
            )
        return tuple(notes)


def drifting(by_arm: Mapping[str, Sequence[float]]) -> tuple[tuple[str, float], ...]:
    """The arms whose processes drift by more than DRIFT_LIMIT, beyond chance."""
    found = []
    for arm, drifts in by_arm.items():
        if not drifts:
            continue
        centre = stats.hodges_lehmann(drifts)
        lower, upper = stats.signed_rank_interval(drifts, 0.01)
        if abs(centre) > DRIFT_LIMIT and (lower > 0 or upper < 0):
            found.append((arm, centre))
    return tuple(found)


# --- beside the pairs -----------------------------------------------------------------------------


def tracing_overhead(untraced_ns: Sequence[float], traced: Sequence[Run]) -> float:
    """How much longer a traced run takes than an untraced one, from process medians."""
    traced_ns = [process_median(run) for run in traced]
    return statistics.median(traced_ns) / statistics.median(untraced_ns) - 1


def thread_warnings(medians_ns: Mapping[int, Sequence[float]]) -> tuple[str, ...]:
    """A sentence for every thread count that is slower than a smaller one of a sweep."""
    warnings = []
    best: tuple[int, float] | None = None
    for threads, medians in sorted(medians_ns.items()):
        value = statistics.median(medians)
        if best is not None and value > best[1] * (1 + THREADS_SLOWER_LIMIT):
            warnings.append(
                f"{threads} threads are {value / best[1] - 1:.1%} slower than {best[0]}: "
                f"{value / 1e6:.3f} ms against {best[1] / 1e6:.3f} ms."
            )
        if best is None or value < best[1]:
            best = (threads, value)
    return tuple(warnings)
