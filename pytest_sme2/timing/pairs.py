"""The sampling plan: which process runs when, which pairs count, and when to stop.

It starts processes only through the function it is given, so it measures any two arms on any
target: SME2 on and off, or A and B. What the numbers mean is for stats.py and the verdicts to say;
who wants the raw runs keeps them in that function. The reasons are in docs/measuring.md.
"""

from __future__ import annotations

import math
import random
import statistics
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace

from pytest_sme2.results.timing import (
    BLIND_MARGIN,
    TIME_LIMIT,
    Decision,
    DroppedPair,
    Look,
    Outcome,
    PairedTiming,
    PairSample,
)
from pytest_sme2.system.wording import count
from pytest_sme2.timing import stats
from pytest_sme2.timing.processes import (
    BLOCK_SECONDS,
    BUDGETS_IN_DOUBT,
    FEWEST_RUNS,
    Sampling,
    SamplingPlan,
    Starter,
    choose_blocks,
    choose_sampling,
    choose_turn,
    drifting,
    energy_per_run,
    equal_time,
    interference,
    pair_ratio,
    process_drift,
    process_median,
    why_spoiled,
)

INTERFERENCE_MARGIN = 0.05
"""A pair is suspect when wall time over CPU time is this much above its block's usual."""
INTERFERENCE_SPREADS = 5.0
QUIETEST = 14
"""Into so many parts pairs are gathered for their quickest runs: then the test has levels that fit
what earlier looks left of the error."""
BURSTS = 0.03
"""Where a quarter of the processes of both arms take this much longer than the quickest run, noise
hit them that lasts about as long as a run."""
FEWEST_PAIRS = 5
"""Of so many, one should have been on performance cores where there are any for it."""
EFFICIENCY_MARGIN = 0.01
"""A pair is suspect when more than this part of a process's CPU time was on efficiency cores."""


StillOpen = Callable[[Sequence[PairSample]], bool]


def _both(values: Iterable[float | None]) -> tuple[float, float] | None:
    """What is known of both arms."""
    reference, candidate = values
    return None if reference is None or candidate is None else (reference, candidate)


def _why_suspect(pair: PairSample, limit: float, may_be_slow: float) -> str:
    """Why a pair should be measured again; empty where there is no reason."""
    if pair.throttled:
        return "the device slowed itself down against heat"
    if pair.slowed:
        return pair.spoiled or pair.clock_change
    if (pair.efficiency_share or 0.0) > may_be_slow:
        return f"{pair.efficiency_share:.1%} of a process's CPU time was on efficiency cores"
    if (pair.interference or 0.0) > limit:
        return f"wall time {pair.interference:.1%} over CPU time, limit {limit:.1%} in this block"
    return ""


@dataclass
class _Ledger:
    """The pairs of one measurement: kept, dropped, and not yet judged."""

    redo_limit: int
    kept: list[PairSample] = field(default_factory=list)
    dropped: list[DroppedPair] = field(default_factory=list)
    waiting: list[PairSample] = field(default_factory=list)

    def levels(self) -> list[float]:
        every = [*self.kept, *(entry.pair for entry in self.dropped), *self.waiting]
        return [pair.interference for pair in every if pair.interference is not None]

    def log_ratios(self) -> list[float]:
        return [pair.log_ratio for pair in self.kept]

    def judge(self) -> None:
        """Keep or drop what is waiting. Which arm was disturbed, or slower, is never asked: the
        worse process stands for its pair, and swapping the arms' labels would change nothing.
        """
        limit, levels = math.inf, self.levels()
        if levels:
            # Too much is relative to the block's own usual level and spread.
            spread = INTERFERENCE_SPREADS * stats.robust_spread(levels)
            limit = statistics.median(levels) + max(INTERFERENCE_MARGIN, spread)
        slow = math.inf if self.always_slow() else EFFICIENCY_MARGIN
        reasons = {pair.index: _why_suspect(pair, limit, slow) for pair in self.waiting}
        # What the device did to itself, and what others did to it, are repeated alike often.
        suspects = [pair for slowed in (True, False) for pair in self.worst(reasons, slowed)]
        for pair in self.waiting:
            if pair in suspects:
                self.dropped.append(DroppedPair(pair, reasons[pair.index]))
            else:
                self.kept.append(pair)
        self.waiting.clear()

    def worst(self, reasons: Mapping[int, str], slowed: bool) -> list[PairSample]:
        """Those of one kind of reason that may still be dropped, the worst first."""
        found = (pair for pair in self.waiting if reasons[pair.index] and pair.slowed is slowed)
        dropped = sum(entry.pair.slowed is slowed for entry in self.dropped)
        return sorted(
            found,
            key=lambda pair: (pair.efficiency_share or 0.0, pair.interference or 0.0),
            reverse=True,
        )[: max(0, self.redo_limit - dropped)]

    def always_slow(self) -> bool:
        """Whether no pair was on performance cores alone: to drop them would leave nothing."""
        every = [*self.kept, *(entry.pair for entry in self.dropped), *self.waiting]
        shares = [pair.efficiency_share or 0.0 for pair in every]
        return len(shares) >= FEWEST_PAIRS and min(shares) > EFFICIENCY_MARGIN

    def keep_any(self) -> None:
        """No time is left to measure again what was dropped: better than nothing."""
        if not self.kept:
            self.kept, self.dropped = [entry.pair for entry in self.dropped], []


