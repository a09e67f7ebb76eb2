"""Stored sessions whose spread is known, and what the check of stored times says about them."""

from __future__ import annotations

import math
import random

from pytest_sme2.results import Arm, Outcome
from pytest_sme2.verdict import times
from tests.support.gate_examples import LIMITS, baseline, measured, session


def drawn(generator: random.Random, spread: float, slowdown: float = 0.0) -> tuple[float, ...]:
    """One session: ten processes that vary by 0.4 % about a centre that strays by ``spread``."""
    centre = 10e6 * (1 + slowdown) * math.exp(generator.gauss(0, spread))
    return tuple(centre * math.exp(generator.gauss(0, 0.004)) for _ in range(10))


def outcomes(spread: float, count: int, slowdown: float, trials: int = 200) -> list[Outcome]:
    """Verdicts on changed code against so many stored sessions, with no pairs to decide."""
    found = []
    generator = random.Random(7)
    for _ in range(trials):
        old = baseline(
            sessions=tuple(
                session(number, medians_ns={Arm.ON: drawn(generator, spread)})
                for number in range(1, count + 1)
            )
        )
        now = measured(medians_ns={Arm.ON: drawn(generator, spread, slowdown)})
        found.append(times.check_latency(now, old, LIMITS, Arm.ON).verdict)
    return found
