"""Latency and load time: compared on the same target only, never emulated.

What an inference may take at most, however long it took before, and how much of its speed it may
lose under load. Pure.

A process counts once, with its median or with what 95 % of its inferences stay within: those of one
process are alike. So the bounds are order statistics of processes, exact whatever they spread like.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache, partial

from pytest_sme2.results.case import (
    ANY_THREADS,
    Baseline,
    BaselineSession,
    CaseResult,
    Check,
    Limits,
)
from pytest_sme2.results.run import Arm
from pytest_sme2.results.timing import FIRST_MINUTE, Moment, Outcome, PairedTiming, Sustained
from pytest_sme2.system.wording import as_given, count
from pytest_sme2.verdict.baselines import BUSY
from pytest_sme2.verdict.judging import (
    CREATE_HINT,
    FEWEST_PROCESSES,
    MORE_TIME,
    MOVED_CAP,
    PASSING,
    PROVISIONAL_SESSIONS,
    UPDATE_HINT,
    cycles_or_clock,
    judge,
    largest_by_chance,
    left_open,
    mean_clock,
    metric_against,
    same_work,
    session_interval,
    suspect,
    too_hot,
)

ALARM, ACQUITTAL = 1 / 500, 1 / 20
"""How often at most chance calls a time at its limit longer, and how often shorter."""
FEWEST_INFERENCES = 13
"""The slowest of so many is as often above as below what 95 % stay within."""


def bounds(
    values: Sequence[float], below: float = ALARM, above: float = ACQUITTAL
) -> tuple[float, float]:
    """Between which the centre of what the values are drawn from lies: it is ``below`` them, and
    ``above`` them, with a probability of at most so much.
    """
    ordered, number = sorted(values), len(values)
    low, high = (_rank(number, error) for error in (below, above))
    return ordered[low - 1] if low else 0.0, ordered[-high] if high else math.inf


def _rank(number: int, error: float) -> int:
    """The largest r so that the r-th smallest value is above the centre no more often than that."""
    fewer, rank = 0.5**number, 0
    while fewer <= error:
        rank += 1
        fewer += math.comb(number, rank) * 0.5**number
    return rank


def asked_at(limit: Mapping[str, float], threads: int) -> float | None:
    """What a limit allows with so many threads; None where it says nothing."""
    return limit.get(str(threads), limit.get(ANY_THREADS))


def check_budgets(measured: CaseResult, limits: Limits) -> Iterator[Check]:
    """Of the arm that speaks for the program; nothing where no such limit is set."""
    arm, threads = measured.arm, measured.threads
    tail = "95 % of inferences stay within"
    for name, what, limit, times, fewest in (
        ("latency", "An inference takes", limits.max_latency, measured.medians_ns, 0),
        ("p95", tail, limits.max_p95, measured.p95s_ns, FEWEST_INFERENCES),
    ):
        most = asked_at(limit, threads)
        if most is not None:
            metric, found = f"{name} budget ({arm})", (times or {}).get(arm, ())
            yield _check(metric, what, measured, found, most, fewest)


def _check(
    metric: str,
    what: str,
    measured: CaseResult,
    times: Sequence[float],
    most: float,
    fewest: int,
) -> Check:
    problem = untimed(metric, measured)
    if problem is not None or not times:
        verdict = Outcome.NOT_MEASURED if measured.emulated or not problem else Outcome.INVALID
        return Check(metric, verdict, problem.message if problem else "It was not measured.")
    now, limit = statistics.median(times) / 1e6, most * 1e3
    low, high = (bound / 1e6 for bound in bounds(times))
    interval = (low, high) if math.isfinite(high) else None
    span = f"[{low:.3f}, {high:.3f}]" if interval else f"({count(len(times), 'process')})"
    told = f"{what} {now:.3f} ms {span}; at most {limit:g} are allowed."
    verdict, more = Outcome.PASS, ""
    if low > limit:
        more = _of_a_cap(measured.conditions)
        if (measured.interference or 0.0) > BUSY:
            more = "Others had the core meanwhile: stop what else runs, and measure again."
        verdict = Outcome.INCONCLUSIVE if more else Outcome.FAILED
    elif high > limit:
        verdict, more = Outcome.INCONCLUSIVE, "Its processes differ by more than what is left."
    elif measured.inferences < fewest:
        few = f"{count(measured.inferences, 'inference')} of a process"
        verdict = Outcome.INCONCLUSIVE
        more = f"{few} are too few to tell: at least {fewest} are needed. {MORE_TIME}"
    text = f"{told} {more}".rstrip()
    return Check(metric, verdict, text, new=now, unit="ms", interval=interval, limit=limit)


def check_sustained(measured: CaseResult, limits: Limits, asked: bool) -> Iterator[Check]:
    """The last minute under load against the first; nothing where nobody asked for it."""
    found, limit = measured.sustained, limits.max_sustained_loss
    metric = f"loss under load ({measured.arm})"
    if found is not None:
        yield _check_loss(metric, found, limit)
    elif asked or limit is not None:
        problem = untimed(metric, measured) if measured.emulated else None
        text = problem.message if problem else "Say for how long: --sme2-budget sustain=5m."
        yield Check(metric, Outcome.NOT_MEASURED, text, limit=limit)


def _check_loss(metric: str, found: Sustained, limit: float | None) -> Check:
    loss, told = loss_under_load(found), load_text(found)
    if loss is None:
        return Check(metric, Outcome.INCONCLUSIVE, told, unit="share", limit=limit)
    value, low, high = loss
    verdict = Outcome.PASS
    if limit is not None:
        told += f" At most {as_given(limit)} % may be."
        if low > limit:
            verdict = Outcome.FAILED
        elif high > limit or found.ended:
            verdict = Outcome.INCONCLUSIVE
    return Check(metric, verdict, told, None, value, "share", (low, high), limit)


def loss_under_load(found: Sustained) -> tuple[float, float, float] | None:
    """The part of the first minute's speed that the last one lacks, and where it lies; None where
    both are too short to tell.
    """
    first, last = map(_of_processes, (found.first, found.last))
    low, high = (_shift_rank(len(first), len(last), error) for error in (ALARM, ACQUITTAL))
    if not low:
        return None
    left = sorted((early / late for early in first for late in last), reverse=True)
    return 1 - statistics.median(left), 1 - left[low - 1], 1 - left[-high]


def _of_processes(moments: Sequence[Moment]) -> list[float]:
    """What an inference takes in each process: its moments share its place in memory and caches,
    so they would count as one observation several times.
    """
    by_process: dict[int, list[float]] = {}
    for each in moments:
        by_process.setdefault(each.process, []).append(each.mean_ns)
    return [*map(statistics.fmean, by_process.values())]


def _shift_rank(one: int, other: int, error: float) -> int:
    """The largest r so that, of all ratios of ``one`` value with an ``other``, the r-th is beyond
    the factor by which the two sides differ no more often than that (Mann and Whitney).
    """
    rank, likely = 0, 1 / math.comb(one + other, one)
    while likely <= error:
        rank += 1
        likely += _orders(one, other, rank) / math.comb(one + other, one)
    return rank


@cache
def _orders(one: int, other: int, swapped: int) -> int:
    """How many orders of the values of two sides have so many pairs the wrong way round."""
    if swapped < 0 or not (one and other):
        return int(swapped == 0)
    return _orders(one - 1, other, swapped - other) + _orders(one, other - 1, swapped)


def load_text(found: Sustained) -> str:
    """What a user gets after minutes, and what the device did meanwhile, in sentences."""
    lasted, loss = f"{found.seconds / 60:.1f} min under load", loss_under_load(found)
    early = f" (ended by {found.ended})" if found.ended else ""
    if loss is None:
        return f"{lasted}{early} are too short to compare their begin with their end."
    part = "minute" if found.seconds >= 3 * FIRST_MINUTE else "third"
    sides = (found.first, found.last)
    begin, end = (statistics.median(each.mean_ns for each in side) / 1e6 for side in sides)
    lost, low, high = (f"{100 * share:.1f}" for share in loss)
    text = (
        f"{lasted}{early}, an inference takes {begin:.3f} ms in the first {part} and {end:.3f} ms "
        f"in the last: {lost} % [{low}, {high}] of the speed is lost"
    )
    heat = [each.celsius for each in found.moments if each.celsius is not None]
    caps = [each.cap_ghz for each in found.moments if each.cap_ghz is not None]
    device = [f"{heat[0]:.0f} to {heat[-1]:.0f} °C"] if heat else []
    device += [f"highest clock {caps[0]:.2f} to {caps[-1]:.2f} GHz"] if caps else []
    return f"{text} ({', '.join(device)})." if device else f"{text}."


SAME_SPEED = 0.05
"""How far the yardstick's time may be from what it was before a stored time is in doubt."""

