"""What operators ran on, and which operator a kernel belongs to."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from pytest_sme2.report.cost import (
    ENGINES,
    NEON,
    PORTABLE,
    SME1,
    SME2,
    engine_names,
    engine_shares,
    engines_of,
    kernel_operators,
)
from pytest_sme2.results import Arm, CaseResult, Counts, Fingerprint, InferenceCost, OperatorCost
from pytest_sme2.session.run_directory import read_record
from tests.support.records import toy_run


@pytest.fixture
def measured(tmp_path: Path) -> CaseResult:
    return read_record(toy_run(tmp_path)[0]).measured


def counted(measured: CaseResult, instructions: int) -> CaseResult:
    costs = tuple(
        OperatorCost(
            member.index, member.label, member.operator.name, member.operator.category,
            member.operator.executor, Counts(instructions=instructions),
            ((f"lib.so+0x{member.index}", 5), ("shared", 1 + member.index)),
        )
        for member in measured.profiles[Arm.ON].operators
    )  # fmt: skip
    cost = InferenceCost("max", 512, costs, (), Counts(), Counts())
    return replace(measured, emulated=True, costs={Arm.ON: cost})


def test_every_operator_runs_on_one_of_three(measured: CaseResult) -> None:
    profile = measured.profiles[Arm.ON]
    engines = engines_of(measured, Arm.ON)
    assert engines.count(SME2) == profile.coverage.sme2_operators == 2
    assert engines.count(PORTABLE) == 2
    assert engines.count(NEON) == len(profile.operators) - 4
    assert SME2 not in engines_of(measured, Arm.OFF)


def test_shares_are_of_time_of_instructions_or_of_operators(measured: CaseResult) -> None:
    number = len(measured.profiles[Arm.ON].operators)
    found = engine_shares(measured)
    assert found is not None
    assert found[0] == "time"
    assert sum(found[1]) == pytest.approx(1)
    for emulated, unit in (
        (counted(measured, 7), "instructions"),
        (replace(measured, emulated=True), "operators"),
    ):
        found = engine_shares(emulated)
        assert found is not None
        assert found[0] == unit
        assert found[1] == pytest.approx([2 / number, (number - 4) / number, 2 / number])
    assert engine_shares(replace(measured, profiles={})) is None
    assert engine_shares(counted(measured, 0)) is None


def test_a_kernel_belongs_to_the_operator_that_runs_it_most(measured: CaseResult) -> None:
    found = kernel_operators(counted(measured, 7))
    operators = measured.profiles[Arm.ON].operators
    assert found["lib.so+0x0"] == operators[0].operator.name
    sums: dict[str, int] = {}
    for member in operators:
        sums[member.operator.name] = sums.get(member.operator.name, 0) + 1 + member.index
    assert found["shared"] == max(sums, key=lambda name: sums[name])
    assert kernel_operators(measured) == {}


def test_nothing_is_called_neon_on_another_cpu(measured: CaseResult) -> None:
    assert engine_names([measured]) == ENGINES[:SME1]
    foreign = replace(measured, fingerprint=Fingerprint("linux", (("platform", "linux-x86_64"),)))
    assert engine_names([measured, foreign]) == ("SME2", "XNNPACK", "portable")
