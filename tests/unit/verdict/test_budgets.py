"""What an inference may take at most: the verdicts, and how often chance decides them."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import pytest

from pytest_sme2.results import Arm, CaseResult, Check, Limits, Outcome
from pytest_sme2.verdict.judging import MOVED_CAP
from pytest_sme2.verdict.times import ACQUITTAL, ALARM, bounds, check_budgets
from tests.support.gate_examples import emulated, measured, medians, with_limits
from tests.support.stored_sessions import processes

AT_MOST = with_limits(max_latency={"any": 0.011}, max_p95={"any": 0.012})


def timed(median: Sequence[float], p95: Sequence[float] = (), **changes: Any) -> CaseResult:
    facts = {"medians_ns": {Arm.ON: tuple(median)}, "p95s_ns": {Arm.ON: tuple(p95 or median)}}
    return measured(**{"inferences": 20, **facts, **changes})


def judged(now: CaseResult, limits: Limits = AT_MOST) -> dict[str, Check]:
    return {check.metric: check for check in check_budgets(now, limits)}


@pytest.mark.parametrize(
    ("now", "latency", "p95", "words"),
    [
        (timed(medians(10)), "PASS", "PASS", "takes 10.000 ms [9.980, 10.016]; at most 11 are"),
        (timed(medians(11.1)), "FAILED", "PASS", "takes 11.100 ms [11.078, 11.117]; at most 11"),
        (timed(medians(10), medians(13)), "PASS", "FAILED", "95 % of inferences stay within 13."),
        (timed(medians(11)), "INCONCLUSIVE", "PASS", "differ by more than what is left"),
        (timed((*medians(12, 9), 10.9e6)), "INCONCLUSIVE", "INCONCLUSIVE", "[10.900, "),
        (timed(medians(12.1, 4)), "INCONCLUSIVE", "INCONCLUSIVE", "ms (4 processes); at most 11"),
        (timed(medians(10), inferences=12), "PASS", "INCONCLUSIVE", "12 inferences of a process"),
        (timed(medians(13), inferences=1), "FAILED", "FAILED", "takes 13.000 ms"),
        (timed(medians(13), interference=0.2), "INCONCLUSIVE", "INCONCLUSIVE", "had the core"),
        (timed(medians(10), interference=0.2), "PASS", "PASS", "takes 10.000 ms"),
        (timed(medians(13), throttled_pairs=1), "INVALID", "INVALID", "against heat"),
        (timed(medians(13), conditions={MOVED_CAP: "x"}), "INVALID", "INVALID", "X: no stored"),
        (emulated(), "NOT_MEASURED", "NOT_MEASURED", "Choose a real device with --device"),
    ],
)
def test_every_verdict(now: CaseResult, latency: str, p95: str, words: str) -> None:
    found = judged(now)
    assert [str(check.verdict) for check in found.values()] == [latency, p95]
    assert any(words in check.message for check in found.values())
    for check in found.values():
        assert check.limit is None or check.limit in (11, 12)
        assert check.interval is None or math.isfinite(check.interval[1])


def test_a_limit_holds_for_its_number_of_threads_and_the_arm_that_speaks() -> None:
    limits = with_limits(max_latency={"any": 0.009, "4": 0.011})
    for threads, verdict in ((1, Outcome.FAILED), (4, Outcome.PASS)):
        (check,) = check_budgets(timed(medians(10), threads=threads), limits)
        assert (check.metric, check.verdict) == ("latency budget (on)", verdict)
    assert not judged(timed(medians(10)), with_limits(max_latency={"4": 0.009}))
    # SME2 off takes 20 ms; nobody ships that.
    assert judged(measured(), AT_MOST)["latency budget (on)"].verdict is Outcome.PASS


TRIALS = 20_000


def shares(
    level: float, spread: float, skewed: bool, trials: int = TRIALS // 10
) -> tuple[float, float]:
    """How often the centre of the processes, which is at the limit times ``level``, is called more
    and less.
    """
    found = [bounds([*times]) for times in processes(level, spread, skewed, trials)]
    over, below = (sum(low > 1 for low, _ in found), sum(high <= 1 for _, high in found))
    return over / trials, below / trials


@pytest.mark.parametrize("skewed", [False, True])
@pytest.mark.parametrize("spread", [0.002, 0.006, 0.01])
def test_chance_decides_as_rarely_as_it_says(spread: float, skewed: bool) -> None:
    over, below = shares(1.0, spread, skewed, TRIALS)
    # Three standard errors of what was promised.
    assert over <= ALARM + 3 * math.sqrt(ALARM / TRIALS)
    assert below <= ACQUITTAL + 3 * math.sqrt(ACQUITTAL / TRIALS)
    assert shares(1.05, spread, skewed)[0] > 0.99
    assert shares(0.9, spread, skewed)[0] == 0


def test_the_bounds_are_those_of_the_binomial_distribution() -> None:
    """Added up by hand: 1/1024, 11/1024 and 56/1024 for ten; 1351/2^20 and 21700/2^20 for 20."""
    values = [float(value) for value in range(1, 21)]
    assert bounds(values[:10]) == (1, 9)
    assert bounds(values) == (4, 15)
    assert bounds(values[:8]) == (0, 7)
    assert bounds(values[:4]) == (0, math.inf)
