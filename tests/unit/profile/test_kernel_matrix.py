"""Kernel matrices as files: kept whole, refused when damaged, compared cell by cell."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from pytest_sme2.errors import UsageError
from pytest_sme2.profile.kernel_matrix import (
    changes,
    read_matrix,
    select,
    shipped_matrix,
    write_matrix,
)
from pytest_sme2.results import Cell, CellAnswer, KernelMatrix

LINEAR = Cell("linear", "fp32", 32, "regular")
POINTWISE = Cell("convolution 1x1", "fp16", 32, "regular")
FAILED = Cell("attention", "bf16", 1, "regular")
MATRIX = KernelMatrix(
    executorch="1.5.1",
    torch="2.13.0",
    torchao="0.18.0",
    cpu="max,sme512=on,sme_fa64=off",
    answers=(
        CellAnswer(LINEAR, "sme2", "kai_sme2_mopa", ("Fully Connected",), 131072, 4300, 138.9),
        CellAnswer(POINTWISE, "neon", "library.so+0x10", ("Convolution",), 4096, 900, 60.0),
        CellAnswer(FAILED, problem="RuntimeError: no such kernel"),
    ),
)


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
    "text", ["", "[]", '{"schema": 2}', '{"schema": 1}', '{"schema": 1, "matrix": {"cpu": 3}}']
)
def test_a_damaged_matrix_is_one_clear_error(tmp_path: Path, text: str) -> None:
    path = tmp_path / "matrix.json"
    path.write_text(text)
    with pytest.raises(UsageError, match=r"matrix\.json.*tools\.matrix"):
        read_matrix(path)


def test_a_version_without_a_matrix_is_refused_with_those_that_have_one() -> None:
    with pytest.raises(UsageError, match=r"no matrix of ExecuTorch 0\.1.*1\.5\.1"):
        shipped_matrix("0.1")


def test_what_is_not_in_the_matrix_is_unknown() -> None:
    assert MATRIX.by_cell[LINEAR] == MATRIX.answers[0]
    assert replace(LINEAR, rows=5) not in MATRIX.by_cell


@pytest.mark.parametrize(
    ("cell", "fields", "what"),
    [
        (LINEAR, {"family": "neon", "kernel": "xnn_neon"}, "family"),
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


def test_answers_are_selected_by_operator_data_type_and_family() -> None:
    assert select(MATRIX, operators=["linear"]) == MATRIX.answers[:1]
    assert select(MATRIX, data_types=["fp16"]) == MATRIX.answers[1:2]
    assert select(MATRIX, family="sme2") == MATRIX.answers[:1]
    assert select(MATRIX) == MATRIX.answers
