"""Which kernels ran, what a pair of runs shows, and which kernel an operator is known to get."""

from __future__ import annotations

import functools
from collections.abc import Mapping
from dataclasses import dataclass, field

from pytest_sme2.results.run import Arm, Artifact, Run, Word


class KernelFamily(Word):
    """What instructions a kernel is made of."""

    SME2 = "sme2"
    SME = "sme"
    NEON = "neon"
    OTHER = "other"


@dataclass(frozen=True)
class Kernel:
    """One kernel or operator, and how often it was seen."""

    name: str
    """The kernel's symbol; ``library.so+0x1234`` where the library hides it."""
    family: KernelFamily
    count: int
    """Translated blocks, runs or log lines, as the census's source has them."""
    named: bool = True
    """False where the name is only a place, and the family was read off the instructions."""


@dataclass(frozen=True)
class KernelCensus:
    """The kernels of one arm, and how we know of them."""

    arm: Arm
    source: str
    """``emulator`` (translated blocks of the running process) or ``xnnpack-log``."""
    kernels: tuple[Kernel, ...]
    """What ran. Empty for ``xnnpack-log``: it names the operators that ran, not their kernels."""
    operators: tuple[Kernel, ...] = ()
    """The operators that ran, from XNNPACK's log."""
    candidates: tuple[Kernel, ...] = ()
    """The kernels XNNPACK made ready, from its log: they may have run, or not."""
    blocks: int = 0
    """All blocks the emulator translated, kernels or not; 0 means that nothing was observed."""

    def of(self, family: KernelFamily) -> tuple[Kernel, ...]:
        return tuple(kernel for kernel in self.kernels if kernel.family is family)


@dataclass(frozen=True)
class Evidence:
    """Whether a pair shows what it claims to show."""

    valid: bool
    message: str
    """One sentence: what was seen, or which side is wrong."""
    matrix_operators: int
    sme2_on: int
    """Matrix operators of the on run that ran on SME2 kernels."""
    sme2_off: int
    """The same of the off run; anything but 0 is wrong."""


@dataclass(frozen=True)
class Pair:
    """SME2 on against off on one target: untraced runs for time, traced ones for structure."""

    artifact: Artifact
    target: str
    on: tuple[Run, ...]
    off: tuple[Run, ...]
    traced: Mapping[Arm, Run]
    """Of each arm that was traced; a third arm is traced alone."""
    evidence: Evidence | None
    """None where the target has no SME2 and only the off arm ran."""
    censuses: Mapping[Arm, KernelCensus | None] = field(default_factory=dict)


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
    answers: tuple[CellAnswer, ...]
    missing: tuple[Cell, ...] = ()
    """The cells that were asked for and are not made yet."""

    @functools.cached_property
    def by_cell(self) -> Mapping[Cell, CellAnswer]:
        # Asked for once per operator; the hash of a whole matrix would cost more than the answer.
        return {answer.cell: answer for answer in self.answers}
