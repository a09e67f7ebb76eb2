"""Change points of noisy figures: against series whose truth is known."""

from __future__ import annotations

import random

import pytest

from pytest_sme2.report.history_series import FEWEST, change_points

pytest.importorskip("ruptures")


def noisy(levels: list[float], seed: int, spread: float = 0.005) -> list[float]:
    chance = random.Random(seed)
    return [level * (1 + chance.gauss(0, spread)) for level in levels]


def test_nothing_is_found_where_nothing_is() -> None:
    found = [
        change_points(noisy([5.0] * length, seed)) for seed in range(40) for length in (20, 150)
    ]
    assert sum(map(len, found)) <= 1


@pytest.mark.parametrize("factor", [1.03, 0.97])
def test_a_step_is_found_with_its_place_and_size(factor: float) -> None:
    (found,) = change_points(noisy([5.0] * 60 + [5.0 * factor] * 40, seed=3))
    assert found.earliest <= found.at <= found.latest
    assert found.earliest <= 60 <= found.latest
    assert found.latest - found.earliest <= 6
    assert found.new / found.old == pytest.approx(factor, abs=0.004)


def test_one_wild_run_is_no_change() -> None:
    values = noisy([5.0] * 60, seed=4)
    values[30] *= 1.5
    assert change_points(values) == []


def test_a_drift_becomes_steps_that_add_up() -> None:
    values = noisy([5.0] * 50 + [5.0 * 1.001**number for number in range(100)], seed=5)
    found = change_points(values)
    assert found[-1].new / found[0].old == pytest.approx(1.10, abs=0.02)


def test_the_last_runs_need_to_be_several() -> None:
    assert change_points(noisy([5.0] * 60 + [6.0] * 2, seed=7)) == []
    (found,) = change_points(noisy([5.0] * 60 + [6.0] * 4, seed=7))
    assert found.at == 60


def test_a_figure_without_noise_is_no_matter() -> None:
    assert change_points([7.0] * 30) == []
    (found,) = change_points([7.0] * 15 + [7.1] * 15)
    assert (found.at, found.earliest, found.latest) == (15, 15, 15)


def test_few_runs_have_no_change_points() -> None:
    assert change_points([5.0] * 6 + [9.0] * (FEWEST - 7)) == []
