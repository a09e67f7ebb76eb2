"""What the shipped kernel matrix says of an operator: the cell that it belongs to, and its answer.

Nothing is said from memory here. An operator without a cell, or a cell without an answer, is
unknown.
"""

from __future__ import annotations

from collections.abc import Iterable

from pytest_sme2.profile.categories import has_per_tensor_weights
from pytest_sme2.profile.kernel_matrix import find_answer, shipped_matrix, shipped_versions
from pytest_sme2.profile.shapes import is_pointwise, rows
from pytest_sme2.results import Cell, Executor, KernelMatrix, Operator, OperatorShapes

# Reports of these upstream. For which versions they hold, the matrices say.
_UPSTREAM = {
    ("convolution 1x1", "fp16"): "executorch#9753",
}
_REGULAR, _ONE_INPUT = "regular", "1 input"
_OPERATIONS = {
    "linear": "linear",
    "matrix product": "batch matrix product",
    "transposed convolution": "transposed convolution",
    "depthwise convolution": "depthwise convolution",
}


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
    smaller = [
        cell
        for cell in known
        if (cell.operator, cell.data_type, cell.size) == layer and cell.rows <= number
    ]
    return max(smaller, key=lambda cell: cell.rows, default=None)


def known_family(operator: Operator, shapes: OperatorShapes | None) -> str:
    """``sme2``, ``neon`` or ``portable`` as in the newest matrix; empty where it is not known."""
    versions = shipped_versions()
    if shapes is None or not versions:
        return ""
    matrix = shipped_matrix(versions[-1])
    cell = cell_of(operator, shapes, cells_of(matrix))
    answer = None if cell is None else find_answer(matrix, cell)
    return "" if answer is None else answer.family


def cells_of(matrix: KernelMatrix) -> tuple[Cell, ...]:
    return (*(answer.cell for answer in matrix.answers), *matrix.missing)


def _operator(shapes: OperatorShapes) -> str:
    if shapes.operation != "convolution":
        return _OPERATIONS.get(shapes.operation, "")
    if is_pointwise(shapes):
        return "convolution 1x1"
    return (
        "convolution 3x3"
        if shapes.inputs[0][-1] == shapes.inputs[-1][-1]
        else ("grouped convolution")
    )


def _data_type(operator: Operator) -> str:
    types = operator.data_types
    if not types:
        return ""
    if "QB4W" in types:
        return "int4 per group"
    if "QC4W" in types:
        return "int4 per channel"
    if types[0] in ("QD8", "QP8"):
        return "dynamic int8"
    if has_per_tensor_weights(operator):
        return "int8 per tensor"
    plain = {"F32": "fp32", "PF32": "fp32", "F16": "fp16", "PF16": "fp16", "BF16": "bf16"}
    quantized = dict.fromkeys(("QS8", "QC8", "PQS8"), "int8 per channel")
    return {**plain, **quantized}.get(types[0], "")


def evidence(operator: Operator, shapes: OperatorShapes | None) -> str:
    """What the matrix of the newest version says of this operator, in other data types as well."""
    versions = shipped_versions()
    if not versions:
        return ""
    matrix = shipped_matrix(versions[-1])
    head = f"kernel matrix of ExecuTorch {matrix.executorch}"
    cell = cell_of(operator, shapes, cells_of(matrix))
    if cell is None:
        return f"{head}: no cell for it, so what would run on SME2 is not known"
    answer = find_answer(matrix, cell)
    if answer is None or not answer.family:
        here = f"{cell} is not known"
    else:
        # A kernel without a name is known by its library alone, which says nothing to a reader.
        kernel = f" ({answer.kernel})" if answer.kernel and ".so" not in answer.kernel else ""
        here = f"{cell}: {_PLACES[answer.family]}{kernel}"
    return f"{head}: {here}; {_elsewhere(matrix, cell)}{_upstream(cell)}"


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
        found = find_answer(matrix, Cell(cell.operator, data_type, cell.rows, cell.size))
        if found is None or not found.family:
            unknown.append(data_type)
        elif found.family == "sme2":
            covered.append(data_type)
    *others, last = covered or ("no other data type",)
    text = f"on SME2 in {', '.join(others)} and {last}" if others else f"on SME2 in {last}"
    if unknown:
        text += f" ({', '.join(unknown)}: not known)"
    return text


def _upstream(cell: Cell) -> str:
    reference = _UPSTREAM.get((cell.operator, cell.data_type))
    answers = {
        version: find_answer(shipped_matrix(version), cell) for version in shipped_versions()
    }
    seen = [version for version, found in answers.items() if found and found.family == "neon"]
    return f"; {reference}, seen in {' and '.join(seen)}" if reference and seen else ""
