"""What pairs with the good change say of another one. Pure."""

from __future__ import annotations

import math
from collections.abc import Iterable

from pytest_sme2.results import Check, Outcome
from pytest_sme2.verdict.judging import metric_against

TRIES = (1, 4)
"""In time budgets: pairs that did not decide are measured once more, and longer."""


def same_as_good(good: str) -> Check:
    """Of a change that runs the same program on the same runtime: no pair is needed."""
    message = f"The program and the runtime are those of {good}, byte for byte."
    return Check(metric_against("latency", good), Outcome.PASS, message)


def is_slower(check: Check) -> bool | None:
    """None where the pairs cannot tell: such a change is neither good nor bad."""
    if check.verdict is Outcome.REGRESSED:
        return True
    return False if check.verdict in (Outcome.PASS, Outcome.IMPROVED) else None


def decided(checks: Iterable[Check], good: str, threshold: float) -> Check | None:
    """What earlier pairs with the good change said by the same measure, if they could tell."""
    wanted = (metric_against("latency", good), threshold)
    found = (check for check in checks if (check.metric, check.limit) == wanted)
    return next((check for check in found if is_slower(check) is not None), None)


def halfway(bad: Check, tolerated: float) -> float:
    """The slowdown that tells good from bad: half of what the bad end is sure to have.

    So a change is bad if it is nearer to the bad end, as with exact figures, and the pairs of a
    large slowdown decide soon.
    """
    sure = bad.interval[0] - 1 if bad.interval is not None else 0.0
    return max(tolerated, sure / 2)


def looks_needed(changes: int) -> int:
    """How many comparisons a search takes, if each one decides: the bad end, and the halving."""
    return 1 + math.ceil(math.log2(max(1, changes - 1)))
