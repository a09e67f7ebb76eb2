from __future__ import annotations

import math
import random

from pytest_sme2.results import Outcome
from pytest_sme2.verdict import judging
from pytest_sme2.verdict.stored_latency import session_interval
from tests.support.gate_examples import medians


def test_sessions_that_differ_among_themselves_widen_the_interval() -> None:
    new = medians(10)
    calm = session_interval(new, [medians(ms) for ms in (9.99, 10.0, 10.01)])
    rough = session_interval(new, [medians(ms) for ms in (9.7, 10.0, 10.3)])
    assert rough[0] < calm[0] < 1 < calm[1] < rough[1]
    many = session_interval(new, [medians(ms) for ms in (9.7, 10.0, 10.3) * 3])
    assert rough[0] < many[0]


def test_new_sessions_of_the_same_machine_rarely_alarm() -> None:
    """Sessions that stray by 0.5 % and processes by 0.4 %: no more than 1 % false alarms."""
    generator = random.Random(7)

    def draw() -> tuple[float, ...]:
        centre = 10e6 * math.exp(generator.gauss(0, 0.005))
        return tuple(centre * math.exp(generator.gauss(0, 0.004)) for _ in range(10))

    alarms = 0
    for _ in range(400):
        low, high = session_interval(draw(), [draw() for _ in range(4)])
        alarms += judging.judge(low, high, 0.02) is Outcome.REGRESSED
    assert alarms <= 4


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
