"""Kernel matrices: those shipped with the package, and what they say of an operator.

Nothing is said from memory here. An operator without a cell, or a cell without an answer, is
unknown.
"""

from __future__ import annotations

import functools
from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path

from packaging.version import Version

from pytest_sme2.errors import UsageError
from pytest_sme2.profile.categories import has_per_tensor_weights, ran_in
from pytest_sme2.profile.matching import is_pointwise, rows
from pytest_sme2.results.evidence import Cell, KernelMatrix
from pytest_sme2.results.profile import Executor, Operator
from pytest_sme2.results.run import OperatorShapes
from pytest_sme2.system.files import decode, read_json

SCHEMA = 1
_SHIPPED = Path(__file__).parent / "matrices"
_REMEDY = "Make it again with `python -m tools.matrix` in the source of this project."


@functools.cache
def shipped_versions() -> tuple[str, ...]:
    """The versions of ExecuTorch that the package has a matrix of, oldest first."""
    names = (path.stem.removeprefix("executorch-") for path in _SHIPPED.glob("executorch-*.json"))
    return tuple(sorted(names, key=Version))


@functools.cache
def shipped_matrix(version: str) -> KernelMatrix:
    """The matrix of one version of ExecuTorch."""
    return read_matrix(_SHIPPED / f"executorch-{version}.json")


def read_matrix(path: Path) -> KernelMatrix:
    stored = read_json(path, remedy=_REMEDY, error=UsageError, strict=True)["matrix"]
    matrix: KernelMatrix = decode(stored, KernelMatrix, path, remedy=_REMEDY, error=UsageError)
    return matrix


_REGULAR, _ONE_INPUT = "regular", "1 input"


def in_channels_first(operator: Operator) -> bool:
    """Whether XNNPACK chose that layout; no cell of the matrix has it."""
    return "(NCHW" in operator.name


def cell_of(
    operator: Operator, shapes: OperatorShapes | None, known: Iterable[Cell]
) -> Cell | None:
    """The cell that an operator belongs to; None where its shapes or types do not tell.

    ``known`` are the cells of the matrix. Of those that differ in their rows alone, the nearest one
    that is not larger stands for the operator.
    """
    if shapes is None or operator.executor is Executor.PORTABLE or in_channels_first(operator):
        return None
    name = _operator(shapes)
    one_input = name.startswith("convolution") and shapes.inputs[-1][-1] == 1
    layer = (name, _data_type(operator), _ONE_INPUT if one_input else _REGULAR)
    number = rows(shapes) or 0
    cells = (cell for cell in known if (cell.operator, cell.data_type, cell.size) == layer)
    smaller = (cell for cell in cells if cell.rows <= number)
    return max(smaller, key=lambda cell: cell.rows, default=None)


def known_family(operator: Operator, shapes: OperatorShapes | None) -> str:
    """``sme2``, ``neon`` or ``portable`` as in the newest matrix; empty where it is not known."""
    matrix = shipped_matrix(shipped_versions()[-1])
    cell = cell_of(operator, shapes, cells_of(matrix))
    answer = None if cell is None else matrix.by_cell.get(cell)
    return "" if answer is None else answer.family


def cells_of(matrix: KernelMatrix) -> tuple[Cell, ...]:
    return (*(answer.cell for answer in matrix.answers), *matrix.missing)


def _operator(shapes: OperatorShapes) -> str:
    if shapes.operation != "convolution":
        return shapes.operation.replace("matrix product", "batch matrix product")
    if is_pointwise(shapes):
        return "convolution 1x1"
    grouped = shapes.inputs[0][-1] != shapes.inputs[-1][-1]
    return "grouped convolution" if grouped else "convolution 3x3"


# Those of the variants that have another name there.
_DATA_TYPES = {
    "int8": "int8 per channel",
    "int8_dynamic": "dynamic int8",
    "int4": "int4 per group",
    "int4_channel": "int4 per channel",
}


def _data_type(operator: Operator) -> str:
    variant = "int8 per tensor" if has_per_tensor_weights(operator) else ran_in(operator)
    return _DATA_TYPES.get(variant, variant)


def evidence(operator: Operator, shapes: OperatorShapes | None) -> str:
    """What the matrix of the newest version says of this operator, in other data types as well."""
    matrix = shipped_matrix(shipped_versions()[-1])
    head = f"kernel matrix of ExecuTorch {matrix.executorch}"
    cell = cell_of(operator, shapes, cells_of(matrix))
    if cell is None:
        return f"{head}: no cell for it, so what would run on SME2 is not known"
    answer = matrix.by_cell.get(cell)
    if answer is None or not answer.family:
        here = f"{cell} is not known"
    else:
        # A kernel without a name is known by its library alone, which says nothing to a reader.
        kernel = f" ({answer.kernel})" if answer.kernel and ".so" not in answer.kernel else ""
        here = f"{cell}: {_PLACES[answer.family]}{kernel}"
    return f"{head}: {here}; {_elsewhere(matrix, cell)}"


_PLACES = {"sme2": "SME2", "neon": "NEON", "portable": "portable kernels"}


def _elsewhere(matrix: KernelMatrix, cell: Cell) -> str:
    """The same layer in other data types."""
    data_types = dict.fromkeys(
        entry.data_type
        for entry in cells_of(matrix)
        if entry.operator == cell.operator and entry.data_type != cell.data_type
    )
    covered, unknown = [], []
    for data_type in data_types:
        found = matrix.by_cell.get(replace(cell, data_type=data_type))
        if found is None or not found.family:
            unknown.append(data_type)
        elif found.family == "sme2":
            covered.append(data_type)
    *others, last = covered or ("no other data type",)
    text = f"on SME2 in {', '.join(others)} and {last}" if others else f"on SME2 in {last}"
    if unknown:
        text += f" ({', '.join(unknown)}: not known)"
    return text
