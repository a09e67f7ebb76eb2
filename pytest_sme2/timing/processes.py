"""How much to measure: the looks, the time they may take, and how many runs a process makes.

What single processes and the two of a pair say: medians, ratios, interference, drift.

Processes of named arms, for pairs.py and frontier.py to start: alone on the target, or in turns.
What an arm is, only the caller knows. Beside them a program that never changes, the yardstick.

The steps of whole generations: what each takes, and how two sides compare phase by phase. Pure.

A slowdown that begins at a long context is little in the whole decode, so a decode is judged in
stretches of its context, each on its own.
"""

from __future__ import annotations

import math
import statistics
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from pytest_sme2.errors import RunError, TargetError
from pytest_sme2.results.case import DECODE, PREFILL, PhaseRatio
from pytest_sme2.results.run import Arm, Artifact, Run, RunRequest, TensorSpec, Turn
from pytest_sme2.results.timing import Estimate, Look
from pytest_sme2.system.files import file_sha256
from pytest_sme2.targets.base import Job, TakesTurns
from pytest_sme2.timing import stats
from pytest_sme2.timing.stats import Floats

if TYPE_CHECKING:
    from pytest_sme2.runners.base import Runner
    from pytest_sme2.targets.base import Target


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


DRIFT_LIMIT = 0.01

FEWEST_ROUNDS = 3

CALM = 0.05
"""How much longer than its CPU time a run may take that had the core to itself."""


def process_median(run: Run) -> float:
    """The median wall time of a process's calm runs, or of all where too few are: one replicate."""
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
    calm = [wall for wall in _calm_ns(run) if wall is not None]
    return float(statistics.median(calm if len(calm) >= FEWEST_ROUNDS else run.wall_ns))


def _calm_ns(run: Run) -> list[int | None]:
    """The runs' wall times; None where another process had the core for a part of the run, or
    where the run was on a core that it was not meant for.

    A core that is shared takes a run that is longer than the scheduler's slice away in its middle:
    then twice the work takes ten times as long. All are calm where CPU time says nothing.
    """
    lost = _lost_ns(run) or [0] * len(run.wall_ns)
    return [
        wall if not stray and less <= CALM * (wall - less) else None
        for wall, less, stray in zip(run.wall_ns, lost, run.strayed, strict=True)
    ]


def _lost_ns(run: Run) -> Sequence[int] | None:
    """For how long others had the core in each run; None where nothing tells.

    Of one thread, CPU time tells, where its clock is fine; of several, how long they waited.
    """
    if run.request.threads != 1:
        return run.waited_ns or None
    if len(run.cpu_ns) != len(run.wall_ns) or min(run.cpu_ns, default=0) <= 0:
        return None
    return [wall - cpu for wall, cpu in zip(run.wall_ns, run.cpu_ns, strict=True)]


def why_spoiled(run: Run) -> str:
    """Why a pair with this process should be measured again, whatever its times are."""
    if 2 * sum(run.strayed) > len(run.wall_ns):
        meant = ", ".join(map(str, run.meant_for))
        return f"most runs were on other cores than {meant}"
    return run.spoiled


class PairRatio(NamedTuple):
    """The candidate's time over the reference's."""

    logarithm: float
    preempted: bool
    """Whether others had the core in nearly every round, so that it is of CPU time."""


def turn_runs_of(reference: Run, candidate: Run) -> int:
    """How many runs a turn has; all of them where one process ran after the other."""
    turn = reference.request.turn
    if turn is not None and candidate.request.turn == turn:
        # A generation takes several.
        return 1 if reference.request.generate else turn.runs
    return max(len(reference.wall_ns), len(candidate.wall_ns))


