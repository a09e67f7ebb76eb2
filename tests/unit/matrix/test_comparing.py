"""Kernel matrices are kept whole, and compared by what matters most."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from pytest_sme2.profile.kernel_matrix import read_matrix
from pytest_sme2.results.evidence import Cell, KernelMatrix
from tests.unit.profile.test_kernel_matrix import FAILED, LINEAR, MATRIX, POINTWISE
from tools.matrix.comparing import change_lines, changes, write_matrix


def changed(cell: Cell, **fields: object) -> KernelMatrix:
    answers = [
        replace(answer, **fields) if answer.cell == cell else answer  # type: ignore[arg-type]
        for answer in MATRIX.answers
    ]
    return replace(MATRIX, executorch="1.6.0", answers=tuple(answers))


def test_a_matrix_is_read_as_it_was_written_one_line_per_cell(tmp_path: Path) -> None:
    path = tmp_path / "matrix.json"
    write_matrix(MATRIX, path)
    assert read_matrix(path) == MATRIX
    assert sum('"cell"' in line for line in path.read_text().splitlines()) == 3


@pytest.mark.parametrize(
    ("cell", "fields", "what"),
    [
        (LINEAR, {"family": "neon", "kernel": "xnn_neon"}, "family"),
        (LINEAR, {"family": "portable", "kernel": "", "instructions": None}, "family"),
        (LINEAR, {"kernel": "kai_sme2_dot"}, "kernel"),
        (LINEAR, {"instructions": 4400}, "instructions"),
        (LINEAR, {"problem": "the export ended the process"}, "export"),
        (FAILED, {"problem": ""}, "export"),
    ],
)
def test_a_change_is_named_by_what_matters_most(
    cell: Cell, fields: dict[str, object], what: str
) -> None:
    (change,) = changes(MATRIX, changed(cell, **fields))
    assert (change.after.cell, change.what) == (cell, what)
    assert [*change_lines(MATRIX, changed(cell, **fields))][1].startswith(what)


@pytest.mark.parametrize(
    ("cell", "fields"),
    [
        (LINEAR, {}),
        (LINEAR, {"instructions": 4301}),
        (POINTWISE, {"kernel": "library.so+0x99"}),  # a place in a library moves with every build
        (FAILED, {"problem": "RuntimeError: said otherwise"}),
    ],
)
def test_what_stays_the_same_is_not_a_change(cell: Cell, fields: dict[str, object]) -> None:
    assert changes(MATRIX, changed(cell, **fields)) == ()
