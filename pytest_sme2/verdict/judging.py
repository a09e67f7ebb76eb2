"""What every check needs: an interval against a limit, several verdicts against each other; and
where the ratio of a session over stored ones lies, and which sessions belong together. Pure.
"""

from __future__ import annotations

import math
import re
import statistics
from collections.abc import Mapping, Sequence

from pytest_sme2.results.case import RUNTIME, BaselineSession, CaseResult, Check
from pytest_sme2.results.run import Arm
from pytest_sme2.results.timing import BLIND_MARGIN, Estimate, Outcome
from pytest_sme2.system.wording import count

UPDATE_HINT = "If that is intended, accept it with --update-baselines."
CREATE_HINT = "Make one with --update-baselines."
MORE_TIME = "Give more time (--sme2-budget TIME,LIMIT), or measure a smaller input."

# The first that occurs decides: a regression must not hide behind a check that could not be made.
_ORDER = (
    Outcome.REGRESSED,
    Outcome.FAILED,
    Outcome.INVALID,
    Outcome.INCONCLUSIVE,
    Outcome.NO_BASELINE,
    Outcome.IMPROVED,
    Outcome.PASS,
    Outcome.NOT_MEASURED,
)
_EVIDENCE = "evidence"


def combine(checks: Sequence[Check]) -> Outcome:
    """What the checks come to together. Without valid evidence nothing else means anything."""
    if not checks:
        raise ValueError("No check was made, so there is nothing to pass.")
    if any(check.metric == _EVIDENCE and check.verdict is Outcome.INVALID for check in checks):
        return Outcome.INVALID
    return min((check.verdict for check in checks), key=_ORDER.index)


SURE = (Outcome.REGRESSED, Outcome.FAILED)
FAILING = (*SURE, Outcome.INVALID)
"""These fail a test."""
WARNING = (Outcome.INCONCLUSIVE,)
"""These warn; with --sme2-strict they fail."""
PASSING = (Outcome.PASS, Outcome.IMPROVED)
UNCHECKED = (Outcome.NO_BASELINE, Outcome.NOT_MEASURED)
"""These say nothing: a test that found nothing else is skipped."""


def failing(checks: Sequence[Check], *, strict: bool) -> list[Check]:
    """Those that fail a test. One without a baseline does not: all of them are told at the end."""
    weak = WARNING if strict else ()
    return [check for check in checks if check.verdict in (*FAILING, *weak)]


def is_sure(check: Check) -> bool:
    """Whether a check that failed says that the case is bad, and not just that nobody can tell."""
    return check.verdict in SURE or check.metric == _EVIDENCE


# Outputs are compared "against off" or "against reference", which are not versions.
_AGAINST = re.compile(
    r"((prefill |decode )?latency|cost|operators)( \((on|off)\))? against (?P<reference>.+)"
)


def metric_against(what: str, reference: str, arm: Arm | None = None) -> str:
    """The name of a check that compares with another version; ``arm`` where several are."""
    return f"{what}{'' if arm is None else f' ({arm})'} against {reference}"


def reference_of(metric: str) -> str | None:
    """The version that a check of this name compares with; None where it is another check."""
    named = _AGAINST.fullmatch(metric)
    return None if named is None else named["reference"]


def judge(low: float, high: float, limit: float) -> Outcome:
    """A ratio of new over old, known to lie between ``low`` and ``high``, against a growth.

    Where the answer is INCONCLUSIVE, ``suspect`` says what the estimate makes of it.
    """
    if low > 1 + limit:
        return Outcome.REGRESSED
    if high < 1 / (1 + limit):
        return Outcome.IMPROVED
    return Outcome.PASS if high <= 1 + limit else Outcome.INCONCLUSIVE


def suspect(outcome: Outcome, beyond: bool) -> Outcome:
    """To know nothing is not to pass: INCONCLUSIVE is INVALID if the estimate is ``beyond`` the
    limit. Every other outcome stays as it is.
    """
    return Outcome.INVALID if beyond and outcome is Outcome.INCONCLUSIVE else outcome


def left_open(
    verdict: Outcome, message: str, interval: tuple[float, float] | None, limit: float
) -> tuple[Outcome, str]:
    """What the verdict of pairs comes to where they leave the answer open, and what to do then."""
    longer = "Measure longer (--sme2-budget)."
    if verdict is Outcome.INVALID:
        return verdict, f"Suspected regression: {message} {longer}"
    if verdict is not Outcome.INCONCLUSIVE:
        return verdict, message
    if interval is not None and interval[1] <= 1 + limit + BLIND_MARGIN:
        return verdict, f"{message} {longer}"
    what = "a slowdown" if interval is None else f"{interval[1] - 1:.1%} slower"
    return Outcome.INVALID, (
        f"The machine is too noisy for a verdict: {what} cannot be ruled out. "
        f"So far: {message} Measure on an idle machine, or longer (--sme2-budget)."
    )


