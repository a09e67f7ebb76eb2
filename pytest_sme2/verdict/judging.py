"""What every check needs: an interval against a limit, several verdicts against each other."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping, Sequence

from pytest_sme2.results import BLIND_MARGIN, Arm, CaseResult, Check, Estimate, Outcome, Verdict
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


def verdict(measured: CaseResult, checks: Sequence[Check]) -> Verdict:
    """The checks of one model and variant, and what they come to."""
    target, outcome = measured.fingerprint.target, combine(checks)
    return Verdict(measured.model, measured.variant, target, outcome, tuple(checks))


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
