"""Times and instructions of the same operators, from the kept sample runs."""

from __future__ import annotations

from pathlib import Path

import pytest

from pytest_sme2.results.run import Arm
from pytest_sme2.session.run_directory import find_records, read_record
from tools.against_hardware import beside, spearman

SAMPLES = Path(__file__).parents[2] / "docs" / "sample"


def test_the_operators_of_both_runs_are_put_side_by_side() -> None:
    (timed,) = find_records(SAMPLES / "linux" / "toy_cnn-fp32")
    (counted,) = find_records(SAMPLES / "emulated" / "toy_cnn-fp32")
    measured, emulated = read_record(timed).measured, read_record(counted).measured
    cost = emulated.costs[Arm.OFF]
    rows = beside(measured.profiles[Arm.OFF], emulated.profiles[Arm.OFF], cost)
    assert 10 <= len(rows) <= len(cost.operators)
    assert sum(row["instructions"] for row in rows) <= cost.total.instructions
    assert rows[0]["off"] == pytest.approx(max(row["off"] for row in rows)) or rows[0]["off"] < 1
    assert 0 < spearman(rows) < 1


def test_the_order_of_times_is_compared_with_that_of_instructions() -> None:
    """By hand: the squares of the differences of ranks are 1, 1 and 0: 1 - 6 * 2 / (3 * 8)."""
    rows = [{"ns": ns, "instructions": count} for ns, count in ((1, 20), (2, 10), (90, 30))]
    assert spearman(rows) == pytest.approx(0.5)
    assert spearman(rows[:2]) == 0
