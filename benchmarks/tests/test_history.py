"""The simulation's own arithmetic, on a few histories."""

from __future__ import annotations

import itertools

import pytest

from benchmarks import history
from benchmarks.history import COMMITS, MACHINES, STEPS, levels, random_steps, simulate


def planted(steps):
    """A detector that knows everything, for scoring."""
    return lambda _values: [(at, at - 1, at + 1, size) for at, size in steps.items()]


def test_a_history_is_the_same_every_time():
    truth = levels(random_steps(1))
    assert simulate(truth, MACHINES[2], 5) == simulate(truth, MACHINES[2], 5)
    assert simulate(truth, MACHINES[2], 5) != simulate(truth, MACHINES[2], 6)


def test_steps_are_apart_and_of_every_size():
    for seed in range(50):
        steps = random_steps(seed)
        assert sorted(steps.values()) == sorted(STEPS)
        ends = [0, *sorted(steps), COMMITS]
        assert all(after - before >= 50 for before, after in itertools.pairwise(ends))


def test_what_is_found_missed_and_wrong_is_counted():
    steps = random_steps(history.FIRST_SEED)
    scores = history.score_steps(planted(steps), MACHINES[0], 1)
    assert all(scores[size].found == scores[size].held == 1 for size in STEPS)
    assert scores[1.0].alarms == 0
    last = max(steps)
    # One is missed, one is in the wrong direction, and one is where nothing is.
    wrong = {at: size for at, size in steps.items() if at != last} | {20: 1.02}
    first = min(steps)
    wrong[first] = 1 / wrong[first]
    scores = history.score_steps(planted(wrong), MACHINES[0], 1)
    assert scores[steps[last]].found == scores[steps[first]].found == 0
    assert scores[1.0].alarms == 2


@pytest.mark.parametrize(("told", "found"), [(1.105, 1), (1.05, 0), (1.2, 0)])
def test_a_sum_counts_if_it_is_about_right(told, found):
    score = history.score_sum(planted({200: told}), MACHINES[0], history.TEN_TIMES, 1)
    assert score.found == found


def test_exact_figures_miss_nothing():
    assert history.exact() == (60, 60, 0)


def test_a_quiet_machine_gives_all_steps_and_no_alarm():
    pytest.importorskip("ruptures")
    scores = history.score_steps(history.ours, MACHINES[0], 2)
    assert sum(score.found for score in scores.values()) >= 11
    assert scores[1.0].alarms == 0