IT_IS_THE_MACHINE = (
    "Program, inputs and runtime are the baseline's own, byte for byte: it is the machine that "
    "differs."
)
UNEXPLAINED = (
    "Program, inputs and runtime are the baseline's own, byte for byte, and nothing measured "
    "explains the difference."
)
FOR_GOOD = "Measure again. If the machine has changed for good, store it with --update-baselines."
SIGN_TEST_LEVEL = 0.011
"""One of ten pairs beyond the limit still says that most are not."""
OTHER_INPUTS = "The inputs are not those of the baseline."
DECIDE_HINT = (
    "Pairs decide it: keep what the baseline measured (sme2 bundle), or name it with --against."
)


def untimed(metric: str, measured: CaseResult) -> Check | None:
    """The verdict where a time must not be compared at all."""
    if measured.emulated:
        message = (
            "Emulated times say nothing about hardware and are never compared. "
            "Choose a real device with --device."
        )
    elif measured.throttled_pairs:
        message = too_hot(measured.throttled_pairs)
    else:
        return None
    return Check(metric, Outcome.INVALID, message)


def _of_a_cap(conditions: Mapping[str, str]) -> str:
    """A sentence where a cap moved meanwhile, as stock phones move it: what takes turns shares the
    clock, and so do ratios; a time alone does not say whose it is.
    """
    said = conditions.get(MOVED_CAP, "")
    return f"{said[:1].upper()}{said[1:]}." if said else ""


