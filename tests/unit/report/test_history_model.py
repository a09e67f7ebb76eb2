"""The model of a noisy figure, held against series whose truth is known.

``python -m benchmarks.history`` holds thousands; these are few, and each kind has to be right.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
import pytest

from pytest_sme2.report.history_model import FEWEST, SHORTEST, Floats, Model, Ramp

SPREADS = (0.003, 0.01, 0.03)


def model(course: Floats, spread: float, seed: int, places: Sequence[int] | None = None) -> Model:
    """Of noise on a course of logarithms, in which two of a hundred runs are wild."""
    chance = np.random.default_rng(seed)
    wild = (chance.random(course.size) < 0.02) * chance.uniform(0.1, 0.5, course.size)
    noise = spread * chance.standard_normal(course.size) + wild
    return Model(np.exp(course + noise).tolist(), places or range(course.size))


def steps(*sizes: float, runs: int = 20) -> Floats:
    """Levels of so many runs, each higher than the one before by so many spreads."""
    return np.repeat(np.cumsum([0.0, *sizes]), runs)


def drift(first: int, last: int, runs: int, slope: float) -> Floats:
    found: Floats = slope * np.clip(np.arange(runs, dtype=np.float64) - first, 0.0, last - first)
    return found


@pytest.mark.parametrize("spread", SPREADS)
def test_nothing_is_found_where_nothing_is(spread: float) -> None:
    found = [
        model(np.zeros(runs), spread, seed).ramps for seed in range(8) for runs in (FEWEST, 40, 120)
    ]
    assert not any(found)


@pytest.mark.parametrize("spread", SPREADS)
@pytest.mark.parametrize("sizes", [(6,), (-6,), (6, -6), (5, 5), (8, -4, 6)])
def test_steps_are_found_at_their_places_with_their_sizes(
    sizes: tuple[float, ...], spread: float
) -> None:
    right = 0
    for seed in range(8):
        found = model(steps(*sizes) * spread, spread, seed)
        assert not any(ramp.drift for ramp in found.ramps)
        for number, size in enumerate(sizes[: len(found.ramps)]):
            first, last = found.range(number)
            _, low, high = found.size(number)
            right += first < 20 * (number + 1) <= last and low <= size * spread <= high
    assert right >= 7 * len(sizes)


@pytest.mark.parametrize("spread", SPREADS)
@pytest.mark.parametrize(("first", "last"), [(14, 34), (0, 20), (25, 44), (0, 44)])
def test_a_drift_is_no_step_and_has_its_ends_and_size(first: int, last: int, spread: float) -> None:
    near = right = 0
    for seed in range(8):
        found = model(drift(first, last, 45, spread), spread, seed)
        (ramp,) = found.ramps
        near += abs(ramp.first - first) <= 2 and abs(ramp.last - last) <= 2
        _, low, high = found.size(0)
        right += low <= spread * (last - first) <= high
    assert near >= 7
    assert right >= 7


def test_a_step_within_a_drift_is_told_apart() -> None:
    course = drift(0, 39, 40, 0.01)
    course[20:] += 0.2
    found = model(course, 0.005, seed=1)
    assert Ramp(19, 20) in found.ramps
    assert found.growth(0, 39)[0] == pytest.approx(0.39 + 0.2, abs=0.02)


def test_growth_counts_a_part_and_leaves_changes_out() -> None:
    found = model(steps(0.1, -0.05), 0.002, seed=1)
    for first, last, without, expected in (
        (0, 59, (), 0.05),
        (0, 30, (), 0.1),
        (30, 59, (), -0.05),
        (45, 59, (), 0.0),
        (0, 59, (0,), -0.05),
    ):
        value, low, high = found.growth(first, last, without)
        assert value == pytest.approx(expected, abs=0.005)
        assert low <= expected <= high


@pytest.mark.parametrize(
    ("course", "expected"),
    [
        # The last runs need to be several.
        (np.r_[np.zeros(40), np.full(SHORTEST - 1, 0.2)], 0),
        (np.r_[np.zeros(40), np.full(SHORTEST, 0.2)], 1),
        # So do runs between two changes.
        (np.r_[np.zeros(20), 0.5, np.zeros(20)], 0),
        (np.r_[np.zeros(20), 0.5, 0.6, np.zeros(20)], 0),
        (np.r_[np.zeros(20), np.full(SHORTEST + 1, 0.2), np.zeros(20)], 2),
    ],
)
def test_a_level_takes_several_runs(course: Floats, expected: int) -> None:
    assert len(model(course, 0.01, seed=3).ramps) == expected


def test_a_figure_without_noise_is_no_matter() -> None:
    assert Model([7.0] * 30, range(30)).ramps == []
    found = Model([7.0] * 15 + [7.1] * 15, range(30))
    assert (found.ramps, found.range(0)) == ([Ramp(14, 15)], Ramp(14, 15))
    assert math.exp(found.size(0)[0]) == pytest.approx(7.1 / 7)


def test_a_drift_with_missing_runs_is_straight() -> None:
    kept = [at for at in range(60) if at not in range(26, 34) and at % 7]
    course = drift(15, 45, 60, 0.02)
    noise = 0.004 * np.random.default_rng(2).standard_normal(60)
    found = Model(np.exp(course + noise)[kept].tolist(), kept)
    ((first, last),) = found.ramps
    assert abs(kept[first] - 15) <= 2
    assert abs(kept[last] - 45) <= 2
