"""Choosing the best cell of each arm, comparing them on other rounds, and when measuring stops."""

from __future__ import annotations

import math
import random
from dataclasses import replace

import pytest

from pytest_sme2.results.run import Arm, CoreUse, Turn
from pytest_sme2.results.timing import TIME_LIMIT, Ship
from pytest_sme2.timing.frontier import MeasuredRounds, choose, round_times
from pytest_sme2.timing.processes import SamplingPlan, Starter
from tests.support.pretended_machine import make_run

TIMES = {"on 1": 3e6, "off 1": 6e6, "on 2": 2e6, "off 2": 4e6, "on 4": 2.2e6, "off 4": 2.8e6}
CELLS = {label: (Arm(label.split()[0]), int(label.split()[1])) for label in TIMES}


class Machine:
    """Cells of known times, on a clock of its own."""

    def __init__(self, times=TIMES, spread=0.004, hot=(), cores=None, capped=()):
        self.times, self.spread, self.cores = times, spread, cores
        self.hot, self.capped = hot, capped
        self.random = random.Random(1)
        self.now = 0.0
        self.order: list[str] = []

    def __call__(self, label, /, *, warmup, runs):
        self.order.append(label)
        level = self.times[label] * math.exp(self.random.gauss(0, self.spread))
        self.now += 0.02 + (warmup + runs) * level / 1e9
        run = make_run([level] * runs, threads=CELLS[label][1])
        hot, cap = len(self.order) in self.hot, "it fell" if len(self.order) in self.capped else ""
        return replace(run, throttled=hot, clock_change=cap, cores=self.cores)

    def measure(self, turns=None, **choices):
        plan = SamplingPlan(threshold=None, **choices)
        cells = {label: CELLS[label] for label in self.times}
        starter = Starter(self, turns, lambda: self.now)
        return MeasuredRounds(starter, cells, plan).measure()


def chosen(found):
    return [
        (c.arm, c.threads) for c in (found.cells[found.candidate], found.cells[found.reference])
    ]


def test_the_best_of_each_arm_is_compared():
    machine = Machine()
    found = machine.measure()
    assert chosen(found) == [(Arm.ON, 2), (Arm.OFF, 4)]
    assert found.ship is Ship.CANDIDATE
    assert found.speedup.low < 1.4 < found.speedup.high
    assert (found.rounds, found.speedup.pairs) == (20, 10)
    assert (found.stopped_because, found.unsure) == ("clear", ())
    # Every round has every cell once, in an order of its own.
    rounds = [machine.order[at : at + 6] for at in range(6, len(machine.order), 6)]
    assert all(sorted(order) == sorted(TIMES) for order in rounds)
    assert len({tuple(order) for order in rounds}) > 10


def test_the_rounds_that_choose_do_not_judge():
    """On the even rounds one of two equal cells is faster by luck: the answer has none of it."""
    cells = [(Arm.OFF, 1), (Arm.OFF, 2)]
    lucky, fair = [2e6, 1.5e6], [2e6, 2e6]
    found = choose(cells, [lucky, fair] * 10, 0.005)
    assert (found.candidate, found.reference) == (1, 0)
    assert found.speedup.value == pytest.approx(1.0)
    assert found.ship is Ship.EITHER


@pytest.mark.parametrize(
    ("factor", "ship"),
    [(0.5, Ship.CANDIDATE), (0.98, Ship.EITHER), (1.02, Ship.EITHER), (1.5, Ship.REFERENCE)],
)
def test_the_decision_follows_the_interval(factor, ship):
    rounds = [[factor * 1e6 * (1 + 0.001 * i), 1e6 * (1 + 0.001 * i)] for i in range(20)]
    assert choose([(Arm.ON, 1), (Arm.OFF, 1)], rounds, 0.005).ship is ship


def test_the_same_time_means_fewer_threads():
    assert choose([(Arm.OFF, 4), (Arm.OFF, 2)], [[1e6, 1e6]] * 4, 0.005).candidate == 1


def test_cells_that_may_be_better_are_named_and_measured_longer():
    close = {"on 1": 1e6, "off 1": 2e6, "on 2": 0.99e6, "off 2": 1.5e6}
    found = Machine(close, spread=0.08).measure(budget_seconds=20.0)
    assert found.stopped_because == "time budget spent"
    assert found.rounds > 20
    assert any(found.cells[index].arm is Arm.ON for index in found.unsure)


def test_a_model_that_is_slow_still_has_two_rounds():
    slow = {label: 100 * time for label, time in TIMES.items()}
    found = Machine(slow).measure(budget_seconds=1.0, limit_seconds=2.0)
    assert (found.rounds, found.stopped_because) == (2, TIME_LIMIT)
    assert found.ship is Ship.UNCLEAR
    assert "slow" in found.notes[0]


def test_a_hot_round_is_measured_again_but_not_for_ever():
    found = Machine(hot={9, 20}).measure()
    assert (found.dropped, found.throttled, found.rounds) == (2, 0, 20)
    found = Machine(hot=range(1000)).measure(redo_limit=3)
    assert (found.dropped, found.throttled) == (3, 20)


def test_a_cap_that_moves_spoils_a_round_only_where_its_cells_ran_one_after_the_other():
    machine = Machine(capped={9})
    assert machine.measure().dropped == 1
    machine = Machine(capped=range(1000))

    def together(labels, /, *, turn, **how):
        return {label: machine(label, **how) for label in labels}

    found = machine.measure(together)
    assert (found.dropped, found.throttled, found.rounds) == (0, 0, 20)


def test_the_share_of_slow_cores_is_kept_for_each_cell():
    found = Machine(cores=CoreUse(300, 100, 0, "")).measure()
    assert {cell.efficiency_share for cell in found.cells} == {0.25}
    assert {cell.efficiency_share for cell in Machine().measure().cells} == {None}


def test_turns_cancel_what_all_cells_share():
    """The clock halves its speed in the middle of the process, and one cell is 10 % slower."""
    slow = [1, 1, 1, 1, 2, 2, 2, 2]
    runs = [make_run([factor * 1e6 * f for f in slow]) for factor in (1.0, 1.1)]
    one, other = round_times(runs, Turn(2))
    assert other / one == pytest.approx(1.1)
    assert one == pytest.approx(1e6, rel=0.05)


def test_cells_take_turns_where_they_can():
    machine = Machine()
    seen = []

    def together(labels, /, *, warmup, runs, turn):
        seen.append((tuple(labels), turn))
        return {label: machine(label, warmup=warmup, runs=runs) for label in labels}

    found = machine.measure(together)
    assert chosen(found) == [(Arm.ON, 2), (Arm.OFF, 4)]
    assert len(seen) == 20
    (turn,) = {turn for _, turn in seen}
    assert turn.lead == 3