Times = Mapping[Arm, Sequence[float]]
TimesOf = Callable[[CaseResult | BaselineSession], Times | None]


def check_latency(
    measured: CaseResult, baseline: Baseline | None, limits: Limits, arm: Arm = Arm.ON
) -> Check:
    """The process medians of one arm against the sessions of the baseline."""
    limit = limits.max_regression
    return _against_sessions("latency", lambda of: of.medians_ns, measured, baseline, limit, arm)


def check_phases(
    measured: CaseResult, baseline: Baseline | None, limits: Limits, arm: Arm
) -> list[Check]:
    """The phases of a generation on one arm against the sessions; none where none was timed."""
    phases = {} if measured.generation is None else measured.generation.phases_ns
    given = (measured, baseline, limits.max_regression, arm)
    return [
        _against_sessions(f"{phase} latency", partial(_phase_times, phase), *given)
        for phase in phases
    ]


def _phase_times(phase: str, of: CaseResult | BaselineSession) -> Times | None:
    found = of.generation if isinstance(of, CaseResult) else of
    return None if found is None else found.phases_ns.get(phase)


def check_load(
    measured: CaseResult, baseline: Baseline | None, limits: Limits, arm: Arm = Arm.ON
) -> Check:
    """The load times of one arm's processes against the sessions of the baseline."""
    limit = limits.max_load_growth
    return _against_sessions("load time", lambda of: of.loads_ns, measured, baseline, limit, arm)


