"""An interval against a limit, and several verdicts together."""

from __future__ import annotations

import itertools
import math

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pytest_sme2.results import (
    Check,
    Estimate,
    Outcome,
)
from pytest_sme2.verdict import judging
from tests.support.gate_examples import (
    measured,
)


@pytest.mark.parametrize(
    ("verdicts", "outcome"),
    [
        (["PASS", "PASS"], "PASS"),
        (["PASS", "IMPROVED"], "IMPROVED"),
        (["IMPROVED", "NO_BASELINE"], "NO_BASELINE"),
        (["NO_BASELINE", "MACHINE_CHANGED"], "MACHINE_CHANGED"),
        (["MACHINE_CHANGED", "INCONCLUSIVE"], "INCONCLUSIVE"),
        (["INCONCLUSIVE", "SUSPECTED"], "SUSPECTED"),
        (["SUSPECTED", "REGRESSED"], "REGRESSED"),
        (["REGRESSED", "INVALID"], "INVALID"),
        (["INVALID", "PASS", "REGRESSED", "IMPROVED"], "INVALID"),
    ],
)
def test_worst_verdict_decides(verdicts: list[str], outcome: str) -> None:
    checks = [Check("x", Outcome(verdict), "") for verdict in verdicts]
    for order in itertools.permutations(checks):
        assert judging.combine(order) is Outcome(outcome)


def test_no_check_is_an_error() -> None:
    with pytest.raises(ValueError, match="nothing to pass"):
        judging.combine([])


def test_verdict_names_model_variant_and_target() -> None:
    found = judging.verdict(measured(), [Check("x", Outcome.PASS, "")])
    assert (found.model, found.variant, found.target) == ("toy_cnn", "fp16", "linux")
    assert found.outcome is Outcome.PASS


@pytest.mark.parametrize(
    ("low", "high", "outcome"),
    [
        (1.021, 1.03, Outcome.REGRESSED),
        (1.02, 1.03, Outcome.INCONCLUSIVE),
        (0.99, 1.02, Outcome.PASS),
        (0.99, 1.0201, Outcome.INCONCLUSIVE),
        (0.9, 0.979, Outcome.IMPROVED),
        (0.9, 0.981, Outcome.PASS),
    ],
)
def test_interval_against_limit(low: float, high: float, outcome: Outcome) -> None:
    assert judging.judge(low, high, 0.02) is outcome


def test_speedup_at_the_threshold_is_pass() -> None:
    assert judging.judge(0.25, 0.5, 1.0) is Outcome.PASS
    assert judging.judge(0.25, 0.4999, 1.0) is Outcome.IMPROVED


@settings(deadline=None)
@given(
    st.floats(1e-3, 1e3), st.floats(1.0, 1.5), st.floats(0, 1.0),
)  # fmt: skip
def test_larger_limit_never_gives_a_worse_verdict(low: float, width: float, limit: float) -> None:
    order = (Outcome.REGRESSED, Outcome.INCONCLUSIVE, Outcome.PASS)
    verdict = judging.judge(low, low * width, limit)
    looser = judging.judge(low, low * width, limit + 0.1)
    if Outcome.IMPROVED not in (verdict, looser):
        assert order.index(looser) >= order.index(verdict)


@pytest.mark.parametrize(
    ("estimate", "text"),
    [
        (Estimate(1.854, 1.71, 2.02, 0.99, 12), "1.85x [1.71, 2.02]"),
        (Estimate(1.854, 0.0, math.inf, 0.99, 1), "1.85x (1 pair)"),
        (Estimate(1.854, 0.0, math.inf, 0.99, 3), "1.85x (3 pairs)"),
    ],
)
def test_an_interval_that_says_nothing_is_left_out(estimate: Estimate, text: str) -> None:
    assert judging.estimate_text(estimate) == text
