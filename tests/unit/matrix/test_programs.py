"""The programs of the matrix: what is made is kept, and a crash takes one sheet."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from pytest_sme2.profile.kernel_matrix import shipped_matrix, shipped_versions
from tools import many_exports
from tools.matrix.cells import (
    all_cells,
    multiply_accumulates,
    sheets,
    sizes,
)
from tools.matrix.programs import Programs

SHEETS = sheets(all_cells())[:4]

# Stands in for the child that needs torch: the third sheet ends the process.
CHILD = f"""
import json, os, sys
from pathlib import Path
for line in sys.stdin:
    folder = Path(json.loads(line)["folder"])
    folder.mkdir(parents=True, exist_ok=True)
    if folder.name == {SHEETS[2].id!r}:
        os._exit(11)
    (folder / "export.json").write_text(json.dumps({{"problem": "made by " + str(os.getpid())}}))
    print("done", flush=True)
"""


@pytest.fixture
def made(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Programs]:
    monkeypatch.setenv("SME2_CACHE_DIR", str(tmp_path))
    monkeypatch.setattr(many_exports, "_BOOTSTRAP", CHILD)
    programs_made = Programs({"executorch": "1.5.1"}, lambda line: None)
    yield programs_made
    programs_made.close()


def problems(made: Programs) -> list[set[str]]:
    return [set(made.program(sheet).problems.values()) for sheet in SHEETS]


def test_a_sheet_that_ends_the_process_is_named_and_the_others_go_on(made: Programs) -> None:
    found = problems(made)
    assert found[2] == {"the export ended the process"}
    assert found[0] == found[1] != found[3]
    assert all(min(found[index]).startswith("made by") for index in (0, 1, 3))


def test_sizes_fit_each_other() -> None:
    """Rows are the pixels of a convolution, groups divide channels, and four bits are linear's."""
    for cell in all_cells():
        size = sizes(cell)
        assert size.height * size.width == cell.rows
        assert size.inputs % size.groups == size.outputs % size.groups == 0
        assert cell.operator == "linear" or not cell.data_type.startswith("int4")


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