def _against_sessions(
    figure: str,
    times_of: TimesOf,
    measured: CaseResult,
    baseline: Baseline | None,
    limit: float,
    arm: Arm,
) -> Check:
    metric, new = f"{figure} ({arm})", (times_of(measured) or {}).get(arm, ())
    problem = untimed(metric, measured)
    if problem is not None:
        return problem
    if not new:
        return Check(metric, Outcome.INVALID, "It was not measured.", limit=limit)
    refused = partial(Check, metric, new=statistics.median(new), unit="ns", limit=limit)
    current = () if baseline is None else baseline.current(measured.threads)
    found = [(session, (times_of(session) or {}).get(arm, ())) for session in current]
    timed = [(session, values) for session, values in found if values]
    sessions = [values for _, values in timed]
    if not sessions:
        return refused(
            Outcome.NO_BASELINE,
            f"No baseline for {count(measured.threads, 'thread')} on this target. {CREATE_HINT}",
        )
    if len(new) < FEWEST_PROCESSES:
        return refused(
            Outcome.INVALID,
            f"Only {len(new)} of at least {FEWEST_PROCESSES} processes were measured before the "
            f"time limit. {MORE_TIME}",
        )
    centre, old = statistics.median(new), statistics.median(map(statistics.median, sessions))
    interval = session_interval(new, sessions)
    machine = Machine(measured, current)
    same, head, advice = same_work(measured, current), "", ""
    # The noise of this session excuses a suspicion, and makes no PASS of what cannot be seen.
    drawn = [centre] * FEWEST_PROCESSES if same else new
    least = max(
        1 + limit, largest_by_chance(drawn, sessions, [entry.yardstick_ns for entry, _ in timed])
    )
    if same:
        verdict, remark = machine.judge_same_work(centre / old, interval, limit, least)
    else:
        verdict = machine.judge_other_code(centre / old, interval, limit, least)
        head = "Suspected regression: " if verdict is Outcome.INVALID else ""
        advice = _ADVICE.get(verdict, "")
        inputs = "" if same_inputs(measured, current) else OTHER_INPUTS
        remark = f"{inputs} {machine.doubt()}".strip()
    if figure == "latency" and verdict is not Outcome.PASS:
        # What a changed time is made of, where both mean clocks are known.
        then, now = (mean_clock(entry.conditions, arm) for entry in (current[-1], measured))
        if then and now:
            remark = f"{cycles_or_clock(centre / old, now / then)} {remark}"
    told = _time_message(head, centre / old, len(sessions))
    message = " ".join(filter(None, (told, advice, remark)))
    return Check(metric, verdict, message, old, centre, "ns", interval, limit)


