"""Which kernel runs an operator: one cell per operator, data type, number of rows and size."""

from __future__ import annotations

import functools
from collections.abc import Mapping
from dataclasses import dataclass


@dataclass(frozen=True)
class Cell:
    """One question to ExecuTorch: a layer with a single operator."""

    operator: str
    """``linear``, ``convolution 1x1``, …: see ``tools/matrix/cells.py``."""
    data_type: str
    rows: int
    """Rows of the matrix product: tokens of a linear layer, pixels of a convolution."""
    size: str
    """``regular``, or what is awkward about its channels."""

    @property
    def id(self) -> str:
        """A name that is safe as a folder name."""
        words = (self.operator, self.data_type, f"m{self.rows}", self.size)
        return "-".join(word.replace(" ", "_") for word in words)

    def __str__(self) -> str:
        rows = "1 row" if self.rows == 1 else f"{self.rows} rows"
        return f"{self.operator}, {self.data_type}, {rows}, {self.size} size"


@dataclass(frozen=True)
class CellAnswer:
    """What happened to the layer of one cell."""

    cell: Cell
    family: str = ""
    """``sme2``, ``neon`` or ``portable``: where most of the matrix work ran; empty if it failed."""
    kernel: str = ""
    """The kernel with most of the instructions of the matrix operators."""
    operators: tuple[str, ...] = ()
    """The matrix operators as the ETDump names them, in the order in which they ran."""
    macs: int | None = None
    instructions: int | None = None
    """Of the matrix operators, with the packing inside them; None where not counted."""
    sqnr_db: float | None = None
    """Of the outputs against eager fp32; None where they are identical or there is none."""
    problem: str = ""
    """Why there is no answer: the export or the run failed, in one line."""
    sme1: str = ""
    """``sme1``, ``neon`` or ``portable``: where it ran with SME2 hidden; empty if not known."""
    sme1_kernel: str = ""
    sme1_instructions: int | None = None

    @property
    def instructions_per_mac(self) -> float | None:
        return self.instructions / self.macs if self.instructions and self.macs else None


@dataclass(frozen=True)
class KernelMatrix:
    """All answers of one ExecuTorch wheel."""

    executorch: str
    torch: str
    torchao: str
    cpu: str
    """The emulated CPU."""
    answers: tuple[CellAnswer, ...]
    missing: tuple[Cell, ...] = ()
    """The cells that were asked for and are not made yet."""

    @functools.cached_property
    def by_cell(self) -> Mapping[Cell, CellAnswer]:
        # Asked for once per operator; the hash of a whole matrix would cost more than the answer.
        return {answer.cell: answer for answer in self.answers}
