"""What one inference executes, counted in an emulator: exact, and never a time."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, fields
from functools import cached_property
from operator import attrgetter

from pytest_sme2.results.profile import Category, Executor


@dataclass(frozen=True)
class Counts:
    """Executed instructions, and what kinds of them."""

    instructions: int = 0
    outer_products: int = 0
    """MOPA and MOPS: a whole tile of multiply-accumulates each."""
    sme2_other: int = 0
    """Other work on ZA and on groups of vectors: moves, multiply-adds, conversions, look-ups."""
    streaming_entries: int = 0
    za_transfers: int = 0
    """Loads and stores of ZA; they are among the loads and stores, too."""
    loads: int = 0
    stores: int = 0
    loaded_bytes: int = 0
    """As if all lanes of a predicated access were active."""
    stored_bytes: int = 0


# ``dataclasses.astuple`` copies every number on its way, which took half of a report's time.
_numbers = attrgetter(*(entry.name for entry in fields(Counts)))


def total_of(counts: Iterable[Counts]) -> Counts:
    """The sum of all of them."""
    columns = zip(*map(_numbers, counts), strict=True)
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
class CountedInference:
    """One inference as the emulator's log has it, before it is matched with an ETDump."""

    vector_bits: int
    segments: tuple[Segment, ...]
    problem: str = ""
    """Why nothing can be said about the cost; empty where it can."""


@dataclass(frozen=True)
class Toolchain:
    """What of a runner came with the compiler that built it, and not with ExecuTorch.

    Another compiler brings other C and C++ libraries, whose code counts differently.
    """

    files: frozenset[str] = frozenset()
    identity: str = ""
    """The same where these files hold the same code."""


@dataclass(frozen=True)
class KernelCost:
    """What one kernel, or the other code of one library, executed."""

    name: str
    counts: Counts


@dataclass(frozen=True)
class OperatorCost:
    """What one operator of the graph executed."""

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
    """Whether it executed outer products or other SME2 work, or ran on an SME1 kernel."""
    lane_bytes: int = 4
    """Size of one value of the first input, so that the size of an outer product is known."""
    system: int = 0
    """Of the instructions, those in files of the toolchain."""


@dataclass(frozen=True)
class InferenceCost:
    """What one inference of one arm executed."""

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

    @cached_property
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
    """What one operator executed when the baseline was made."""

    name: str
    category: Category
    instructions: int
    kernel: str
    """The one with most of the instructions."""
    system: int = 0
    """Of the instructions, those in files of the toolchain."""


@dataclass(frozen=True)
class StoredCost:
    """A cost as a baseline keeps it."""

    cpu: str
    total: Counts
    macs: int
    """Multiply-accumulates of the matrix operators whose shapes are known."""
    sme2_macs: int
    tile_use: float | None
    packing_share: float
    operators: tuple[StoredOperator, ...]
    """In the order in which they run."""
    toolchain: str = ""
    """Empty where it was not stored."""
    system: int = 0
    """Of all instructions, those in files of the toolchain."""