@dataclass(frozen=True)
class Machine:
    """What is known of the machine now, and when the sessions were stored.

    Programs feel a neighbour or a lower clock more or less than the yardstick does. So where the
    yardstick is off by more than SAME_SPEED, up to twice as much (as a logarithm) is allowed for.
    """

    measured: CaseResult
    sessions: Sequence[BaselineSession]

    @property
    def speed(self) -> float | None:
        """The yardstick's time now over its time then."""
        then = [entry.yardstick_ns for entry in self.sessions if entry.yardstick_ns is not None]
        if self.measured.yardstick_ns is None or not then:
            return None
        return self.measured.yardstick_ns / statistics.median(then)

    @property
    def busy(self) -> float:
        """By which factor others slow it down."""
        interference = self.measured.interference or 0.0
        return 1 + interference if interference > BUSY else 1.0

    @property
    def was_busy(self) -> float:
        """By which factor they did when the sessions were stored by force."""
        return 1 + max((session.interference or 0.0 for session in self.sessions), default=0.0)

    @property
    def moved(self) -> str:
        """That a cap moved, now or when a session was stored; empty where none did."""
        conditions = (self.measured.conditions, *(entry.conditions for entry in self.sessions))
        return next(filter(None, map(_of_a_cap, conditions)), "")

    @property
    def off(self) -> bool:
        return not 1 / (1 + SAME_SPEED) <= (self.speed or 1.0) <= 1 + SAME_SPEED

    @property
    def doubtful(self) -> bool:
        """Whether it is so far from what it was that a stored time needs a second opinion."""
        return self.off or self.busy > 1 or self.was_busy > 1 or bool(self.moved)

    def judge_same_work(
        self, ratio: float, interval: tuple[float, float], limit: float, least: float
    ) -> tuple[Outcome, str]:
        """The program cannot have got slower. Where the times did, the machine has changed, if what
        was measured of it agrees, and that is no reason to stop anybody; otherwise what was
        measured is unknown.
        """
        found = judge(*interval, limit)
        if found is Outcome.PASS:
            return found, ""
        if found is not Outcome.REGRESSED and ratio <= least:
            return Outcome.PASS, IT_IS_THE_MACHINE
        if found is Outcome.INCONCLUSIVE:
            return found, f"{IT_IS_THE_MACHINE} {FOR_GOOD}"
        # Programs may feel it up to twice as much, however little it is.
        slower = max(1.0, self.speed or 1.0) ** 2 * self.busy
        beyond = judge(interval[0] / slower, interval[1] / slower, limit) is Outcome.REGRESSED
        unknown = beyond and not self.moved
        found, words = (
            (Outcome.INVALID, UNEXPLAINED) if unknown else (Outcome.INCONCLUSIVE, IT_IS_THE_MACHINE)
        )
        return found, f"{words} {FOR_GOOD} {self.differences()}"

    def judge_other_code(
        self, ratio: float, interval: tuple[float, float], limit: float, least: float
    ) -> Outcome:
        """What a stored time says about a program or a runtime that is not the one it was taken
        with.

        Whatever the machine itself can explain is taken off first. A stored time that is in doubt
        never gives a PASS. Nothing is suspected below the ratio ``least``.
        """
        speed = self.speed or 1.0
        bound = speed**2 if self.off else speed
        lowest, highest = min(1.0, bound) / self.was_busy, max(1.0, bound) * self.busy
        # Who was busy then was slower for the same reason: that must not count twice.
        likely = self.busy * (speed if self.was_busy == 1 else min(speed, 1 / self.was_busy))
        found = judge(interval[0] / highest, interval[1] / lowest, limit)
        unsure = (Outcome.PASS, Outcome.IMPROVED, *((Outcome.REGRESSED,) if self.moved else ()))
        if self.doubtful and found in unsure:
            found = Outcome.INCONCLUSIVE
        return suspect(found, ratio / likely > least)

    def doubt(self) -> str:
        """Why a stored time is in doubt, in words; empty where it is not."""
        told = f"{self._told()} A stored time alone does not decide now."
        return told if self.doubtful else ""

    def differences(self) -> str:
        """What is known to differ between the machine then and now."""
        then = self.sessions[-1].conditions
        changed = [
            f"{name} {then[name]!r} then, {value!r} now"
            for name, value in sorted(self.measured.conditions.items())
            if then.get(name, value) != value
        ]
        told = [self._told(), f"What differs: {'; '.join(changed)}." if changed else ""]
        return " ".join(filter(None, told)) or "Nothing is known that could explain it."

    def _told(self) -> str:
        sentences = [self.moved] if self.moved else []
        speed, now = self.speed, self.measured.yardstick_ns
        if speed is not None and now is not None:
            change, word = (speed - 1, "slower") if speed > 1 else (1 / speed - 1, "faster")
            sentences.append(
                f"The machine itself is {change:.0%} {word} than it was: a program that never "
                f"changes took {now / 1e3:.0f} us, and {now / speed / 1e3:.0f} us then."
            )
        if self.busy > 1:
            sentences.append(
                f"The machine is busy: wall time is {self.measured.interference:.0%} over CPU time "
                "in the usual process."
            )
        if self.was_busy > 1:
            sentences.append(
                f"The machine was busy when the baseline was stored: wall time was "
                f"{self.was_busy - 1:.0%} over CPU time. Store it again on an idle machine."
            )
        return " ".join(sentences)


def can_be_paired(measured: CaseResult, sessions: Sequence[BaselineSession]) -> bool:
    """Whether pairs of the old program and the new one say more than the stored times."""
    return same_inputs(measured, sessions) and not same_work(measured, sessions)


def same_inputs(measured: CaseResult, sessions: Sequence[BaselineSession]) -> bool:
    """Whether times may be compared at all: pairs of two programs say nothing about the inputs."""
    return bool(sessions) and sessions[-1].inputs == measured.inputs


_ADVICE = {
    Outcome.REGRESSED: UPDATE_HINT,
    Outcome.IMPROVED: "Keep it with --update-baselines.",
    Outcome.INVALID: DECIDE_HINT,
    Outcome.INCONCLUSIVE: DECIDE_HINT,
}


def _time_message(head: str, ratio: float, sessions: int) -> str:
    change = f"{abs(ratio - 1):.1%} {'slower' if ratio > 1 else 'faster'} than the baseline"
    note = ""
    if sessions < PROVISIONAL_SESSIONS:
        note = (
            f" (provisional: {sessions} of {PROVISIONAL_SESSIONS} sessions; "
            "run --update-baselines again at another time)"
        )
    if head and ratio < 1:
        note += ", but less so than the machine itself may be"
    return f"{head}{change}{note}."


