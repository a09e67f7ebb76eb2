"""What a frontier says, and what check_frontier makes of it."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from pytest_sme2.errors import BaselineError
from pytest_sme2.results import Arm, Baseline, Check, Frontier, Outcome, Ship
from pytest_sme2.verdict.baseline_file import parse, render
from pytest_sme2.verdict.baselines import changes, update
from pytest_sme2.verdict.judging import stored_frontier
from pytest_sme2.verdict.ratios import check_frontier, decision_text
from tests.support.gate_examples import (
    LIMITS,
    baseline,
    emulated,
    frontier,
    measured,
    medians,
    with_limits,
)

OFF = (Arm.OFF,)


@pytest.mark.parametrize(
    ("found", "said"),
    [
        (frontier(), "Ship SME2 with 2 threads: 1.40x [1.37, 1.43] of your best NEON (4 threads)."),
        (
            frontier(0.73, Ship.REFERENCE),
            "NEON with 4 threads is better: SME2 with 2 threads is 0.73x [0.72, 0.74] of it.",
        ),
        (
            frontier(1.0, Ship.EITHER),
            "No difference that matters: SME2 with 2 threads is 1.00x [0.98, 1.02] of your best "
            "NEON (4 threads).",
        ),
        (
            frontier(1.0, Ship.UNCLEAR),
            "Too close to tell: SME2 with 2 threads is 1.00x [0.98, 1.02] of your best NEON "
            "(4 threads).",
        ),
        (frontier(arms=OFF), "Ship 4 threads: 1.40x [1.37, 1.43] of the next best (2 threads)."),
    ],
)
def test_the_decision_is_one_sentence(found: Frontier, said: str) -> None:
    assert decision_text(found) == said


def test_a_chip_without_sme2_is_named() -> None:
    assert decision_text(frontier(), sme1=True).startswith("Ship SME1 with 2 threads")


def stored(found: Frontier | None = None) -> Baseline:
    return baseline(frontier=stored_frontier(None, found or frontier()))


def check(found: Frontier | None, old: Baseline | None = None, **limits: object) -> Check:
    return check_frontier(measured(frontier=found), old, with_limits(**limits))


@pytest.mark.parametrize(
    ("least", "outcome"),
    [
        (1.3, Outcome.PASS),
        (1.39, Outcome.INCONCLUSIVE),
        (1.41, Outcome.INVALID),
        (1.5, Outcome.FAILED),
    ],
)
def test_best_against_best_has_a_minimum(least: float, outcome: Outcome) -> None:
    found = check(frontier(), min_best_speedup=least)
    assert found.verdict is outcome
    assert found.limit == least
    assert found.interval == pytest.approx((1.372, 1.428))
    again = check(frontier(), stored(), min_best_speedup=least)
    assert again.verdict is (Outcome.REGRESSED if outcome is Outcome.FAILED else outcome)


def test_without_a_minimum_and_a_baseline_it_says_how_to_make_one() -> None:
    found = check(frontier())
    assert (found.verdict, found.limit) == (Outcome.NO_BASELINE, None)
    assert "Ship SME2 with 2 threads" in found.message
    assert "No frontier is stored on this target. Make one with" in found.message


def slower(found: Frontier, index: int, milliseconds: float, **changes: Any) -> Frontier:
    cells = list(found.cells)
    cells[index] = replace(cells[index], medians_ns=medians(milliseconds, 20))
    return replace(found, cells=tuple(cells), **changes)


def test_a_loss_names_the_cell_that_moved() -> None:
    assert check(frontier(), stored()).verdict is Outcome.PASS
    worse = replace(frontier(1.1), cells=frontier().cells)
    found = check(slower(worse, 2, 2.56), stored())
    assert found.verdict is Outcome.REGRESSED
    assert "1.40x [1.37, 1.43] is stored. That is 21.4% less" in found.message
    assert found.details == ("SME2 with 2 threads takes 28% longer (2.000 to 2.560 ms)",)
    assert f"Since then: {found.details[0]}." in found.message


def test_another_best_number_of_threads_is_told() -> None:
    found = check(slower(frontier(1.27), 2, 2.55, candidate=4), stored(), max_speedup_loss=0.01)
    assert found.verdict in (Outcome.REGRESSED, Outcome.INVALID)
    assert "the best of SME2 was 2 threads" in found.details


def test_other_numbers_of_threads_are_not_compared() -> None:
    fewer = replace(frontier(0.9), cells=frontier().cells[:4], reference=3)
    found = check(fewer, stored())
    assert (found.verdict, found.details) == (Outcome.NO_BASELINE, ())
    assert "What is stored is of other numbers of threads." in found.message


def test_a_gain_and_another_target() -> None:
    assert check(frontier(2.0), stored()).verdict is Outcome.IMPROVED
    old = stored()
    other = replace(old, fingerprint=replace(old.fingerprint, facts=(("cpu", "other"),)))
    assert check(frontier(), other).verdict is Outcome.INVALID


@pytest.mark.parametrize(
    ("found", "said"),
    [
        (None, "It was not measured."),
        (frontier(throttled=2), "another highest clock, in 2 measured"),
        (
            replace(frontier(), speedup=replace(frontier().speedup, low=0.0, high=float("inf"))),
            "The time limit left too few rounds",
        ),
    ],
)
def test_what_is_not_an_answer_is_invalid(found: Frontier | None, said: str) -> None:
    check_ = check(found, stored())
    assert check_.verdict is Outcome.INVALID
    assert said in check_.message


def test_emulated_times_are_never_compared() -> None:
    assert check_frontier(emulated(), None, LIMITS).verdict is Outcome.INVALID


def test_a_baseline_keeps_a_frontier_and_a_diff_says_so() -> None:
    new, changed = update(None, measured(frontier=frontier()))
    assert new.frontier.best == {Arm.ON: 2, Arm.OFF: 4}
    assert new.frontier.times_ns[Arm.OFF] == {"1": 6e6, "2": 4e6, "4": 2.8e6}
    assert "best against best" in {change.what for change in changed}
    again = parse(render(new), Path("file"))
    assert again.frontier == new.frontier
    # What was not measured this time stays.
    assert update(new, measured())[0].frontier == new.frontier
    assert "frontier" not in render(replace(new, frontier=None))
    assert changes(new, new) == ()


def test_noise_changes_nothing_and_other_counts_are_another_thing() -> None:
    old = stored_frontier(None, frontier())
    assert stored_frontier(old, frontier(1.41)) is old
    assert stored_frontier(old, frontier(1.41, arms=OFF)) is old
    assert stored_frontier(old, frontier(1.41, throttled=1)) is old
    fewer = replace(frontier(1.41), cells=frontier().cells[:4], reference=3)
    assert stored_frontier(old, fewer) != old
    assert stored_frontier(old, frontier(1.6)) != old


def test_a_stored_time_of_nothing_is_damage() -> None:
    text = render(update(None, measured(frontier=frontier()))[0])
    with pytest.raises(BaselineError, match="frontier holds a figure of 0 or less"):
        parse(text.replace('"1": 6000000', '"1": 0'), Path("file"))