def pair_ratio(reference: Run, candidate: Run) -> PairRatio:
    """Of wall time where enough runs are calm, else of CPU time, which others disturb far less."""
    turn_runs = turn_runs_of(reference, candidate)
    longest = max(len(reference.wall_ns), len(candidate.wall_ns))
    calm = _rounds(_calm_ns(reference), _calm_ns(candidate), turn_runs)
    if len(calm) >= min(FEWEST_ROUNDS, -(-longest // turn_runs)):
        return PairRatio(_of_quiet_rounds(calm), preempted=False)
    if any(run.request.threads != 1 or _lost_ns(run) is None for run in (reference, candidate)):
        wall = rounds_log_ratio(reference.wall_ns, candidate.wall_ns, turn_runs)
        return PairRatio(wall, preempted=False)
    cpu = rounds_log_ratio(reference.cpu_ns, candidate.cpu_ns, turn_runs)
    return PairRatio(cpu, preempted=True)


def rounds_log_ratio(reference: Sequence[int], candidate: Sequence[int], turn_runs: int) -> float:
    """The candidate's time over the reference's, as a logarithm, where the two took turns of so
    many runs.
    """
    return _of_quiet_rounds(_rounds(reference, candidate, turn_runs))


def _of_quiet_rounds(rounds: Sequence[tuple[float, float]]) -> float:
    """The median over the quieter half of the rounds, as logarithms of their two turns.

    Both turns of a round together say how quiet it was, so that swapping the arms would choose the
    same rounds.
    """
    quiet = sorted(rounds, key=sum)[: max(min(len(rounds), FEWEST_ROUNDS), len(rounds) // 2)]
    return statistics.median(other - one for one, other in quiet)


def _rounds(
    reference: Sequence[int | None], candidate: Sequence[int | None], turn_runs: int
) -> list[tuple[float, float]]:
    """The logarithms of each round's two turns; rounds with a turn that is mostly None are out."""

    def turns(times_ns: Sequence[int | None]) -> Iterator[float | None]:
        for first in range(0, len(times_ns), turn_runs):
            turn = times_ns[first : first + turn_runs]
            calm = [time for time in turn if time is not None]
            enough = len(calm) >= min(FEWEST_ROUNDS, len(turn))
            yield math.log(statistics.median(calm)) if enough else None

    pairs = zip(turns(reference), turns(candidate), strict=True)
    return [(one, other) for one, other in pairs if one is not None and other is not None]


def interference(run: Run) -> float | None:
    """Wall time over CPU time, less 1: the share of time that something else had the core. Of
    several threads, for how long they waited for one, over the wall time.

    None where it cannot be known: a runner or a system that does not tell it.
    """
    if run.request.threads != 1:
        return sum(run.waited_ns) / sum(run.wall_ns) if run.waited_ns else None
    if len(run.cpu_ns) != len(run.wall_ns) or sum(run.cpu_ns) <= 0:
        return None
    return sum(run.wall_ns) / sum(run.cpu_ns) - 1


def energy_per_run(run: Run) -> float | None:
    """In nanojoules, as the system estimates it; None where it does not."""
    used = run.cores
    return None if used is None or not used.energy_nj else used.energy_nj / len(run.wall_ns)


def process_drift(run: Run) -> float | None:
    """The last third of a process's runs over the first third, less 1; None if too short."""
    third = len(run.wall_ns) // 3
    if third < 2:
        return None
    return statistics.median(run.wall_ns[-third:]) / statistics.median(run.wall_ns[:third]) - 1


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


STRETCHES = 4
"""Of a decode; fewer where it has fewer tokens."""


def step_times(run: Run, steps: int) -> Floats:
    """What each step took, a row for each of the process's generations."""
    times: Floats = np.asarray(run.step_wall_ns, dtype=float).reshape(-1, steps)
    return times


def log_ratios(reference: Sequence[Run], candidate: Sequence[Run], steps: int) -> Floats:
    """Of each pair and step, the logarithm of the candidate's time over the reference's."""
    pairs = []
    for old, new in zip(reference, candidate, strict=True):
        turn_runs = turn_runs_of(old, new)
        times = zip(step_times(old, steps).T, step_times(new, steps).T, strict=True)
        pairs.append([rounds_log_ratio(before, after, turn_runs) for before, after in times])
    return np.array(pairs)


def compare_phases(
    ratios: Floats, prompt_tokens: int, threshold: float, family: int
) -> list[PhaseRatio]:
    """The prompt, then the stretches of the decode; ``family`` verdicts on wholes are given."""
    steps = ratios.shape[1]
    parts = np.array_split(np.arange(1, steps), min(STRETCHES, steps - 1))
    tokens, few = prompt_tokens, 1 + len(parts)
    found = [judge_phase(PREFILL, tokens, tokens, ratios[:, 0], threshold, few, family)]
    for part in parts:
        series = np.median(ratios[:, part], axis=1)
        first, last = (tokens + int(part[end]) for end in (0, -1))
        found.append(judge_phase(DECODE, first, last, series, threshold, few, family))
    return found


def judge_phase(
    phase: str,
    context: int,
    last: int,
    series: Sequence[float] | Floats,
    threshold: float,
    parts: int,
    family: int = 1,
) -> PhaseRatio:
    """One of so many ``parts`` of a generation, which share the error of one verdict."""
    alpha = stats.FALSE_ALARM_RATE / parts
    decision = stats.decide_ratio(series, threshold, alpha, family=family)
    return PhaseRatio(phase, context, last, _estimate(decision.looks[-1]), decision.outcome)


def whole_phases(ratios: Floats, alpha: float) -> dict[str, Estimate]:
    """Each phase as a whole, reference over candidate: how many times faster the candidate is."""
    series = {PREFILL: -ratios[:, 0], DECODE: -np.median(ratios[:, 1:], axis=1)}
    return {phase: estimate_of(values, alpha) for phase, values in series.items()}


def estimate_of(
    series: Sequence[float] | Floats, alpha: float = stats.FALSE_ALARM_RATE / 2
) -> Estimate:
    """The ratio whose logarithms these are."""
    return _estimate(stats.take_look(series, 0.0, alpha))


def _estimate(look: Look) -> Estimate:
    low, high = look.interval or (0.0, math.inf)
    return Estimate(look.estimate, low, high, 1 - 2 * look.alpha, look.pairs)


def beginning(ratios: Floats, prompt_tokens: int) -> int:
    """The context from which on a decode is slower: where one step up explains most of it."""
    centres = np.median(ratios[:, 1:], axis=0)
    # From each place on: the sum of squares that a constant from there on explains.
    sums = np.cumsum(centres[::-1])[::-1]
    explained = np.where(sums > 0, sums**2 / np.arange(len(centres), 0, -1), -1.0)
    return prompt_tokens + 1 + int(np.argmax(explained))


PROGRAM = Path(__file__).parent / "selfcheck.pte"
"""``export_layers(10, 64, 8)`` of ``benchmarks/detection_gate.py``: no torch is needed here."""

YARDSTICK_WARMUP, YARDSTICK_RUNS = 200, 50
"""Alone it warms up until a clock has risen, which takes 0.2 s."""
FEWEST_TAKEN = 3
TAKEN_SHARE = 0.05
"""Of the measurement's own time that may go into the yardstick, once there are a few."""


def selfcheck_artifact() -> Artifact:
    spec = TensorSpec("float32", (1, 8, 64, 64))
    return Artifact(
        model="selfcheck",
        variant="fp32",
        folder=PROGRAM.parent,
        pte=PROGRAM,
        sha256=file_sha256(PROGRAM),
        inputs=(spec,),
        outputs=(spec,),
        weights="random (seed 0)",
    )


@dataclass
class Yardstick:
    """Takes the program's time now and then while something else is measured.

    A latency that was stored at another time can only be compared if the machine is as fast as it
    was then. Neither its name nor the CPU time shows that: a neighbour on the same core, heat or
    another clock make everything slower without a trace. Pairs that are measured together do not
    need it.
    """

    target: Target
    runner: Runner
    folder: Path
    clock: Callable[[], float] = time.monotonic
    times_ns: list[float] = field(default_factory=list)
    spent: float = 0.0

    def __post_init__(self) -> None:
        self.begun = self.clock()

    @property
    def due(self) -> bool:
        """Whether it is asked once more: that must not hold up the measurement too much."""
        elapsed = self.clock() - self.begun
        return len(self.times_ns) < FEWEST_TAKEN or self.spent <= TAKEN_SHARE * elapsed

    def take(self) -> None:
        started = self.clock()
        job = self.job({"warmup": YARDSTICK_WARMUP, "runs": YARDSTICK_RUNS})
        run = self.target.run(job.runner, job.request, job.folder)
        self.times_ns.append(process_median(run))
        self.spent += self.clock() - started

    def job(self, how: Mapping[str, Any]) -> Job:
        return Job(self.runner, RunRequest(selfcheck_artifact(), Arm.OFF, **how), self.folder)

    def took(self, run: Run) -> None:
        self.times_ns.append(process_median(run))
        self.spent += sum(run.wall_ns) / 1e9

    @property
    def median_ns(self) -> float:
        return statistics.median(self.times_ns)


RunArm = Callable[..., Run]
"""Starts one fresh process of an arm, with ``warmup`` and ``runs``, and waits for it."""
RunInTurns = Callable[..., dict[str, Run]]
"""The same of each of several arms, which take turns."""
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
    beside: Yardstick | None = None,
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
