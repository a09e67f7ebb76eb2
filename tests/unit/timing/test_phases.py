"""Phases of generations: planted slowdowns are found in their phase, and where they begin."""

from __future__ import annotations

import math
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from pytest_sme2.results.case import DECODE, PREFILL
from pytest_sme2.results.run import Arm, Artifact, Run, RunRequest, Turn
from pytest_sme2.results.timing import Outcome
from pytest_sme2.timing.processes import (
    compare_phases,
    log_ratios,
    step_times,
)
from pytest_sme2.timing.stats import Floats

PROMPT, STEPS, PAIRS = 16, 65, 14


def ratios(prompt: float = 1.0, decode: float = 1.0, since: int = 0, seed: int = 0) -> Floats:
    """Of pairs with noise; the decode is slower from the step ``since`` on."""
    noise = np.random.default_rng(seed).normal(0, 0.01, (PAIRS, STEPS))
    noise[:, 0] += math.log(prompt)
    noise[:, 1 + since :] += math.log(decode)
    return noise


def run(steps_ns: tuple[int, ...]) -> Run:
    request = RunRequest(Artifact("net", "fp32", Path(), Path(), "", (), ()), Arm.OFF)
    return Run(request, "linux", "wheel", False, None, (1,), step_wall_ns=steps_ns)


def slower(found: Floats) -> list[tuple[str, int]]:
    parts = compare_phases(found, PROMPT, 0.02, family=1)
    return [(part.phase, part.context) for part in parts if part.outcome is Outcome.REGRESSED]


def test_a_step_is_compared_with_the_same_step() -> None:
    old, new = run((10, 4, 6, 30, 4, 6)), run((10, 8, 6, 30, 8, 6))
    assert step_times(old, 3).tolist() == [[10, 4, 6], [30, 4, 6]]
    assert np.exp(log_ratios([old], [new], 3))[0].tolist() == pytest.approx([1, 2, 1])


def test_a_spell_of_noise_that_strikes_both_turns_is_no_difference() -> None:
    turn = Turn(runs=1, lead=0)
    old, new = run((10, 10, 30, 40, 10, 10)), run((11, 10, 33, 40, 11, 10))
    old, new = (replace(one, request=replace(one.request, turn=turn)) for one in (old, new))
    assert np.exp(log_ratios([old], [new], 2))[0].tolist() == pytest.approx([1.1, 1])
    # One that struck the reference's second turns alone.
    new = replace(new, step_wall_ns=(11, 10, 11, 10, 11, 10))
    assert np.exp(log_ratios([old], [new], 2))[0].tolist() == pytest.approx([1.1, 1])


def test_each_phase_is_judged_on_its_own() -> None:
    # No phase of the same thing is slower.
    assert [slower(ratios(seed=seed)) for seed in range(20)] == [[]] * 20
    assert slower(ratios(prompt=1.1)) == [(PREFILL, PROMPT)]
    assert {phase for phase, _ in slower(ratios(decode=1.1))} == {DECODE}
    assert slower(ratios(decode=1.1, since=48)) == [(DECODE, PROMPT + 49)]
