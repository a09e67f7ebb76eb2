"""Profiles for tests, out of ETDumps that are built in code or were written by real runs."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from pytest_sme2.profile.build import build_profiles
from pytest_sme2.results.evidence import KernelCensus, KernelFamily
from pytest_sme2.results.profile import Profile
from pytest_sme2.results.run import Columns
from pytest_sme2.trace.etdump import read_etdump
from tests.support import ETDUMPS
from tests.support.etdump_builder import (
    Block,
    Tree,
    build_etdump,
    delegate_call,
    inference,
    operator_call,
)

COVERAGE = Path(__file__).parents[1] / "data" / "coverage"

# One call of a program: a delegate's operators, or the name of a kernel.
Call = Sequence[tuple[str, int]] | tuple[str, int]
GAP = 1_000
"""What the framework takes around every call."""


def run_of(calls: Sequence[Call], *, slower: float = 1.0) -> Block:
    """One inference that makes these calls; every operator takes ``slower`` times its duration."""
    trees: list[Tree] = []
    time = 1_000_000
    for instruction, call in enumerate(calls):
        time += GAP
        if isinstance(call, tuple):
            name, duration = call
            end = time + int(duration * slower)
            trees.append(operator_call(instruction, time, end, name))
        else:
            scaled = [(name, int(duration * slower)) for name, duration in call]
            end = time + sum(duration for _, duration in scaled) + GAP
            trees.append(delegate_call(instruction, time, end, scaled))
        time = end
    return inference(trees, start=1_000_000, end=time + GAP)


def columns_of(*runs: Block) -> Columns:
    return read_etdump(build_etdump(runs))


def profile_of(
    *calls: Call,
    census: KernelCensus | None = None,
    executed: Sequence[KernelFamily] | None = None,
) -> Profile:
    """The profile of one run that makes these calls."""
    return build_profiles(columns_of(run_of(calls)), census=census, executed=executed)[0]


def real(name: str, folder: Path = ETDUMPS) -> Profile:
    return build_profiles(read_etdump(folder / f"{name}.etdump"))[0]