def check_against(measurement: PairedTiming, limits: Limits, arm: Arm | None = None) -> Check:
    """Two programs or runtimes measured in interleaved pairs: the answer that needs no baseline."""
    reference, limit = measurement.reference, limits.max_regression
    interval, decision = measurement.interval, measurement.decision
    if decision is not None and decision.threshold == limit:
        found = decision.outcome
    else:
        found = Outcome.INCONCLUSIVE if interval is None else judge(*interval, limit)
    verdict = suspect(found, measurement.ratio > 1 + limit)
    change = measurement.ratio - 1
    word = "slower" if change > 0 else "faster"
    pairs = count(len(measurement.pairs), "interleaved pair")
    message = f"{abs(change):.1%} {word} than {reference} over {pairs}."
    if measurement.clock_ratio is not None:
        message += f" {cycles_or_clock(measurement.ratio, measurement.clock_ratio)}"
    if measurement.preempted:
        message += f" {_others_had_the_core(measurement)}"
    if measurement.throttled_pairs:
        verdict, message = Outcome.INVALID, too_hot(measurement.throttled_pairs)
    elif measurement.cut_short and found is Outcome.INCONCLUSIVE:
        verdict = Outcome.INVALID
        message = (
            f"The time limit ended the measurement after {measurement.seconds:.0f} s, before there "
            f"were enough pairs for a verdict. So far: {message} {MORE_TIME}"
        )
    elif verdict in (Outcome.INVALID, Outcome.INCONCLUSIVE):
        verdict, message = left_open(verdict, message, interval, limit)
    elif measurement.preempted and verdict in (Outcome.PASS, Outcome.IMPROVED):
        verdict, more = _by_the_wall(measurement, limit, verdict)
        message += more
    old, _ = _medians(measurement)
    # The ratio is that of the pairs: that of the medians may lie beyond its interval.
    new = old * measurement.ratio
    metric = metric_against("latency", reference, arm)
    return Check(metric, verdict, message, old, new, "ns", interval, limit)


def _others_had_the_core(measurement: PairedTiming) -> str:
    """That the figure is of CPU time, and what the clock on the wall says.

    A slowdown must not get lost in the noise of a shared core. But CPU time never acquits: waiting
    is not CPU time, and it is latency.
    """
    before, now = _medians(measurement)
    return (
        "Other processes had the core in nearly every round, so this is CPU time; wall time, which "
        f"is theirs, too, changed by {now / before - 1:+.0%}."
    )


def _by_the_wall(measurement: PairedTiming, limit: float, found: Outcome) -> tuple[Outcome, str]:
    """What becomes of an acquittal by CPU time: wall time has to agree, pair by pair.

    A program that waits shows itself in every pair; others strike either arm.
    """
    pairs = len(measurement.pairs)
    beyond = sum(pair.candidate_ns > (1 + limit) * pair.reference_ns for pair in measurement.pairs)
    again = " Stop what else runs, and measure again."
    if beyond == pairs:
        return Outcome.INVALID, f" Does it wait for something?{again}"
    chance = sum(math.comb(pairs, few) for few in range(beyond + 1)) / 2**pairs
    return (found, "") if chance <= SIGN_TEST_LEVEL else (Outcome.INCONCLUSIVE, again)


def _medians(measurement: PairedTiming) -> tuple[float, float]:
    """By the wall: the reference's and the candidate's."""
    return (
        statistics.median(pair.reference_ns for pair in measurement.pairs),
        statistics.median(pair.candidate_ns for pair in measurement.pairs),
    )


def in_doubt(stored: Check) -> bool:
    """Whether a stored time alone does not decide, where pairs can be measured."""
    return stored.interval is not None and stored.verdict not in PASSING


def stored_or_paired(stored: Check, paired: Check) -> Check:
    """A stored time and the pairs that were measured because of it, as one answer.

    Pairs decide. Where they cannot tell, they must not hide what the stored time was sure of.
    """
    unsure = (Outcome.INCONCLUSIVE, Outcome.INVALID)
    if stored.verdict is Outcome.REGRESSED and paired.verdict in unsure:
        return replace(stored, message=f"{stored.message} Pairs did not decide: {paired.message}")
    return paired
