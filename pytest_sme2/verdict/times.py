"""Latency and load time: compared on the same target only, never emulated."""

from __future__ import annotations

import statistics
from collections.abc import Callable, Sequence

from pytest_sme2.results import (
    Arm,
    Baseline,
    BaselineSession,
    CaseResult,
    Check,
    Limits,
    Outcome,
    PairedTiming,
)
from pytest_sme2.verdict.baselines import differing_facts
from pytest_sme2.verdict.judging import CREATE_HINT, UPDATE_HINT, judge
from pytest_sme2.verdict.stored_latency import PROVISIONAL_SESSIONS, session_interval

SAME_SPEED = 0.05
"""How far the yardstick's time may be from what it was: within it, the machine is as it was."""
BUSY = 0.05
"""Wall time over CPU time, less 1: above it, something else had the core so often that a latency
measured at another time cannot be compared. Interleaved pairs share such times and still can."""
PROVISIONAL_MARGIN = 0.10
"""A single session knows nothing of the spread between sessions; a slowdown that it alone speaks
for must be larger than sessions are known to differ."""

SAME_CODE = (
    "Program and runtime are the baseline's own, byte for byte: it is the machine that differs."
)


def untimed(metric: str, measured: CaseResult) -> Check | None:
    """The verdict where a time must not be compared at all."""
    if measured.emulated:
        return Check(
            metric,
            Outcome.INVALID,
            "Emulated times say nothing about hardware and are never compared. "
            "Choose a device that can vouch for timing.",
        )
    return None


def check_latency(
    measured: CaseResult, baseline: Baseline | None, limits: Limits, arm: Arm | None = None
) -> Check:
    """The process medians of one arm against the sessions of the baseline."""
    arm = measured.arm if arm is None else arm
    return _against_sessions(
        f"latency ({arm})",
        measured,
        baseline,
        new=(measured.medians_ns or {}).get(arm, ()),
        of=lambda session: session.medians_ns.get(arm, ()),
        limit=limits.max_regression,
    )


def check_load(
    measured: CaseResult, baseline: Baseline | None, limits: Limits, arm: Arm | None = None
) -> Check:
    """The load times of one arm's processes against the sessions of the baseline."""
    arm = measured.arm if arm is None else arm
    return _against_sessions(
        f"load time ({arm})",
        measured,
        baseline,
        new=(measured.loads_ns or {}).get(arm, ()),
        of=lambda session: session.loads_ns.get(arm, ()),
        limit=limits.max_load_growth,
    )


def _against_sessions(
    metric: str,
    measured: CaseResult,
    baseline: Baseline | None,
    *,
    new: Sequence[float],
    of: Callable[[BaselineSession], Sequence[float]],
    limit: float,
) -> Check:
    problem = untimed(metric, measured)
    if problem is not None:
        return problem
    if not new:
        return Check(metric, Outcome.INVALID, "It was not measured.", limit=limit)
    centre = statistics.median(new)
    differing = (
        () if baseline is None else differing_facts(baseline.fingerprint, measured.fingerprint)
    )
    if baseline is not None and baseline.sessions and differing:
        return Check(
            metric,
            Outcome.INVALID,
            f"The baseline is of another target ({'; '.join(differing)}), so times are not "
            "compared.",
            new=centre,
            unit="ns",
            limit=limit,
        )
    current = () if baseline is None else baseline.current(measured.threads)
    sessions = [tuple(of(session)) for session in current if of(session)]
    if not sessions:
        return Check(
            metric,
            Outcome.NO_BASELINE,
            f"No baseline for {measured.threads} thread(s) on this target. {CREATE_HINT}",
            new=centre,
            unit="ns",
            limit=limit,
        )
    old = statistics.median(value for session in sessions for value in session)
    low, high = session_interval(new, sessions)
    verdict = judge(low, high, limit)
    provisional = len(sessions) < PROVISIONAL_SESSIONS
    if provisional and verdict is Outcome.REGRESSED and low <= 1 + PROVISIONAL_MARGIN:
        verdict = Outcome.INCONCLUSIVE
    remark = unlike(measured, current)
    if remark is not None and verdict in (Outcome.REGRESSED, Outcome.IMPROVED):
        verdict = Outcome.INCONCLUSIVE
    if provisional and verdict is Outcome.IMPROVED and high >= 1 / (1 + PROVISIONAL_MARGIN):
        verdict = Outcome.PASS
    if verdict is not Outcome.PASS and same_code(measured, current):
        verdict, remark = Outcome.PASS, SAME_CODE
    return Check(
        metric,
        verdict,
        _time_message(centre / old, len(sessions), verdict)
        + (f" {remark}" if remark is not None else ""),
        old=old,
        new=centre,
        unit="ns",
        interval=(low, high),
        limit=limit,
    )