def measure_pairs(
    starter: Starter,
    reference: str,
    candidate: str,
    plan: SamplingPlan | None = None,
    progress: Callable[[str], None] | None = None,
    still_open: StillOpen | None = None,
) -> PairedTiming:
    """Measure two arms in interleaved pairs until the answer is clear or the time is used up.

    The first look is always completed, however slow the arms are; the budget decides whether there
    are more, and there are BUDGETS_IN_DOUBT of it where the answer is still open. Only the plan's
    hard limit ends the measurement before the first look.

    ``progress`` hears after each pair where the measurement stands. ``still_open`` says after a
    look whether the pairs leave open what is asked, where that is not the ratio of whole runs.
    """
    arms = (reference, candidate)
    return _Measuring(starter, arms, plan or SamplingPlan(), progress, still_open).measure()


@dataclass
class _Measuring:
    """One measurement while it runs."""

    starter: Starter
    arms: tuple[str, str]
    plan: SamplingPlan
    progress: Callable[[str], None] | None
    still_open: StillOpen | None = None
    threads: int = 1
    index: int = 0
    longest_pair: float = 0.0
    budgets: float = 1.0
    single: float = 1.0
    blocks: Sequence[float] = ()
    quickest_decided: bool = False
    no_blocks: str = ""
    """Why pairs in blocks, which were due, are missing."""

    def __post_init__(self) -> None:
        self.clock = self.starter.clock
        self.started = self.clock()
        self.order = random.Random(self.plan.seed)  # noqa: S311 - order, not secrets
        self.last_order: tuple[str, ...] = self.arms
        self.ledger = _Ledger(self.plan.redo_limit)
        self.drift: dict[str, list[float]] = {arm: [] for arm in self.arms}

    def measure(self) -> PairedTiming:
        sampling = self.pilot()
        stopped = "all pairs done"
        looks: tuple[Look, ...] = ()
        decision: Decision | None = None
        for due in self.plan.looks:
            in_time = self.collect(due, sampling)
            if not in_time and self.undecided(due):
                # No verdict is given here: a look that was not planned would spend error.
                self.budgets = BUDGETS_IN_DOUBT
                sampling = self.longer(sampling)
                in_time = self.collect(due, sampling)
            looks, decision = self.look()
            if self.clear(decision):
                stopped = "clear"
                break
            if decision is None and self.known(looks[-1]):
                stopped = "precise"
                break
            if not in_time:
                first = due == self.plan.looks[0]
                stopped = TIME_LIMIT if first else "time budget spent"
                break
        if decision is not None and not self.clear(decision):
            decision = self.decide_by_quickest(decision)
            looks = decision.looks
        self.measure_blocks(sampling)
        return self.result(sampling, looks, decision, stopped)

    def longer(self, sampling: Sampling) -> Sampling:
        """More runs per process of a slow model, which spends much of a short one on its warm-up;
        no more than leave time for two such pairs in each part of ``decide_by_quickest``.
        """
        affordable = self.seconds_left() / (4 * QUIETEST) / self.single - sampling.warmup
        return replace(sampling, runs=max(sampling.runs, min(int(affordable), 2 * FEWEST_RUNS)))

    def decide_by_quickest(self, decision: Decision) -> Decision:
        """One look more, with the error that is left, where noise hit both arms.

        It may acquit only where all runs together say nearly the same: a program that is slow in
        some of its processes has quick ones, too.
        """
        kept = self.ledger.kept
        pairs = [pair.quickest_ns for pair in kept if pair.quickest_ns is not None]
        usual = [(pair.reference_ns, pair.candidate_ns) for pair in kept]
        disturbed = (
            sorted(took)[3 * len(took) // 4] > (1 + BURSTS) * min(quick)
            for took, quick in zip(zip(*usual, strict=True), zip(*pairs, strict=True), strict=True)
        )
        if len(pairs) < max(len(kept), 2 * QUIETEST) or not all(disturbed):
            return decision
        parts = (zip(*pairs[part::QUIETEST], strict=True) for part in range(QUIETEST))
        series = [math.log(min(new) / min(old)) for old, new in parts]
        plan, threshold = self.plan, decision.threshold
        alpha = plan.alpha * (1 - sum(plan.split[: len(decision.looks)]))
        look = stats.take_look(series, threshold, alpha)
        level = stats.alarm_level(QUIETEST, alpha, plan.family)
        outcome = stats.outcome_of(look, series, threshold, level)
        hidden = decision.looks[-1].estimate > 1 + threshold + BLIND_MARGIN
        if outcome is Outcome.INCONCLUSIVE or (outcome is not Outcome.REGRESSED and hidden):
            return decision
        self.quickest_decided = True
        return Decision(outcome, threshold, (*decision.looks, look), decision.p_value)

    def measure_blocks(self, sampling: Sampling) -> None:
        """They decide nothing and only cast doubt on an answer: some of them would say nothing."""
        blocks = choose_blocks(self.single, sampling) if self.plan.blocks else None
        found: list[float] = []
        while blocks is not None and len(found) < self.plan.blocks:
            if self.plan.hard_limit - (self.clock() - self.started) < 6 * BLOCK_SECONDS:
                self.no_blocks = "no time was left"
                return
            runs = self.starter.start(self.arms[:: -1 if len(found) % 2 else 1], blocks)
            if any(run.throttled or run.clock_change or why_spoiled(run) for run in runs.values()):
                self.no_blocks = "the device changed its speed meanwhile"
                return
            found.append(pair_ratio(runs[self.arms[0]], runs[self.arms[1]]).logarithm)
        self.blocks = found

    def seconds_left(self, due: int | None = None) -> float:
        """Until the look after ``due`` pairs must be taken: the first has the hard limit's time."""
        until = self.plan.hard_limit
        if due != self.plan.looks[0]:
            until = min(until, self.budgets * self.plan.budget_seconds)
        return until - (self.clock() - self.started)

    def pilot(self) -> Sampling:
        """How many runs a process makes, from a short one of each arm."""
        runs, single, overhead = self.starter.pilot(self.arms)
        self.single = single
        request = runs[self.arms[0]].request
        self.threads, turn = request.threads, None
        if self.starter.in_turns is not None:
            mixed_cores = any(run.cores is not None for run in runs.values())
            turn = choose_turn(single, mixed_cores, request.steps, request.threads)
        sampling = choose_sampling(single, overhead, self.seconds_left(), self.plan, turn)
        if turn is not None or self.plan.runs is not None or sampling.note:
            return sampling
        singles = {arm: float(min(run.wall_ns)) for arm, run in runs.items()}
        return replace(sampling, scale=equal_time(singles))

    def collect(self, due: int, sampling: Sampling) -> bool:
        """Bring the kept pairs up to ``due``; False if the time was used up before."""
        while len(self.ledger.kept) < due:
            while len(self.ledger.kept) + len(self.ledger.waiting) < due:
                if self.index > 0 and self.seconds_left(due) < self.longest_pair:
                    self.ledger.judge()
                    self.ledger.keep_any()
                    return False
                self.ledger.waiting.append(self.pair(sampling))
                self.report(due)
            self.ledger.judge()
        return True

    def pair(self, sampling: Sampling) -> PairSample:
        begun = self.clock()
        if sampling.turn is None and self.index % 2:
            # ABBA: what drifts evenly cancels.
            order = self.last_order[::-1]
        else:
            order = self.arms[:: -1 if self.order.random() < 0.5 else 1]
        self.last_order = order
        runs = self.starter.start(order, sampling)
        for arm, run in runs.items():
            if (drift := process_drift(run)) is not None:
                self.drift[arm].append(drift)
        both = reference, candidate = [runs[arm] for arm in self.arms]
        ratio = pair_ratio(reference, candidate)
        levels = _both(map(interference, both))
        shares = [run.cores.efficiency_share for run in both if run.cores is not None]
        pair = PairSample(
            index=self.index,
            first=order[0],
            reference_ns=process_median(reference),
            candidate_ns=process_median(candidate),
            log_ratio=ratio.logarithm,
            preempted=ratio.preempted,
            interference=None if levels is None else max(levels),
            throttled=any(run.throttled for run in both),
            spoiled=next(filter(None, map(why_spoiled, both)), ""),
            strays=sum(sum(run.strayed) for run in both),
            one_clock=sampling.turn is not None or reference.clock_change == candidate.clock_change,
            clock_change=reference.clock_change or candidate.clock_change,
            efficiency_share=max(shares, default=None),
            clocks_ghz=_both(run.clock_ghz for run in both),
            energy_nj=_both(map(energy_per_run, both)),
            quickest_ns=_both(
                float(min(run.cpu_ns if ratio.preempted else run.wall_ns)) for run in both
            ),
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

    def undecided(self, due: int) -> bool:
        """Whether the pairs so far leave open on which side of the limit the ratio is."""
        if self.still_open is not None:
            return self.still_open(self.ledger.kept)
        if self.plan.threshold is None:
            return False
        low, high = self.look_ahead(due, self.ledger.kept).interval or (0.0, math.inf)
        return low <= 1 + self.plan.threshold <= high

    def look_ahead(self, due: int, pairs: Sequence[PairSample]) -> Look:
        """What the look after ``due`` pairs would show now."""
        part = self.plan.split[self.plan.looks.index(due)]
        series = [pair.log_ratio for pair in pairs]
        return stats.take_look(series, self.plan.threshold or 0.0, self.plan.alpha * part)

    def known(self, look: Look) -> bool:
        """Where no limit is given."""
        if self.still_open is not None:
            return not self.still_open(self.ledger.kept)
        low, high = look.interval or (1.0, math.inf)
        return math.log(high / low) / 2 <= self.plan.ratio_width

    def report(self, due: int) -> None:
        if self.progress is None:
            return
        pairs = self.ledger.kept + self.ledger.waiting
        # As it would be if the next look were now; for the eye, not for a verdict.
        look = self.look_ahead(due, pairs)
        interval = "" if look.interval is None else " [{:.3f}, {:.3f}]".format(*look.interval)
        self.progress(
            f"pair {len(pairs)} of {due} to the next look, ratio {look.estimate:.3f}{interval}, "
            f"{max(0.0, self.seconds_left(due)):.0f} s left"
        )

    def result(
        self,
        sampling: Sampling,
        looks: tuple[Look, ...],
        decision: Decision | None,
        stopped: str,
    ) -> PairedTiming:
        plan, kept, drift = self.plan, self.ledger.kept, drifting(self.drift)
        floor = detectable = None
        if len(kept) >= 3:
            sides = zip(*((pair.reference_ns, pair.candidate_ns) for pair in kept), strict=True)
            floor = stats.noise_floor(*sides)
        reached = [size for size in plan.looks if size <= len(kept)]
        if floor is not None and reached:
            smallest = stats.smallest_detectable(
                stats.robust_spread(self.ledger.log_ratios()),
                plan.threshold or 0.0,
                plan.alpha,
                looks=reached,
                split=plan.split[: len(reached)],
                family=plan.family,
            )[-1]
            detectable = smallest if math.isfinite(smallest) else None
        return PairedTiming(
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
            blocks=tuple(math.exp(value) for value in self.blocks),
        )

    def notes(self, sampling: Sampling, drift: tuple[tuple[str, float], ...]) -> tuple[str, ...]:
        notes = [sampling.note] if sampling.note else []
        if self.quickest_decided:
            notes.append(
                "Noise hit many runs of both sides, so the quickest runs decided: those in "
                f"{QUIETEST} parts of the pairs."
            )
        levels = self.ledger.levels()
        if not levels:
            lacking = "how long threads waited for a core" if self.threads != 1 else "CPU time"
            notes.append(f"Interference was not checked: nothing tells {lacking}.")
        elif (usual := statistics.median(levels)) > INTERFERENCE_MARGIN:
            notes.append(
                f"Wall time was {usual:.0%} over CPU time in the usual pair: the machine is busy. "
                "Stop what else runs on it, or measure when it is idle."
            )
        if strays := sum(pair.strays for pair in self.ledger.kept):
            notes.append(f"{count(strays, 'run')} on other cores than chosen, which do not count.")
        for slowed, why in ((True, "heat or a changed device"), (False, "interference")):
            dropped = sum(entry.pair.slowed is slowed for entry in self.ledger.dropped)
            if dropped >= self.plan.redo_limit > 0:
                notes.append(
                    f"{count(dropped, 'pair')} dropped for {why}, the most allowed; later pairs "
                    "were all kept."
                )
        if self.no_blocks:
            notes.append(
                "Whether an arm changes the other's speed (its clock, its SME unit) was not "
                f"checked with long blocks: {self.no_blocks}."
            )
        slow = sum((pair.efficiency_share or 0.0) > EFFICIENCY_MARGIN for pair in self.ledger.kept)
        if slow:
            notes.append(
                f"{slow} of {count(len(self.ledger.kept), 'pair')} ran partly on efficiency cores. "
                "Stop what else runs on the machine, plug it in, and switch low power mode off."
            )
        for arm, amount in drift:
            direction = "slower" if amount > 0 else "faster"
            notes.append(
                f"Runs of {arm} get {abs(amount):.1%} {direction} within a process: the warm-up of "
                f"{count(sampling.warmup, 'run')} is too short, or the machine heats up."
            )
        return tuple(notes)
