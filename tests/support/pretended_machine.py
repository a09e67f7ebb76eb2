"""A machine made of known times and seeded noise, for tests of what measures machines."""

from __future__ import annotations

import math
import random
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from pytest_sme2.results.run import Arm, Artifact, Run, RunRequest
from pytest_sme2.results.timing import PairedTiming
from pytest_sme2.timing.pairs import measure_pairs
from pytest_sme2.timing.processes import SamplingPlan, Starter

ARTIFACT = Artifact("toy", "fp32", Path(), Path("toy.pte"), "0" * 64, (), ())


def make_run(
    wall_ns: Iterable[float],
    cpu_ns: Iterable[float] | None = None,
    threads: int = 1,
    emulated: bool = False,
) -> Run:
    wall = tuple(int(value) for value in wall_ns)
    return Run(
        request=RunRequest(ARTIFACT, Arm.OFF, threads=threads, runs=len(wall)),
        target="linux",
        runner="wheel",
        emulated=emulated,
        sme2_effective=False,
        wall_ns=wall,
        cpu_ns=wall if cpu_ns is None else tuple(int(value) for value in cpu_ns),
    )


@dataclass
class Machine:
    """A pretended machine: a clock, two arms with known times, and noise from a seed."""

    slowdown: float = 0.0
    cv: float = 0.004
    seed: int = 7
    base_ns: float = 3e6
    start_seconds: float = 0.02
    threads: int = 1
    stolen: dict[int, float] = field(default_factory=dict)
    """Process number (pilot included) to the share of wall time something else took."""
    change: Callable[[Machine, str, Run], Run] = lambda machine, arm, run: run
    """What else happens to a process of an arm."""
    now: float = 0.0
    calls: list[tuple[str, int, int]] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.random = random.Random(self.seed)

    def clock(self) -> float:
        return self.now

    def __call__(self, arm: str, /, *, warmup: int, runs: int) -> Run:
        number = len(self.calls)
        self.calls.append((arm, warmup, runs))
        level = self.base_ns * math.exp(self.random.gauss(0, self.cv))
        level *= 1 + self.slowdown if arm == "B" else 1
        cpu = [level * (1 + abs(self.random.gauss(0, 0.005))) for _ in range(runs)]
        stolen = 1 + self.stolen.get(number, 0.0)
        wall = [value * stolen for value in cpu]
        self.now += self.start_seconds + (warmup * level * stolen + sum(wall)) / 1e9
        return self.change(self, arm, make_run(wall, cpu, self.threads))

    def measure(self, **choices: Any) -> PairedTiming:
        told = [choices.pop(name, None) for name in ("progress", "still_open")]
        how = {key: choices.pop(key) for key in ("in_turns", "redo") if key in choices}
        starter = Starter(self, clock=self.clock, **how)
        return measure_pairs(starter, "A", "B", SamplingPlan(**choices), *told)
