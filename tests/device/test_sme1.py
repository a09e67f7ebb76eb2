"""SME without SME2, in a real emulator: as a third arm, and as a chip that has nothing else."""

from __future__ import annotations

from pathlib import Path

import pytest

from pytest_sme2.errors import BaselineError
from pytest_sme2.report.markdown import run_report
from pytest_sme2.report.terminal import run_lines
from pytest_sme2.results.case import CaseResult, Limits
from pytest_sme2.results.evidence import KernelFamily
from pytest_sme2.results.run import PAIR, Arm
from pytest_sme2.results.timing import Outcome
from pytest_sme2.session.run_directory import CaseRecord, read_record
from pytest_sme2.session.session import Session
from pytest_sme2.session.settings import Settings, parse_arms
from pytest_sme2.verdict import baselines, cost, structure
from pytest_sme2.verdict.baselines import render
from tests.device import provision


def settings(folder: Path, **chosen: object) -> Settings:
    provision.emulator()
    provision.runner()
    artifact = provision.artifact("fp32")
    chosen = {"device": "emulated", "out": folder, "models": (str(artifact.pte),), **chosen}
    return Settings(**chosen)  # type: ignore[arg-type]


def measure(folder: Path, **chosen: object) -> tuple[CaseResult, CaseRecord]:
    session = Session(settings(folder, **chosen))
    try:
        (case,) = session.cases()
        measured = session.measured(case, timed=False)
        return measured, read_record(session.keep(case, measured, ()))
    finally:
        session.close()


def multiplied(measured: CaseResult, arm: Arm) -> set[KernelFamily]:
    """The families of the kernels that multiply and have a name."""
    return {entry.family for entry in measured.kernels[arm].kernels if "_matmul_" in entry.name}


def test_three_arms_and_a_chip_without_sme2(tmp_path: Path) -> None:
    three, record = measure(tmp_path / "three", arms=parse_arms("off,sme1,on"))
    assert {*three.structures} == {*Arm}
    counts = {arm: (found.sme2, found.sme1) for arm, found in three.structures.items()}
    assert counts == {Arm.ON: (6, 0), Arm.OFF: (0, 0), Arm.SME1: (6, 6)}
    assert multiplied(three, Arm.ON) == {KernelFamily.SME2}
    assert multiplied(three, Arm.SME1) == {KernelFamily.SME}
    assert multiplied(three, Arm.OFF) == set()
    assert "6 on SME1 with SME2 hidden" in three.evidence.message
    work = {arm: found.total for arm, found in three.costs.items()}
    assert work[Arm.ON].instructions < work[Arm.SME1].instructions < work[Arm.OFF].instructions
    assert work[Arm.ON].outer_products == work[Arm.SME1].outer_products > 0
    assert {(entry.against, entry.arm) for entry in three.agreements} >= {("off", Arm.SME1)}
    assert "Minst sme1" in run_lines([record])[1]
    assert "SME2 sme1" in run_report([record])

    # Two arms keep what the third has stored, to the byte.
    stored, _ = baselines.update(None, three)
    two, record = measure(tmp_path / "two")
    assert {*two.structures} == {*PAIR}
    assert "sme1" not in "\n".join(run_lines([record])) + run_report([record])
    assert render(baselines.update(stored, two)[0]) == render(stored)
    assert "sme1" not in render(baselines.update(None, two)[0])

    # A chip without SME2 is compared with the third arm.
    chip, record = measure(tmp_path / "chip", emulated_cpu="sme1")
    assert chip.device == "emulated (SME1)"
    assert multiplied(chip, Arm.ON) == {KernelFamily.SME}
    assert chip.evidence.valid
    assert "on (SME1)" in run_report([record])
    said = "\n".join(run_lines([record]))
    assert "the chip has SME and no SME2: on is SME1" in said
    old = stored.on_chip(chip.fingerprint)
    checks = [
        structure.check_coverage(chip, old, Limits()),
        *(structure.check_operators(chip, old, arm) for arm in PAIR),
        *(structure.check_kernels(chip, old, arm) for arm in PAIR),
        *(cost.check_cost(chip, old, Limits(), arm) for arm in PAIR),
    ]
    assert [check.verdict for check in checks] == [Outcome.PASS] * len(checks)
    assert structure.check_kernels(chip, stored, Arm.ON).verdict is Outcome.REGRESSED
    with pytest.raises(BaselineError, match="--sme2-arms off,sme1,on"):
        baselines.refuse_unfit(chip)
