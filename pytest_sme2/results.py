"""The values that pass between the stages: frozen dataclasses, and nothing that computes.

A stage knows the one before it only through these, so each stage can be tested, cached and rerun
alone. Nothing heavy is imported here: arrays are named in annotations only.
"""

from __future__ import annotations

import enum
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray


class Arm(str, enum.Enum):
    """One side of a pair: SME2 on, or off."""

    ON = "on"
    OFF = "off"

    def __str__(self) -> str:
        return self.value


# --- Model ─export─▶ Artifact ---------------------------------------------------------------------


@dataclass(frozen=True)
class TensorSpec:
    """What a program takes or gives at one position."""

    dtype: str
    shape: tuple[int, ...]


@dataclass(frozen=True)
class Artifact:
    """One exported program and everything that was written beside it."""

    model: str
    variant: str
    folder: Path
    pte: Path
    sha256: str
    inputs: tuple[TensorSpec, ...]
    outputs: tuple[TensorSpec, ...]
    input_files: tuple[Path, ...] = ()
    """The example inputs as raw little-endian values, one file an input."""
    reference_files: tuple[Path, ...] = ()
    """What the eager model answered to those inputs, one raw file an output."""
    etrecord: Path | None = None
    weights: str = "random"
    """Where the weights came from: ``random (seed 0)`` or the file's name and hash."""
    versions: Mapping[str, str] = field(default_factory=dict)


# --- Target.run ─▶ Run ----------------------------------------------------------------------------


@dataclass(frozen=True)
class RunRequest:
    """What one process of the runner is asked to do."""

    artifact: Artifact
    arm: Arm
    threads: int = 1
    warmup: int = 3
    runs: int = 10
    traced: bool = False
    keep_outputs: bool = False
    seed: int = 0
    timeout_seconds: float = 600.0
    cpus: tuple[int, ...] = ()
    """The cores to pin to; empty means the system decides."""


@dataclass(frozen=True)
class Output:
    """One output of the last run of a process."""

    dtype: str
    shape: tuple[int, ...]
    sha256: str
    has_nan: bool
    file: Path | None = None


@dataclass(frozen=True)
class Run:
    """One process of the runner: raw values only, statistics are derived elsewhere."""

    request: RunRequest
    target: str
    runner: str
    """Which kind of runner it was: ``wheel``, ``source`` or ``pair``."""
    emulated: bool
    """Emulated times are never latency."""
    sme2_effective: bool | None
    """Whether the process saw SME2, as told by the process itself; None where it cannot tell."""
    wall_ns: tuple[int, ...]
    cpu_ns: tuple[int, ...]
    load_ns: int | None
    peak_rss_load_bytes: int | None
    peak_rss_bytes: int | None
    outputs: tuple[Output, ...]
    cpu_features: tuple[str, ...] = ()
    etdump: Path | None = None
    log: Path | None = None


@dataclass(frozen=True)
class Fingerprint:
    """What a target is, as far as its timings depend on it. Two that are equal may be compared."""

    target: str
    facts: tuple[tuple[str, str], ...]
    """Sorted pairs such as ``("cpu", "Neoverse-N1")``; never a clock speed that jitters."""

    @property
    def key(self) -> str:
        """A short name that is safe as a folder name."""
        import hashlib

        if self.target == "emulated":
            return "emulated"
        text = "\n".join(f"{name}={value}" for name, value in self.facts)
        return f"{self.target}-{hashlib.sha256(text.encode()).hexdigest()[:12]}"


@dataclass(frozen=True)
class Capabilities:
    """What a target can vouch for."""

    timing: bool
    sme2: bool
    reason: str = ""
    """Why not, where one of them is False."""


# --- etdump ─▶ Columns ----------------------------------------------------------------------------


@dataclass(frozen=True, eq=False)
class Columns:
    """The profiling events of an ETDump as columns: row i of every array is the same event.

    Rows stand in file order. The runtime writes an event when it ends, so an event stands before
    the one that encloses it. Times are nanoseconds of the runtime's clock, so only differences
    mean anything; ``end - start`` is the duration and never negative. XNNPACK's events are in the
    same unit, with starts that add up durations of whole microseconds: they may reach past the
    end of the DELEGATE_CALL they belong to, so ask ``parent`` and not the times.
    """

    names: tuple[str, ...]
    """The distinct names; ``names[name[i]]`` is row i's."""
    name: NDArray[np.int32]
    """A delegated event goes by its delegate's identifier, as in ExecuTorch's Inspector."""
    block: NDArray[np.int32]
    """Index of the RunData the event stands in."""
    run: NDArray[np.int32]
    """Index of the inference (a block that holds a Method::execute); -1 for load and init."""
    start: NDArray[np.uint64]
    end: NDArray[np.uint64]
    instruction: NDArray[np.int32]
    """Which instruction of the chain; tells one operator's events from another's."""
    chain: NDArray[np.int32]
    """-1 for the events of the method as a whole, whose instruction means nothing."""
    delegate_id: NDArray[np.int32]
    """The delegate's integer identifier, -1 where it has none."""
    delegate_name: NDArray[np.int32]
    """Index into ``names`` of the delegate's string identifier, -1 where it has none."""
    depth: NDArray[np.int32]
    """How many events of the same block enclose this one (0: outermost)."""
    parent: NDArray[np.int64]
    """Row of the innermost enclosing event, -1 for an outermost one. See ``nesting``."""
    block_names: tuple[str, ...]
    """Per block: ``Default`` for load and init, ``Execute`` for an inference."""
    runs: int
    """How many inferences there are."""
    allocation_block: NDArray[np.int32]
    allocation_allocator: NDArray[np.int32]
    allocation_bytes: NDArray[np.uint64]
    bundled_input: NDArray[np.int32]
    """Per block: the bundled input's index, -1 where none was used."""


