"""Run directories of any size, for what is timed on them: made-up models of realistic operators.

Times and verdicts are drawn from a seed. Nothing is measured here.
"""

from __future__ import annotations

import random
from collections.abc import Iterator
from pathlib import Path

from pytest_sme2.results import Arm, Check, Estimate, Outcome
from tests.support.etdump_builder import build_etdump
from tests.support.profiles import Call, run_of
from tests.support.records import write_case

VARIANTS = ("fp32", "fp16", "int8", "int8_dynamic")
OPERATORS = (200, 400, 600)
"""Between MobileNet and a large vision encoder."""
_VERDICTS = (Outcome.PASS,) * 6 + (Outcome.REGRESSED, Outcome.INCONCLUSIVE, Outcome.IMPROVED)
# What each in turn takes, in nanoseconds, with SME2 off and on; {} is where SME2 shows.
_KINDS = (
    ("Convolution (NHWC, {}F32) IGEMM", 240_000, 60_000),
    ("Fully Connected (NC, {}F32) GEMM", 90_000, 30_000),
    ("Transpose (ND, X32) Transpose", 50_000, 50_000),
    ("Convolution (NHWC, {}F32) IGEMM", 240_000, 60_000),
    ("Add (ND)", 9_000, 9_000),
    ("Convolution (NHWC, F32) DWConv", 20_000, 20_000),
    ("Clamp (NC)", 5_000, 5_000),
)
_DELEGATED = 60
"""Operators in one delegate call; a portable one stands between two calls."""


def calls(arm: Arm, operators: int, source: random.Random) -> list[Call]:
    """A program of so many operators."""
    made: list[Call] = []
    inside: list[tuple[str, int]] = []
    counts: dict[str, int] = {}
    for index in range(operators):
        name, off, on = _KINDS[index % len(_KINDS)]
        name = name.format("P" if arm is Arm.ON else "")
        counts[name] = counts.get(name, 0) + 1
        duration = int((on if arm is Arm.ON else off) * source.uniform(0.5, 1.5))
        inside.append((f"{name} #{counts[name]}", duration))
        if len(inside) == _DELEGATED:
            made += [inside, ("mean.out", 40_000)]
            inside = []
    return [*made, inside] if inside else made


def dump(arm: Arm, operators: int, source: random.Random, runs: int = 3) -> bytes:
    program = calls(arm, operators, source)
    return build_etdump([run_of(program, slower=source.uniform(0.98, 1.02)) for _ in range(runs)])


def write_cases(
    root: Path, count: int, operators: tuple[int, ...] = OPERATORS, *, seed: int = 1
) -> Iterator[Path]:
    """The folders of so many cases, as a run leaves them before it is concluded."""
    source = random.Random(seed)
    for index in range(count):
        size = operators[index % len(operators)]
        off = source.uniform(2, 900) * 1e6
        speedup = source.uniform(1.1, 4)
        verdict = _VERDICTS[index % len(_VERDICTS)]
        check = Check(
            "latency (on)",
            verdict,
            "The latency is compared with the baseline's.",
            old=0.97 * off / speedup,
            new=off / speedup,
            unit="ns",
            details=("CONV grew by 2 ms",),
        )
        yield write_case(
            root,
            f"model_{index // len(VARIANTS)}",
            VARIANTS[index % len(VARIANTS)],
            {arm: dump(arm, size, source) for arm in Arm},
            checks=(check,),
            medians_ns={
                Arm.OFF: tuple(off * source.gauss(1, 0.01) for _ in range(20)),
                Arm.ON: tuple(off / speedup * source.gauss(1, 0.01) for _ in range(20)),
            },
            speedup=Estimate(speedup, 0.98 * speedup, 1.02 * speedup, 0.99, 20),
        )
