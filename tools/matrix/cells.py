"""The questions of the matrix: operators times data types times rows, and awkward sizes."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable
from dataclasses import dataclass

from pytest_sme2.results.evidence import Cell

OPERATORS = (
    "linear",
    "convolution 1x1",
    "convolution 3x3",
    "grouped convolution",
    "depthwise convolution",
    "transposed convolution",
    "batch matrix product",
    "attention",
)

DATA_TYPES = (
    "fp32",
    "fp16",
    "fp16 with fp32 weights",
    "bf16",
    "int8 per tensor",
    "int8 per channel",
    "dynamic int8",
    "int4 per group",
    "int4 per channel",
)

# What XNNPACK's quantizer is asked for, in the graph.
QUANTIZED: dict[str, dict[str, bool | int]] = {
    "int8 per tensor": {"is_per_channel": False},
    "int8 per channel": {"is_per_channel": True},
    "dynamic int8": {"is_per_channel": True, "is_dynamic": True},
    "int4 per channel": {
        "is_per_channel": True, "is_dynamic": True, "weight_qmin": -8, "weight_qmax": 7,
    },
}  # fmt: skip

ROWS = (1, 4, 32, 256)
# Awkward sizes are asked for once: how many rows there are changes little about them.
AWKWARD_ROWS = 32

REGULAR = "regular"
_CHANNELS = {REGULAR: (64, 64), "odd inputs": (67, 64), "odd outputs": (64, 61), "1 input": (1, 64)}
SIZES = tuple(_CHANNELS)

# Of attention and of the batch matrix product.
HEADS = 4
KEYS = 32

# Operators without weights: a data type of the weights does not apply to them.
WITHOUT_WEIGHTS = ("batch matrix product", "attention")
_OF_WEIGHTS = ("fp16 with fp32 weights", "int4 per group", "int4 per channel")
# These are quantized in linear layers only.
_OF_LINEAR = ("int4 per group", "int4 per channel")


@dataclass(frozen=True)
class Sizes:
    inputs: int
    """Input channels, or columns of the left matrix."""
    outputs: int
    groups: int
    height: int
    width: int
    """Height times width are the rows of a convolution."""


def sizes(cell: Cell) -> Sizes:
    inputs, outputs = _CHANNELS[cell.size]
    groups = 1
    if cell.operator == "grouped convolution":
        groups, inputs = 4, inputs + -inputs % 4
        outputs += -outputs % 4
    if cell.operator == "depthwise convolution":
        groups, outputs = inputs, inputs
    height = {1: 1, 4: 2, 32: 4, 256: 16}[cell.rows]
    return Sizes(inputs, outputs, groups, height, cell.rows // height)


def multiply_accumulates(cell: Cell) -> int:
    size = sizes(cell)
    if cell.operator == "attention":
        return HEADS * cell.rows * KEYS * (size.inputs + size.outputs)
    if cell.operator == "batch matrix product":
        return HEADS * cell.rows * size.inputs * size.outputs
    taps = 1 if cell.operator in ("linear", "convolution 1x1") else 9
    return cell.rows * size.inputs * size.outputs * taps // size.groups


def all_cells() -> tuple[Cell, ...]:
    """Every question that makes sense, in the order of the page."""
    return tuple(
        Cell(operator, data_type, rows, size)
        for operator in OPERATORS
        for data_type in DATA_TYPES
        for size in SIZES
        for rows in (ROWS if size == REGULAR else (AWKWARD_ROWS,))
        if _makes_sense(operator, data_type, size)
    )


def _makes_sense(operator: str, data_type: str, size: str) -> bool:
    if operator in WITHOUT_WEIGHTS and data_type in _OF_WEIGHTS:
        return False
    if data_type in _OF_LINEAR and operator != "linear":
        return False
    # Inputs and outputs are one number in a depthwise one.
    grouped = operator in ("depthwise convolution", "grouped convolution")
    return not grouped or size in (REGULAR, "odd inputs")


@dataclass(frozen=True)
class Sheet:
    """Cells that share one program, with a layer each: starting a run costs more than a layer."""

    cells: tuple[Cell, ...]

    @property
    def id(self) -> str:
        """A name that is safe as a folder name."""
        if len(self.cells) == 1:
            return self.cells[0].id
        digest = hashlib.sha256("".join(cell.id for cell in self.cells).encode()).hexdigest()
        first = self.cells[0]
        return f"{first.operator}-{first.data_type}-{digest[:8]}".replace(" ", "_")

    def __str__(self) -> str:
        return f"{self.cells[0].operator}, {self.cells[0].data_type}"

    def alone(self) -> tuple[Sheet, ...]:
        return tuple(Sheet((cell,)) for cell in self.cells)


def sheets(cells: Iterable[Cell]) -> tuple[Sheet, ...]:
    found: dict[tuple[str, str], list[Cell]] = {}
    for cell in cells:
        found.setdefault((cell.operator, cell.data_type), []).append(cell)
    return tuple(Sheet(tuple(group)) for group in found.values())
