from __future__ import annotations

import math

import pytest
import scipy.stats

from pytest_sme2.results import Outcome
from pytest_sme2.verdict import judging
from pytest_sme2.verdict.judging import _student, largest_by_chance, session_interval
from tests.support.gate_examples import medians
from tests.support.stored_sessions import outcomes


@pytest.mark.parametrize("freedom", [*range(1, 40), 100, 999, 1000])
def test_the_quantile_is_that_of_scipy(freedom: int) -> None:
    for probability in (0.5, 0.6, 0.9, 0.95, 0.975, 0.99, 0.9995):
        expected = scipy.stats.t.ppf(probability, freedom)
        # The oldest scipy is itself off by 2e-9.
        assert _student(probability, freedom) == pytest.approx(expected, rel=1e-8, abs=1e-12)


def test_sessions_that_differ_among_themselves_widen_the_interval() -> None:
    new = medians(10)
    calm = session_interval(new, [medians(ms) for ms in (9.99, 10.0, 10.01)])
    rough = session_interval(new, [medians(ms) for ms in (9.7, 10.0, 10.3)])
    assert rough[0] < calm[0] < 1 < calm[1] < rough[1]
    many = session_interval(new, [medians(ms) for ms in (9.7, 10.0, 10.3) * 3])
    assert rough[0] < many[0]


@pytest.mark.slow
@pytest.mark.parametrize("spread", [0.003, 0.005])
def test_each_session_makes_verdicts_better(spread: float) -> None:
    """Equal programs are less often open, and 5 % slower ones more often caught."""
    counts = (1, 3, 6, 12)
    still_open = [outcomes(spread, count, 0.0).count(Outcome.INCONCLUSIVE) for count in counts]
    caught = [outcomes(spread, count, 0.05).count(Outcome.REGRESSED) for count in counts]
    assert still_open == sorted(still_open, reverse=True)
    assert still_open[0] >= 0.95 * 200
    assert still_open[-1] <= 0.1 * 200
    assert caught[:3] == sorted(caught[:3])
    assert caught[0] == 0
    assert caught[-1] >= 0.9 * 200


@pytest.mark.parametrize("spread", [0.003, 0.01, 0.03])
@pytest.mark.parametrize("count", [1, 3, 6])
def test_sessions_rarely_call_equal_programs_slower_or_slower_ones_equal(
    spread: float, count: int
) -> None:
    """Whatever the spread between sessions is, and however few of them there are."""
    assert outcomes(spread, count, 0.0).count(Outcome.REGRESSED) <= 0.03 * 200
    assert outcomes(spread, count, 0.05).count(Outcome.PASS) <= 0.03 * 200


@pytest.mark.slow
@pytest.mark.parametrize("count", [1, 3, 12])
def test_equal_programs_are_rarely_red_and_slower_ones_mostly(count: int) -> None:
    for spread, caught in ((0.005, 0.98), (0.01, 0.93), (0.03, 0.65)):
        equal, slower = (
            sum(map(outcomes(spread, count, slowdown, 500).count, judging.FAILING))
            for slowdown in (0.0, 0.05)
        )
        assert equal <= 0.01 * 500
        assert slower >= caught * 500


def test_what_is_explained_by_chance_follows_the_sessions_and_their_yardsticks() -> None:
    new = medians(10)
    calm, rough = ([medians(ms) for ms in row] for row in ((10, 10, 10), (9.5, 10, 10.5)))
    none = [None] * 3
    assert 1 < largest_by_chance(new, calm, none) < largest_by_chance(new, calm[:1], none[:1])
    assert largest_by_chance(new, calm, none) < largest_by_chance(new, rough, none)
    # A yardstick that felt the same explains it; one that is missing explains nothing.
    felt = [0.95, 1.0, 1.05]
    assert largest_by_chance(new, rough, felt) == pytest.approx(
        largest_by_chance(new, calm, none), rel=1e-3
    )
    assert largest_by_chance(new, rough, [*felt[:2], None]) == largest_by_chance(new, rough, none)


def test_the_interval_holds_the_ratio_and_mirrors_when_swapped() -> None:
    old, new = medians(10), medians(11)
    low, high = session_interval(new, [old])
    assert low < 1.1 < high
    mirrored = session_interval(old, [new])
    assert math.isclose(mirrored[0], 1 / high)
    assert math.isclose(mirrored[1], 1 / low)


def test_a_single_process_has_no_spread_to_go_by() -> None:
    for new, old in (([11.0], [medians(10)]), (medians(11), [[10.0, 10.0]])):
        assert session_interval(new, old) == (0.0, math.inf)
        assert judging.judge(*session_interval(new, old), 0.02) is Outcome.INCONCLUSIVE