def estimate_text(estimate: Estimate) -> str:
    """``1.85x [1.71, 2.02]``; ``1.85x (1 pair)`` where there are too few for an interval."""
    if math.isinf(estimate.high):
        return f"{estimate.value:.2f}x ({count(estimate.pairs, 'pair')})"
    return f"{estimate.value:.2f}x [{estimate.low:.2f}, {estimate.high:.2f}]"


MEAN_CLOCK = "mean clock ({})"
"""The name of the condition that has an arm's mean clock, as in ``3.521 GHz``."""


MOVED_CAP = "moved clock cap"
"""The condition that a core's highest clock was another one than at the session's start."""


def mean_clock(conditions: Mapping[str, str], arm: Arm) -> float | None:
    """An arm's mean clock in GHz; None where it is not among the conditions."""
    text = conditions.get(MEAN_CLOCK.format(arm), "")
    found = re.fullmatch(r"([0-9]{1,3}\.[0-9]{3}) GHz", text)
    return float(found[1]) or None if found else None


def cycles_or_clock(ratio: float, clock: float) -> str:
    """What a changed time is made of; ``clock`` is the new mean clock over the old one."""
    cycles = ratio * clock
    more, higher = "more" if cycles >= 1 else "fewer", "higher" if clock > 1 else "lower"
    return (
        f"It takes {abs(cycles - 1):.1%} {more} cycles (the program), and its clock is "
        f"{abs(clock - 1):.1%} {higher} (the device)."
    )


def too_hot(pairs: int) -> str:
    """Why pairs of a device that throttled give no verdict."""
    return (
        f"The device slowed itself down, against heat or by another highest clock, in "
        f"{count(pairs, 'measured pair')}, so the times say nothing about the program. Let it cool "
        "down, out of its case and away from a fast charger, and measure again."
    )


# Quantiles of Student's distribution, by its degrees of freedom: with more it is narrower. A test
# holds them against scipy, which is too large for this.
SESSION_QUANTILES = (
    12.7062, 4.30265, 3.18245, 2.77645, 2.57058, 2.44691, 2.36462, 2.306, 2.26216, 2.22814,
    2.20099, 2.17881, 2.16037, 2.14479, 2.13145, 2.11991, 2.10982, 2.10092, 2.09302, 2.08596,
)  # fmt: skip
"""0.975: a new session of the same program lies in its interval 95 times of a hundred."""
RARE_QUANTILES = (
    63.6567, 9.92484, 5.84091, 4.60409, 4.03214, 3.70743, 3.49948, 3.35539, 3.24984, 3.16927,
    3.10581, 3.05454, 3.01228, 2.97684, 2.94671, 2.92078, 2.89823, 2.87844, 2.86093, 2.84534,
)  # fmt: skip
"""0.995: so often a new session of the same program lies below what ``largest_by_chance`` gives."""
FEWEST_PROCESSES = 3
PROVISIONAL_SESSIONS = 3
"""With fewer sessions the spread between them is not known, so a latency is provisional."""
USUAL_SPREAD = 0.005
"""How far sessions of one program are expected to differ before two have been seen. It weighs as
much as one session; each further one makes the machine's own spread count more."""
CAUTIOUS_SPREAD, CAUTION = 0.009, 14
"""For that, sessions are expected to differ by more. That weighs as much as so many sessions while
there is one, and less with each. With these, at most one in a hundred is above where sessions
differ by up to 3 %, most of which the yardstick feels as well (benchmarks.simulated_gate)."""
EPOCH_SHIFT = 0.05
"""An accepted latency that surely lies further off than this starts an epoch of its own: averaging
it with what it replaces would describe neither."""
DIGITS = 5
"""Of a stored time: a hundredth of a percent, which no machine repeats."""


def session_interval(
    new: Sequence[float], sessions: Sequence[Sequence[float]]
) -> tuple[float, float]:
    """Where the ratio of a new session over the old ones lies.

    Two kinds of chance play a part. Within a session, processes differ: the errors of the medians.
    Between sessions the machine itself differs (heat, memory layout). How much is estimated from
    the sessions together with USUAL_SPREAD, so that one session has a wide interval, and every
    further session that agrees makes it narrower.
    """
    centres = [math.log(statistics.median(session)) for session in sessions]
    count = len(centres)
    shift = math.log(statistics.median(new)) - statistics.median(centres)
    pooled = [
        math.log(value) - centre
        for session, centre in zip(sessions, centres, strict=True)
        for value in session
    ]
    inside = math.hypot(_median_error([math.log(value) for value in new]), _median_error(pooled))
    squares = USUAL_SPREAD**2 + (count - 1) * (statistics.variance(centres) if count > 1 else 0)
    between = math.sqrt(squares / count * (1 + 1 / count))
    half = _of(SESSION_QUANTILES, count) * math.hypot(between, inside)
    return math.exp(shift - half), math.exp(shift + half)