# --- Columns ─▶ Profile ---------------------------------------------------------------------------


class Category(str, enum.Enum):
    """The five categories at the top of the taxonomy."""

    CONV = "CONV"
    GEMM = "GEMM"
    DATA_MOVEMENT = "DATA_MOVEMENT"
    ELEMENTWISE = "ELEMENTWISE"
    OTHER = "OTHER"

    def __str__(self) -> str:
        return self.value


class Executor(str, enum.Enum):
    """Who ran an operator."""

    DELEGATED = "delegated"
    PORTABLE = "portable"

    def __str__(self) -> str:
        return self.value


@dataclass(frozen=True)
class Operator:
    """What a name says about an operator."""

    name: str
    """As the ETDump has it, without the trailing ``#n``."""
    category: Category
    kind: str
    """The finer class: pointwise, depthwise, linear, transpose, softmax, …"""
    executor: Executor
    matrix: bool
    """Whether SME2 kernels could exist for it: convolutions and matrix products."""
    sme2: bool
    """Whether it ran on an SME/SME2 kernel, as its name proves."""
    known: bool
    """False where no table or rule knows the name."""
    unproven: bool = False
    """Whether it ran on a packed kernel of which there is one for SME2 and one for NEON (QP8)."""
    operation: str = ""
    """The name without layout, data types, algorithm, prefix and overload."""
    data_types: tuple[str, ...] = ()
    """XNNPACK's words for them, input first: ``("PQS8", "QS8", "QC8W")``."""
    algorithm: str = ""
    """XNNPACK's word for the kind of microkernel: GEMM, IGEMM, DWConv, …; empty if it has one."""


@dataclass(frozen=True)
class Attribution:
    """What a call of the program came from: ATen operators and modules, by instruction."""

    aten: Mapping[int, tuple[str, ...]]
    modules: Mapping[int, tuple[str, ...]]


@dataclass(frozen=True)
class OperatorProfile:
    """One operator of the graph: the same position in every run."""

    index: int
    label: str
    """The name with its ``#n``, unique within one delegate call."""
    operator: Operator
    instruction: int
    median_ns: float
    """Of its own samples; the medians of operators need not add up to anything."""
    share: float
    """Of end-to-end time, 0 to 1; the shares of all operators and the overhead add up to 1."""
    time_ns: float
    """The share of the median end-to-end time, so that these do add up."""
    samples_ns: tuple[int, ...]
    """One a run, in the order of the runs."""
    call: int = 0
    """Which call of a delegate or kernel it ran in, counted from 0; its neighbours share it."""
    aten: tuple[str, ...] = ()
    modules: tuple[str, ...] = ()


@dataclass(frozen=True)
class RobustStats:
    """Statistics of a series that a few bad samples cannot bend."""

    count: int
    median: float
    mean: float
    trimmed_mean: float
    mad: float
    minimum: float
    maximum: float
    p5: float
    p25: float
    p75: float
    p95: float
    p99: float
    standard_deviation: float
    cv: float
    outliers: int


@dataclass(frozen=True)
class Coverage:
    """How much of the matrix work ran on SME2 kernels.

    Depthwise convolutions are left out of the count: there is no SME2 kernel for them in any data
    type, so with them no model could ever be covered. What they cost is told beside it.
    """

    matrix_operators: int
    sme2_operators: int
    matrix_ns: float
    sme2_ns: float
    missed: tuple[tuple[OperatorProfile, str], ...]
    """The matrix operators that did not, each with the likely reason."""
    unproven: tuple[OperatorProfile, ...] = ()
    """Matrix operators whose name fits SME2 and NEON kernels alike; not counted as SME2."""
    depthwise_operators: int = 0
    depthwise_ns: float = 0.0
    source: str = "operator names"
    """Or ``operator names and kernel census``."""

    @property
    def operators(self) -> float | None:
        """The share of matrix operators on SME2; None where there is no matrix operator."""
        return self.sme2_operators / self.matrix_operators if self.matrix_operators else None

    @property
    def time(self) -> float | None:
        """The share of matrix time on SME2; None where there is none."""
        return self.sme2_ns / self.matrix_ns if self.matrix_ns else None


