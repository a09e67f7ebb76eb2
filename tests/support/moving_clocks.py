"""The ratio of two arms on phones that move their clocks, where the truth is 2.50: a simulation.

Arms of known work run on a pretended core, measured by the product's own pairs. Its clock rises
within 0.2 s after idling (``ramp``), or falls to 2.438 of 4.32 GHz after a second of load
(``clamp``: OnePlus 13, screen on, wyl2607/oneplus13-performance-investigation), or both.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

from pytest_sme2.results.run import Run, Turn
from pytest_sme2.results.timing import PairedTiming
from pytest_sme2.timing.pairs import measure_pairs
from pytest_sme2.timing.processes import SamplingPlan, Starter
from tests.support.pretended_machine import make_run

TRUTH = 2.5
IDLE_SECONDS = 0.05
"""The start of a process: long enough for a clock to fall, and for a clamp to be lifted."""
STEP_SECONDS = 0.001
CLOCKS = ("ramp", "clamp", "ramp and clamp")
MILLISECONDS = (0.2, 5.0, 100.0)
ALLOWED = {True: 0.001, False: 0.031}
"""How far a ratio may be off in turns, and one process after the other."""


@dataclass
class Core:
    """A core under load: how fast it is depends on how long it has been busy."""

    kind: str
    now: float = 0.0
    busy: float = 0.0

    def idle(self) -> None:
        self.now += IDLE_SECONDS
        self.busy = 0.0

    def clock(self) -> float:
        speed = 1.0
        if "ramp" in self.kind:
            speed = min(1.0, 0.3 + 0.7 * self.busy / 0.2)
        return min(speed, 2.438 / 4.32) if self.capped else speed

    @property
    def capped(self) -> bool:
        return "clamp" in self.kind and self.busy > 1.0

    def run(self, work: float) -> float:
        """Do so many seconds' work of the full clock; how long it took, in nanoseconds."""
        begun, left = self.busy, work
        while left > 0:
            speed = self.clock()
            step = min(STEP_SECONDS, left / speed)
            left -= step * speed
            self.busy += step
        self.now += self.busy - begun
        return (self.busy - begun) * 1e9


@dataclass
class Phone:
    """Two arms on one core."""

    core: Core
    work: dict[str, float]

    def alone(self, arm: str, /, *, warmup: int, runs: int) -> Run:
        self.core.idle()
        took = [self.core.run(self.work[arm]) for _ in range(warmup + runs)]
        cap = "the highest clock fell" if self.core.capped else ""
        return replace(make_run(took[warmup:]), clock_change=cap)

    def in_turns(
        self, arms: Sequence[str], /, *, warmup: int, runs: int, turn: Turn
    ) -> dict[str, Run]:
        self.core.idle()
        took: dict[str, list[float]] = {arm: [] for arm in arms}
        for arm in arms:
            for _ in range(warmup):
                self.core.run(self.work[arm])
        for _ in range(math.ceil(runs / turn.runs)):
            for arm in arms:
                times = [self.core.run(self.work[arm]) for _ in range(turn.lead + turn.runs)]
                took[arm] += times[turn.lead :]
        return {
            arm: replace(run, request=replace(run.request, turn=turn))
            for arm, run in ((arm, make_run(times[:runs])) for arm, times in took.items())
        }


def measured(kind: str, milliseconds: float, *, turns: bool) -> PairedTiming:
    """The two arms, as the product measures them."""
    core = Core(kind)
    phone = Phone(core, {"off": TRUTH * milliseconds / 1e3, "on": milliseconds / 1e3})
    how: dict[str, Any] = {"in_turns": phone.in_turns} if turns else {}
    starter = Starter(phone.alone, clock=lambda: core.now, **how)
    plan = SamplingPlan(threshold=None, budget_seconds=60.0)
    return measure_pairs(starter, "off", "on", plan)