def largest_by_chance(
    new: Sequence[float],
    sessions: Sequence[Sequence[float]],
    yardsticks: Sequence[float | None],
) -> float:
    """How many times longer than the old sessions a new one of the same program may take.

    What each session's yardstick felt is taken off before they are compared.
    """
    known = [value for value in yardsticks if value is not None]
    machine = known if len(known) == len(sessions) else [1.0] * len(sessions)
    levels = [
        math.log(statistics.median(session) / speed)
        for session, speed in zip(sessions, machine, strict=True)
    ]
    count = len(levels)
    caution = -(-CAUTION // count)
    freedom = caution + count - 1
    seen = (count - 1) * statistics.variance(levels) if count > 1 else 0.0
    between = (caution * CAUTIOUS_SPREAD**2 + seen) / freedom
    inside = _median_error([math.log(value) for value in new])
    spread = math.sqrt((between + inside**2) * (1 + 1 / count))
    return math.exp(_of(RARE_QUANTILES, freedom) * spread)


def _of(quantiles: Sequence[float], freedom: int) -> float:
    return quantiles[min(freedom, len(quantiles)) - 1]


def starts_epoch(
    current: Sequence[BaselineSession], measured: CaseResult, *, same_structure: bool
) -> bool:
    """Whether a new session measured something else than the ``current`` ones did.

    What was measured decides, not how long it took: another runner, version of ExecuTorch, program,
    runtime or input. Of the same bytes a session may stray as far as the machine makes it. Only
    where three sessions agree that it lies beyond their spread and beyond EPOCH_SHIFT, the machine
    has changed for good, and the old sessions no longer describe it.
    """
    if not current:
        return True
    last = current[-1]
    if (last.runner, last.executorch) != (measured.runner, measured.versions.get(RUNTIME, "")):
        return True
    then, now = (last.program, last.runtime, last.inputs), _work(measured)
    known = [pair for pair in zip(then, now, strict=True) if all(pair)]
    if any(old != new for old, new in known):
        return True
    same_bytes = len(known) == len(now)
    if not same_structure and not same_bytes:
        return True
    if same_bytes and len(current) < PROVISIONAL_SESSIONS:
        return False
    for arm, medians in (measured.medians_ns or {}).items():
        before = [entry.medians_ns[arm] for entry in current if entry.medians_ns.get(arm)]
        if before and medians:
            low, high = session_interval(medians, before)
            if low > 1 + EPOCH_SHIFT or high < 1 / (1 + EPOCH_SHIFT):
                return True
    return False


def _work(measured: CaseResult) -> tuple[str, str, str]:
    return measured.pte_sha256, measured.runtime, measured.inputs


def same_work(measured: CaseResult, sessions: Sequence[BaselineSession]) -> bool:
    """Whether the last session ran this very program on this very runtime with these inputs.

    Sessions are of one thread count, and a baseline is of one target with its settings.
    """
    if not sessions or not all(_work(measured)):
        return False
    last = sessions[-1]
    return (last.program, last.runtime, last.inputs) == _work(measured)


def _median_error(values: Sequence[float]) -> float:
    """The standard error of a median, from the median absolute deviation; infinite for so few
    values that their spread says nothing.
    """
    if len(values) < FEWEST_PROCESSES:
        return math.inf
    centre = statistics.median(values)
    deviation = 1.4826 * statistics.median(abs(value - centre) for value in values)
    return math.sqrt(math.pi / 2) * deviation / math.sqrt(len(values))


def significant(value: float, digits: int = DIGITS) -> float:
    """With so many digits; as many as a time can be measured with where none is said."""
    return float(f"{value:.{digits}g}")


def steady_speedup(old: Estimate | None, new: Estimate | None) -> Estimate | None:
    """The old one where the new one differs by noise alone."""
    # An estimate from too few pairs has no interval, and is not worth keeping.
    if new is None or not math.isfinite(new.high):
        return old
    if old is not None and new.low <= old.high and old.low <= new.high:
        return old
    value, low, high = (significant(number, 4) for number in (new.value, new.low, new.high))
    return Estimate(value, low, high, round(new.confidence, 6), new.pairs)
