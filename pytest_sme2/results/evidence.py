"""Which kernels ran, what a pair of runs shows, and which kernel an operator is known to get. What
one inference executes, counted in an emulator: exact, and never a time.
"""

from __future__ import annotations

import functools
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, fields
from operator import attrgetter

from pytest_sme2.results.profile import Category, Executor
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
    count: int = 1
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
    streaming: int | None = None
    """Those of them with instructions of streaming mode or on ZA, in the whole run; None where no
    instruction is seen."""

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
    off: tuple[str, ...] = ()
    """The matrix operators with all of SME off; empty if not known."""
    off_kernel: str = ""


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


@dataclass(frozen=True)
class Counts:
    """Executed instructions, and what kinds of them."""

    instructions: int = 0
    outer_products: int = 0
    """MOPA and MOPS: a whole tile of multiply-accumulates each."""
    sme2_other: int = 0
    """All others that enter streaming mode, or work on ZA or on groups of vectors."""


# ``dataclasses.astuple`` copies every number on its way, which took half of a report's time.
numbers_of = attrgetter(*(entry.name for entry in fields(Counts)))


def total_of(counts: Iterable[Counts]) -> Counts:
    """The sum of all of them."""
    columns = zip(*map(numbers_of, counts), strict=True)
    return Counts(*map(sum, columns))


@dataclass(frozen=True)
class Segment:
    """What was executed up to one mark in the emulator's log."""

    mark: str
    """``start``, ``end``, ``delegated``, ``clock``, …: what ended the segment."""
    code: Mapping[str, tuple[int, ...]]
    """By kernel or library, the fields of ``Counts`` in their order; empty for the tracer's own."""
    clock_ns: int = 0
    """What the program read, where a reading of the clock ended the segment."""


@dataclass(frozen=True)
class Code:
    """What a kernel, or the other code of a library, is made of: read off what ran of it."""

    family: KernelFamily
    work: tuple[str, ...] = ()
    """The classes of instructions that multiply, the most executed first: ``fp32 outer product``,
    ``look-up``, ``dot product``, ``multiply-add``, ``NEON product``."""


@dataclass(frozen=True)
class CountedInference:
    """One inference as the emulator's log has it, before it is matched with an ETDump."""

    vector_bits: int
    segments: tuple[Segment, ...]
    problem: str = ""
    """Why nothing can be said about the cost; empty where it can."""
    code: Mapping[str, Code] = field(default_factory=dict)
    """By the names that the segments have."""


@dataclass(frozen=True)
class Toolchain:
    """What of a runner came with the compiler that built it, and not with ExecuTorch: C and C++
    libraries, whose code counts differently.
    """

    files: frozenset[str] = frozenset()
    identity: str = ""
    """The same where these files hold the same code."""


@dataclass(frozen=True)
class KernelCost:
    """What one kernel, or the other code of one library, executed."""

    name: str
    counts: Counts
    work: tuple[str, ...] | None = None
    """What of it multiplies, see ``Code``; None in records that did not keep it."""


@dataclass(frozen=True)
class OperatorCost:
    index: int
    """The operator's place in ``Profile.operators``."""
    label: str
    name: str
    category: Category
    executor: Executor
    counts: Counts
    kernels: tuple[tuple[str, int], ...] = ()
    """Kernels and other code with their instructions, most first."""
    macs: int | None = None
    """Multiply-accumulates of a matrix operator, from its shapes; None where not known."""
    matrix: bool = False
    sme2: bool = False
    """Whether it executed instructions of streaming mode or on ZA: what its profile says of it."""
    sme1: bool = False
    """Whether none of them needs SME2."""
    lane_bytes: int = 4
    """Size of one value that an outer product takes; 0 where it does not fill a tile."""
    product: str = ""
    """The class of its outer products, as in ``bf16 outer product``."""
    system: int = 0
    """Of the instructions, those in files of the toolchain."""

    @property
    def family(self) -> KernelFamily:
        """What it ran on, as far as SME goes."""
        words = KernelFamily.SME if self.sme1 else KernelFamily.SME2
        return words if self.sme2 else KernelFamily.OTHER


@dataclass(frozen=True)
class InferenceCost:
    cpu: str
    vector_bits: int
    operators: tuple[OperatorCost, ...]
    kernels: tuple[KernelCost, ...]
    """Of all operators together, most instructions first."""
    runtime: Counts
    """Outside of operators: calling kernels and delegates."""
    setup: Counts
    """What a delegate does before its first operator. The first inference plans its memory there,
    later ones do not, so it is not part of the total."""
    toolchain: str = ""
    runtime_system: int = 0
    """Of the runtime's instructions, those in files of the toolchain."""

    @functools.cached_property
    def total(self) -> Counts:
        """Operators and runtime. Reports ask once per operator."""
        return total_of([self.runtime, *(entry.counts for entry in self.operators)])

    @property
    def system(self) -> int:
        """Of the total's instructions, those in files of the toolchain."""
        return self.runtime_system + sum(entry.system for entry in self.operators)

    def by_category(self) -> dict[Category, Counts]:
        """Operators only."""
        found: dict[Category, list[Counts]] = {}
        for entry in self.operators:
            found.setdefault(entry.category, []).append(entry.counts)
        return {category: total_of(found[category]) for category in Category if category in found}


@dataclass(frozen=True)
class StoredOperator:
    """One operator of the program as a baseline keeps it, on one short line."""

    name: str
    category: Category
    instructions: int = 0
    """0 where it was not counted."""
    kernel: str = ""
    """The one with most of the instructions."""
    system: int = 0
    shapes: str = ""
    """As in ``1x3x64x64 -> 1x32x62x62``; empty where they are unknown."""
    place: str = ""
    """In the model's source, as in ``model.py:28`` or ``forward:45 > scan:35``."""


@dataclass(frozen=True)
class StoredCost:
    """A cost as a baseline keeps it."""

    cpu: str
    total: Counts
    operators: tuple[StoredOperator, ...]
    """In the order in which they run."""
    toolchain: str = ""
    """Empty where it was not stored."""
    system: int = 0
    runtime: int = 0
    """Of the total's instructions, those outside of operators."""
