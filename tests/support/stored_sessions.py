"""Simulated processes and stored sessions whose spread is known, and what is said about them."""

from __future__ import annotations

import math
import random
from collections.abc import Iterator

import numpy as np

from pytest_sme2.results.run import Arm
from pytest_sme2.results.timing import Outcome
from pytest_sme2.timing import stats
from pytest_sme2.timing.stats import Floats
from pytest_sme2.verdict.times import check_latency
from tests.support.gate_examples import LIMITS, baseline, measured, session


def processes(level: float, spread: float, skewed: bool, trials: int) -> Iterator[Floats]:
    """The processes of so many runs; their centre is ``level``. Like the product, a run takes pairs
    until their ratio is known.
    """
    generator = np.random.default_rng(3)
    noise = generator.normal(0, spread, (2, trials, 30))
    if skewed:
        # Neighbours only make a process longer; the centre stays where it is.
        noise = np.where(noise > 0, 8 * noise, noise)
    on, off = level * np.exp(noise)
    pairs = np.full(trials, 30)
    for look, part in reversed([*zip((10, 20), stats.ERROR_SPLIT, strict=False)]):
        ratios = np.log(off / on)[:, :look]
        low, high = stats._bounds(ratios, stats.FALSE_ALARM_RATE * part)
        pairs[high - low < 0.02] = look
    for times, number in zip(on, pairs, strict=True):
        yield times[:number]


def drawn(
    generator: random.Random, spread: float, slowdown: float = 0.0
) -> tuple[tuple[float, ...], float]:
    """One session: ten processes that vary by 0.4 % about a centre that strays by ``spread``, and
    its yardstick, which feels most of that (as in ``pretended_device``).
    """
    common = generator.gauss(0, 0.9 * spread)
    apart = generator.gauss(0, 0.4 * spread)
    centre = 10e6 * (1 + slowdown) * math.exp(common + apart)
    times = tuple(centre * math.exp(generator.gauss(0, 0.004)) for _ in range(10))
    return times, 1e6 * math.exp(common + generator.gauss(0, 0.001))


def outcomes(spread: float, count: int, slowdown: float, trials: int = 200) -> list[Outcome]:
    """Verdicts on changed code against so many stored sessions, with no pairs to decide."""
    found = []
    generator = random.Random(7)
    for _ in range(trials):
        sessions = []
        for number in range(1, count + 1):
            times, yardstick = drawn(generator, spread)
            sessions.append(session(number, medians_ns={Arm.ON: times}, yardstick_ns=yardstick))
        times, yardstick = drawn(generator, spread, slowdown)
        now = measured(medians_ns={Arm.ON: times}, yardstick_ns=yardstick)
        old = baseline(sessions=tuple(sessions))
        found.append(check_latency(now, old, LIMITS, Arm.ON).verdict)
    return found