@dataclass(frozen=True)
class Profile:
    """Where the time of one program goes, over the runs of one or more ETDumps.

    All shares are of end-to-end time and add up to 1 together with the overhead's; all ``…_ns``
    of the breakdown are that share of the median end-to-end time.
    """

    method: str
    runs: int
    typical_runs: int
    """The runs the shares are taken from: all but those whose end-to-end time is an outlier."""
    end_to_end: RobustStats
    """Of Method::execute, in nanoseconds."""
    end_to_end_ns: tuple[int, ...]
    operators: tuple[OperatorProfile, ...]
    category_ns: Mapping[Category, float]
    kind_ns: Mapping[tuple[Category, str], float]
    executor_ns: Mapping[Executor, float]
    overhead_ns: float
    """What is left of end-to-end time: delegate calls, operator dispatch."""
    overhead_parts_ns: Mapping[str, float]
    """Where the overhead arose: ``delegate calls``, ``operator calls``, ``between calls``."""
    category_counts: Mapping[Category, int]
    kind_counts: Mapping[tuple[Category, str], int]
    executor_counts: Mapping[Executor, int]
    coverage: Coverage
    load_ns: Mapping[str, float]
    """Load and init events by name."""
    unknown: tuple[str, ...]
    """Operator names that no table knows."""
    notes: tuple[str, ...] = ()
    """What a reader has to know about the data: runs left out, clocks that do not fit, …"""

    def share(self, ns: float) -> float:
        """``ns`` of the breakdown as a share of end-to-end time."""
        return ns / self.end_to_end.median if self.end_to_end.median else 0.0


@dataclass(frozen=True)
class TransposeChain:
    """Layout changes that follow one another, and what stands around them."""

    operators: tuple[OperatorProfile, ...]
    before: OperatorProfile | None
    """The operator that runs before the chain; None at the start of the program."""
    after: OperatorProfile | None
    time_ns: float
    share: float
    border: str
    """``input`` or ``output`` of a delegate call, ``both``, or empty inside of one."""


@dataclass(frozen=True)
class TransposeReport:
    """What layout changes cost a program."""

    chains: tuple[TransposeChain, ...]
    operators: int
    time_ns: float
    share: float
    border_share: float
    """The part of ``share`` that is spent at the borders of delegate calls."""


# --- two Profiles ─▶ Comparison -------------------------------------------------------------------


@dataclass(frozen=True)
class Change:
    """One thing measured on both sides of a comparison."""

    name: str
    before_ns: float
    after_ns: float

    @property
    def ratio(self) -> float | None:
        """How many times faster the after side is; None where it took no time."""
        return self.before_ns / self.after_ns if self.after_ns else None

    @property
    def delta_ns(self) -> float:
        return self.after_ns - self.before_ns


@dataclass(frozen=True)
class OperatorChange:
    """An operator on both sides, or on one only (added, removed)."""

    before: OperatorProfile | None
    after: OperatorProfile | None

    @property
    def delta_ns(self) -> float:
        before = self.before.time_ns if self.before else 0.0
        return (self.after.time_ns if self.after else 0.0) - before

    @property
    def ratio(self) -> float | None:
        """How many times faster it became; None where it is on one side or took no time."""
        if self.before is None or self.after is None or not self.after.time_ns:
            return None
        return self.before.time_ns / self.after.time_ns


@dataclass(frozen=True)
class Comparison:
    """Two profiles side by side: off against on, or A against B."""

    before_name: str
    after_name: str
    end_to_end: Change
    categories: tuple[Change, ...]
    kinds: tuple[Change, ...]
    operators: tuple[OperatorChange, ...]
    """In the order of the program; what was removed stands where it stood."""
    overhead: Change
    largest_before: Category | None
    """The category with the greatest share; None where there is no operator."""
    largest_after: Category | None
    amdahl: float | None
    """How many times faster the after side would be if its largest category were free; None where
    there is nothing else."""

    @property
    def added(self) -> tuple[OperatorProfile, ...]:
        return tuple(
            change.after for change in self.operators if change.before is None and change.after
        )

    @property
    def removed(self) -> tuple[OperatorProfile, ...]:
        return tuple(
            change.before for change in self.operators if change.after is None and change.before
        )

    @property
    def shifted(self) -> bool:
        """Whether the bottleneck moved to another category."""
        return self.largest_before is not self.largest_after


# --- Evidence -------------------------------------------------------------------------------------


class KernelFamily(str, enum.Enum):
    """What instructions a kernel is made of."""

    SME2 = "sme2"
    SME = "sme"
    NEON = "neon"
    OTHER = "other"

    def __str__(self) -> str:
        return self.value


@dataclass(frozen=True)
class Kernel:
    """One kernel that ran: its symbol and how often it was seen."""

    name: str
    family: KernelFamily
    count: int


@dataclass(frozen=True)
class KernelCensus:
    """The kernels of one arm, and how we know of them."""

    arm: Arm
    source: str
    """``emulator`` (translated blocks of the running process) or ``xnnpack-log``."""
    kernels: tuple[Kernel, ...]

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
    traced_on: Run | None
    traced_off: Run | None
    evidence: Evidence | None
    """None where the target has no SME2 and only the off arm ran."""
    census_on: KernelCensus | None = None
    census_off: KernelCensus | None = None
