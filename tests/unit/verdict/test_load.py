"""Verdicts of check_load."""

from __future__ import annotations

import pytest

from pytest_sme2.results import (
    Arm,
    Outcome,
)
from pytest_sme2.verdict import times
from tests.support.gate_examples import (
    LIMITS,
    baseline,
    measured,
    medians,
)


@pytest.mark.parametrize(
    ("milliseconds", "outcome"),
    [
        (5.0, Outcome.PASS),
        (6.15, Outcome.PASS),
        (6.25, Outcome.INCONCLUSIVE),
        (7.0, Outcome.REGRESSED),
        (3.5, Outcome.IMPROVED),
    ],
)
def test_load_verdicts(milliseconds: float, outcome: Outcome) -> None:
    now = measured(loads_ns={Arm.ON: medians(milliseconds)})
    found = times.check_load(now, baseline(), LIMITS)
    assert (found.metric, found.verdict) == ("load time (on)", outcome)
    assert times.check_load(now, None, LIMITS).verdict is Outcome.NO_BASELINE
