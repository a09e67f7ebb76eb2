"""The questions of the kernel matrix."""

from __future__ import annotations

import pytest

from pytest_sme2.profile.kernel_matrix import shipped_matrix, shipped_versions
from tools.matrix.cells import (
    DATA_TYPES,
    OPERATORS,
    ROWS,
    all_cells,
    multiply_accumulates,
    sheets,
    sizes,
)


def test_every_operator_data_type_and_number_of_rows_is_asked_for() -> None:
    cells = all_cells()
    assert {cell.operator for cell in cells} == set(OPERATORS)
    assert {cell.data_type for cell in cells} == set(DATA_TYPES)
    assert {cell.rows for cell in cells} == set(ROWS)


def test_ids_are_unique_and_safe_as_folder_names() -> None:
    names = [cell.id for cell in all_cells()]
    assert len(set(names)) == len(names)
    assert all(name.replace("_", "").replace("-", "").isalnum() for name in names)


def test_rows_are_the_pixels_of_a_convolution() -> None:
    for cell in all_cells():
        size = sizes(cell)
        assert size.height * size.width == cell.rows


def test_groups_divide_the_channels() -> None:
    for cell in all_cells():
        size = sizes(cell)
        assert size.inputs % size.groups == 0
        assert size.outputs % size.groups == 0


def test_four_bits_are_asked_for_in_linear_layers_alone() -> None:
    four_bits = {cell.operator for cell in all_cells() if cell.data_type.startswith("int4")}
    assert four_bits == {"linear"}


def test_a_sheet_is_one_operator_in_one_data_type_and_its_cells_are_told_apart() -> None:
    made = sheets(all_cells())
    assert [cell for sheet in made for cell in sheet.cells] == list(all_cells())
    assert len({sheet.id for sheet in made}) == len(made)
    for sheet in made:
        assert len({(cell.operator, cell.data_type) for cell in sheet.cells}) == 1
        assert len({multiply_accumulates(cell) for cell in sheet.cells}) == len(sheet.cells)
        assert [single.cells for single in sheet.alone()] == [(cell,) for cell in sheet.cells]


@pytest.mark.parametrize("version", shipped_versions())
def test_a_shipped_matrix_answers_every_cell_or_names_it_as_missing(version: str) -> None:
    matrix = shipped_matrix(version)
    assert matrix.executorch == version
    known = [answer.cell for answer in matrix.answers]
    assert len(set(known)) == len(known) > 0
    assert {*known, *matrix.missing} == set(all_cells())
    assert set(known).isdisjoint(matrix.missing)
    for answer in matrix.answers:
        assert bool(answer.family) != bool(answer.problem)
        if answer.family == "sme2":
            assert "sme" in answer.kernel
