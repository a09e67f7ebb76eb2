"""Kernel matrices for people: a page with filters, and a table for the documentation. Pure."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from pathlib import Path

from pytest_sme2.profile.kernel_matrix import find_answer
from pytest_sme2.results import Cell, KernelMatrix
from pytest_sme2.system.files import encode

_TEMPLATE = Path(__file__).parent / "page" / "matrix.html"
_PLACES = {"sme2": "**SME2**", "neon": "NEON", "portable": "portable", "": "fails"}


def page(matrices: Sequence[KernelMatrix]) -> str:
    """One file that needs no network; the oldest version comes first."""
    data = json.dumps({matrix.executorch: encode(matrix) for matrix in matrices})
    # No text of a matrix can end the script that holds it.
    return _TEMPLATE.read_text("utf-8").replace("@DATA@", data.replace("<", "\\u003c"))


def overview(matrix: KernelMatrix, *, rows: int = 32, size: str = "regular") -> Iterator[str]:
    """A Markdown table: operators, data types, and where each runs."""
    cells = [*(answer.cell for answer in matrix.answers), *matrix.missing]
    data_types = list(dict.fromkeys(cell.data_type for cell in cells))
    yield f"| operator | {' | '.join(data_types)} |"
    yield f"| --- |{' --- |' * len(data_types)}"
    for operator in dict.fromkeys(cell.operator for cell in cells):
        places = [_place(matrix, Cell(operator, data_type, rows, size)) for data_type in data_types]
        yield f"| {operator} | {' | '.join(places)} |"


def _place(matrix: KernelMatrix, cell: Cell) -> str:
    answer = find_answer(matrix, cell)
    if answer is not None:
        return _PLACES[answer.family]
    return "?" if cell in matrix.missing else ""
