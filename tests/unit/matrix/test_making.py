"""Which operators of a sheet belong to which cell."""

from __future__ import annotations

from dataclasses import replace

from pytest_sme2.results.evidence import Cell, CellAnswer
from pytest_sme2.results.run import Arm
from tests.unit.profile.test_kernel_matrix import FAILED, LINEAR, MATRIX, POINTWISE
from tools.matrix.cells import multiply_accumulates
from tools.matrix.making import joined, merged, share_out, steps

SMALL = Cell("linear", "fp32", 4, "regular")
LARGE = Cell("linear", "fp32", 32, "regular")


def test_the_first_operators_of_all_layers_may_come_first() -> None:
    """As attention runs: each product is a delegate call of its own, and some are of one size."""
    cells = [
        Cell("attention", "fp32", 4, "regular"),
        Cell("attention", "fp32", 32, "regular"),
        Cell("attention", "fp32", 32, "odd outputs"),
    ]
    first, second = zip(*map(steps, cells), strict=True)
    assert first[1] == first[2] == second[1]
    found = share_out([*first, *second], cells)
    assert found == {cells[0]: (0, 3), cells[1]: (1, 4), cells[2]: (2, 5)}
    assert share_out([*first, *first], cells) is None


def test_what_cannot_be_told_apart_is_not_guessed() -> None:
    small, large = multiply_accumulates(SMALL), multiply_accumulates(LARGE)
    both = [SMALL, LARGE]
    assert share_out([small, large, large], both) is None
    assert share_out([small, small], both) is None
    assert share_out([small, large + 1], both) is None
    assert share_out([small, None], both) is None
    assert share_out([], both) is None
    # Without counts the order of the layers tells.
    assert share_out([None, None], both) == {SMALL: (0,), LARGE: (1,)}
    assert share_out([None] * 3, both) is None


def test_what_ran_without_sme2_stands_beside_the_answer() -> None:
    hidden = CellAnswer(SMALL, "sme1", "kai_run_matmul_sme_mopa", instructions=7)
    on = CellAnswer(SMALL, "sme2", "kai_run_matmul_sme2_mopa", instructions=5)
    found = joined(on, hidden, Arm.SME1)
    assert (found.family, found.instructions) == ("sme2", 5)
    assert (found.sme1, found.sme1_kernel) == (hidden.family, hidden.kernel)
    assert found.sme1_instructions == 7
    off = CellAnswer(SMALL, "neon", "kai_neon", ("Fully Connected (NC, F32) GEMM",))
    found = joined(found, off, Arm.OFF)
    assert (found.family, found.sme1, found.off) == ("sme2", "sme1", off.operators)
    assert found.off_kernel == "kai_neon"


def test_a_matrix_that_is_made_in_parts_keeps_what_it_has_and_names_what_is_missing() -> None:
    cells = (LINEAR, POINTWISE, FAILED)
    first = replace(MATRIX, answers=MATRIX.answers[:1], missing=cells[1:])
    second = replace(MATRIX, answers=MATRIX.answers[1:2], missing=())
    both = merged(first, second, cells)
    assert both.answers == MATRIX.answers[:2]
    assert both.missing == (FAILED,)
    # Nothing comes from another version.
    other = merged(replace(first, executorch="1.5.0"), second, cells)
    assert other.answers == MATRIX.answers[1:2]
    assert other.missing == (LINEAR, FAILED)