def same_code(measured: CaseResult, sessions: Sequence[BaselineSession]) -> bool:
    """Whether the last of the sessions ran this very program on this very runtime."""
    now = measured.pte_sha256, measured.runtime
    return all(now) and bool(sessions) and (sessions[-1].program, sessions[-1].runtime) == now


def unlike(measured: CaseResult, sessions: Sequence[BaselineSession]) -> str | None:
    """Why the machine is not as it was, in one sentence; None where nothing speaks for that."""
    if (measured.interference or 0.0) > BUSY:
        return (
            f"The machine was busy (wall time {measured.interference:.0%} over CPU time in the "
            "usual process), so a stored latency proves nothing."
        )
    then = [session.yardstick_ns for session in sessions if session.yardstick_ns is not None]
    if measured.yardstick_ns is None or not then:
        return None
    speed = measured.yardstick_ns / statistics.median(then)
    if 1 / (1 + SAME_SPEED) <= speed <= 1 + SAME_SPEED:
        return None
    change, word = (speed - 1, "slower") if speed > 1 else (1 / speed - 1, "faster")
    return (
        f"The machine itself is {change:.0%} {word} than it was: a program that never changes took "
        f"{measured.yardstick_ns / 1e3:.0f} us, and {statistics.median(then) / 1e3:.0f} us then. "
        "A stored latency proves nothing now."
    )


def _time_message(ratio: float, sessions: int, verdict: Outcome) -> str:
    change = f"{abs(ratio - 1):.1%} {'slower' if ratio > 1 else 'faster'} than the baseline"
    note = ""
    if sessions < PROVISIONAL_SESSIONS:
        note = (
            f" (provisional: {sessions} of {PROVISIONAL_SESSIONS} sessions; "
            "run --update-baselines again at another time)"
        )
    advice = {
        Outcome.REGRESSED: f" {UPDATE_HINT}",
        Outcome.IMPROVED: " Keep it with --update-baselines.",
        Outcome.INCONCLUSIVE: " Measure longer (--budget), or decide it with --against.",
    }.get(verdict, "")
    return f"{change}{note}.{advice}"


def check_against(measurement: PairedTiming, limits: Limits) -> Check:
    """Two programs or runtimes measured in interleaved pairs: the answer that needs no baseline."""
    metric = f"latency against {measurement.reference}"
    limit = limits.max_regression
    interval = measurement.interval
    decision = measurement.decision
    if decision is not None and decision.threshold == limit:
        verdict = decision.outcome
    else:
        verdict = Outcome.INCONCLUSIVE if interval is None else judge(*interval, limit)
    change = measurement.ratio - 1
    word = "slower" if change > 0 else "faster"
    advice = " Measure longer (--budget)." if verdict is Outcome.INCONCLUSIVE else ""
    return Check(
        metric,
        verdict,
        f"{abs(change):.1%} {word} than {measurement.reference} over {len(measurement.pairs)} "
        f"interleaved pairs.{advice}",
        old=statistics.median(pair.reference_ns for pair in measurement.pairs),
        new=statistics.median(pair.candidate_ns for pair in measurement.pairs),
        unit="ns",
        interval=interval,
        limit=limit,
        p_value=None if decision is None else decision.p_value,
    )
