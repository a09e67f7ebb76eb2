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
class Turn:
    """How much a process does before the other of its pair goes on."""

    runs: int
    lead: int = 0
    """Untimed runs first, to find the caches as they are when nobody else runs."""


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
    extra_arguments: tuple[str, ...] = ()
    """Further ones for the runner, as they are."""
    turn: Turn | None = None
    """Where it takes turns with another process; None where it runs alone."""


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
    warmup_wall_ns: tuple[int, ...] = ()
    """The inferences before the measured ones; never part of a statistic."""
    throttled: bool = False
    """Whether the device slowed itself down against heat meanwhile; such a pair is redone."""


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


# --- Runs ─▶ Measurement --------------------------------------------------------------------------


class Outcome(str, enum.Enum):
    """What a check found. Timings alone end in one of the first four."""

    PASS = "PASS"  # noqa: S105  (a verdict, not a password)
    REGRESSED = "REGRESSED"
    IMPROVED = "IMPROVED"
    INCONCLUSIVE = "INCONCLUSIVE"
    INVALID = "INVALID"
    NO_BASELINE = "NO_BASELINE"

    def __str__(self) -> str:
        return self.value


@dataclass(frozen=True)
class Look:
    """One look at the pairs so far. Ratios are candidate over reference: above 1 is slower."""

    pairs: int
    alpha: float
    """The one-sided error this look may spend."""
    estimate: float
    interval: tuple[float, float] | None
    """None where there are too few pairs for an interval at this error."""
    p_value: float
    """One-sided, of the hypothesis that the candidate is within the tolerated slowdown."""


@dataclass(frozen=True)
class Decision:
    """The outcome of a series of pairs, and every look that was taken to reach it."""

    outcome: Outcome
    threshold: float
    """The tolerated slowdown: 0.02 is 2 %."""
    looks: tuple[Look, ...]
    p_value: float
    """Over all looks taken; valid for any level, so it may go into Holm's procedure."""

    @property
    def last(self) -> Look:
        return self.looks[-1]


@dataclass(frozen=True)
class PairSample:
    """One fresh process of each arm."""

    index: int
    """The order in which pairs were started, dropped ones included."""
    first: str
    """The arm that ran first."""
    reference_ns: float
    """What a run took, in wall nanoseconds: the median of the process's runs."""
    candidate_ns: float
    log_ratio: float
    """Of the candidate over the reference; turn by turn where the two took turns."""
    interference: float | None
    """The worse of the two processes' wall time over CPU time, less 1; None where unknown."""
    throttled: bool = False
    """Whether the device slowed itself down against heat in one of the two."""


@dataclass(frozen=True)
class DroppedPair:
    """A pair that was measured, judged without looking at which arm was slower, and left out."""

    pair: PairSample
    reason: str


@dataclass(frozen=True)
class Measurement:
    """Two arms measured in interleaved pairs. Ratios are candidate over reference in time."""

    reference: str
    candidate: str
    seed: int
    warmup: int
    runs: int
    """Runs a process, equal in both arms."""
    threads: int
    pairs: tuple[PairSample, ...]
    dropped: tuple[DroppedPair, ...]
    decision: Decision | None
    """None where no tolerated slowdown was given: then only the ratio was asked for."""
    looks: tuple[Look, ...]
    stopped_because: str
    """``clear``, ``precise``, ``all pairs done`` or ``time budget spent``."""
    noise_floor: float | None
    """Relative spread of process medians within an arm; None with fewer than three pairs."""
    detectable: float | None
    """The smallest slowdown that a measurement of this many pairs would catch, 4 times of 5; where
    only the ratio was asked for, the smallest difference between the two arms."""
    drift: tuple[tuple[str, float], ...]
    """Arms whose runs got slower (above 0) or faster within a process, and by how much."""
    notes: tuple[str, ...]
    """What a reader should know before trusting the figures."""
    seconds: float
    tracing_overhead: Mapping[str, float] = field(default_factory=dict)
    """By arm, how much longer a traced run took; empty where no traced run was made."""
    turn: Turn | None = None
    """How the two processes of a pair took turns; None where one ran after the other."""

    @property
    def ratio(self) -> float:
        return self.looks[-1].estimate

    @property
    def interval(self) -> tuple[float, float] | None:
        return self.looks[-1].interval

    @property
    def speedup(self) -> float:
        """How many times faster the candidate is."""
        return 1 / self.ratio

    @property
    def speedup_interval(self) -> tuple[float, float] | None:
        interval = self.interval
        return None if interval is None else (1 / interval[1], 1 / interval[0])


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


Shape = tuple[int, ...]


@dataclass(frozen=True)
class OperatorShapes:
    """The tensors of one operator, as its program has them."""

    operation: str
    """What the program calls it: ``convolution``, ``linear``, ``aten::bmm.out``."""
    inputs: tuple[Shape, ...]
    """Weights are the last of them. XNNPACK's images have their channels last."""
    output: Shape

    def __str__(self) -> str:
        inputs = " by ".join(map(shape_text, self.inputs))
        return f"{inputs} to {shape_text(self.output)}"


def shape_text(shape: Shape) -> str:
    """``1x56x56x16``."""
    return "x".join(map(str, shape)) or "scalar"


@dataclass(frozen=True)
class MethodShapes:
    """The matrix operators of each call of one method of a program."""

    name: str
    calls: Mapping[int, tuple[OperatorShapes, ...]]
    """By instruction: those of a delegate call, in its order, or the one of a kernel call."""


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
    shapes: OperatorShapes | None = None
    """Of its tensors, where the program was at hand; of matrix operators alone."""


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
        before, after = self.largest_before, self.largest_after
        return before is not None and after is not None and before is not after


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
    traced_on: Run | None
    traced_off: Run | None
    evidence: Evidence | None
    """None where the target has no SME2 and only the off arm ran."""
    census_on: KernelCensus | None = None
    census_off: KernelCensus | None = None


# --- Measured: everything one model and variant showed on one target ------------------------------


RUNTIME = "executorch runtime"
"""The key of ``versions`` for what ran the program; ``executorch`` is what exported it."""


@dataclass(frozen=True)
class Estimate:
    """A ratio and the interval that holds it, over pairs of processes."""

    value: float
    low: float
    high: float
    confidence: float
    pairs: int


@dataclass(frozen=True)
class Spread:
    """A value over the runs of a traced process: the median, the 5th and 95th percentile."""

    value: float
    low: float
    high: float


@dataclass(frozen=True)
class OperatorCount:
    """How often an operator of one name stands in a program, and what its name says of it."""

    name: str
    category: Category
    kind: str
    executor: Executor
    matrix: bool
    sme2: bool
    """As the name proves it; what only a kernel census can tell is in Coverage."""
    count: int


@dataclass(frozen=True)
class Structure:
    """What a program is made of on one arm: exact, and the same on any machine."""

    operators: tuple[OperatorCount, ...]
    """Sorted by the operator's name; every name once."""

    @property
    def total(self) -> int:
        return sum(entry.count for entry in self.operators)

    @property
    def matrix(self) -> int:
        return sum(entry.count for entry in self.operators if entry.matrix)

    @property
    def sme2(self) -> int:
        """Matrix operators on SME2 kernels, as their names prove it."""
        return sum(entry.count for entry in self.operators if entry.matrix and entry.sme2)

    @property
    def coverage(self) -> float | None:
        """The share of matrix operators on SME2 kernels; None where there is no such operator."""
        return self.sme2 / self.matrix if self.matrix else None

    def executed_by(self, executor: Executor) -> int:
        return sum(entry.count for entry in self.operators if entry.executor is executor)

    def in_category(self, category: Category) -> int:
        return sum(entry.count for entry in self.operators if entry.category is category)


@dataclass(frozen=True)
class Tolerance:
    """How far two outputs may lie apart. What is None is not asked."""

    max_abs: float | None = None
    max_rel: float | None = None
    """Of the largest magnitude that was expected, so that values near zero do not weigh."""
    min_sqnr_db: float | None = None


@dataclass(frozen=True)
class Agreement:
    """One output held against another of the same shape."""

    against: str
    """``off`` (the same program without SME2) or ``reference`` (the eager model)."""
    arm: Arm
    """The side that is being checked."""
    index: int
    dtype: str
    identical: bool
    max_abs: float
    max_rel: float
    """The largest error over the largest magnitude that was expected."""
    sqnr_db: float | None
    """Signal over noise of the whole output; None where there is no noise or no signal."""
    cosine: float | None
    """None where a side is all zeros."""
    has_nan: bool
    """On the side that is being checked; the errors are then infinite."""


@dataclass(frozen=True)
class Measured:
    """Everything measured for one model and variant on one target."""

    model: str
    variant: str
    fingerprint: Fingerprint
    emulated: bool
    runner: str
    """Which kind of runner it was: ``wheel``, ``source`` or ``pair``."""
    session: str
    """A name of its own for the run this belongs to; the same for all its models."""
    recorded: str
    """When, as ISO 8601 in UTC."""
    threads: int = 1
    profiles: Mapping[Arm, Profile] = field(default_factory=dict)
    structures: Mapping[Arm, Structure] = field(default_factory=dict)
    kernels: Mapping[Arm, KernelCensus] = field(default_factory=dict)
    """Only the arms whose kernels are known."""
    medians_ns: Mapping[Arm, tuple[float, ...]] | None = None
    """Of each untraced process, its median run; None where the target is emulated."""
    interference: float | None = None
    """The usual process's wall time over its CPU time, less 1; None where it is not known."""
    yardstick_ns: float | None = None
    """What a program that never changes took meanwhile; None where it was not taken."""
    speedup: Estimate | None = None
    """Off over on: how many times faster SME2 makes it."""
    shares: Mapping[Arm, Mapping[Category, Spread]] | None = None
    """Of end-to-end time; None where the target is emulated."""
    loads_ns: Mapping[Arm, tuple[float, ...]] | None = None
    """Load time of each process; None where the target is emulated."""
    peak_bytes: Mapping[Arm, int] | None = None
    """Median over processes of the peak resident set; None where the target is emulated."""
    pte_bytes: int | None = None
    pte_sha256: str = ""
    agreements: tuple[Agreement, ...] = ()
    nan_arms: tuple[Arm, ...] = ()
    """The arms whose output holds a NaN."""
    evidence: Evidence | None = None
    """None where the target has no SME2 and only the off arm ran."""
    versions: Mapping[str, str] = field(default_factory=dict)
    weights: str = "random"
    runtime: str = ""
    """The SHA-256 of the runner, libraries included."""

    @property
    def coverage(self) -> Coverage | None:
        """Of the on arm; None where it did not run."""
        profile = self.profiles.get(Arm.ON)
        return None if profile is None else profile.coverage

    @property
    def arm(self) -> Arm:
        """The arm that speaks for the program: on, unless the target has no SME2."""
        return Arm.ON if Arm.ON in self.structures else Arm.OFF


# --- Measured, Baseline, Limits ─▶ Verdict --------------------------------------------------------


@dataclass(frozen=True)
class Session:
    """The latencies of one run that was accepted into a baseline."""

    session: str
    recorded: str
    epoch: int
    """Sessions of one epoch measured the same thing; the last epoch is the baseline."""
    threads: int
    runner: str
    executorch: str
    """The version of what ran the program."""
    medians_ns: Mapping[Arm, tuple[float, ...]]
    loads_ns: Mapping[Arm, tuple[float, ...]]
    yardstick_ns: float | None = None
    """What a program that never changes took meanwhile; None where it was not taken."""
    program: str = ""
    """The SHA-256 of the ``.pte`` that ran."""
    runtime: str = ""
    """The SHA-256 of the runner that ran it, libraries included."""


@dataclass(frozen=True)
class Baseline:
    """What was accepted for one model and variant on one target."""

    model: str
    variant: str
    fingerprint: Fingerprint
    structures: Mapping[Arm, Structure]
    kernels: Mapping[Arm, KernelCensus] = field(default_factory=dict)
    sessions: tuple[Session, ...] = ()
    """Oldest first."""
    speedup: Estimate | None = None
    shares: Mapping[Arm, Mapping[Category, Spread]] = field(default_factory=dict)
    category_ns: Mapping[Arm, Mapping[Category, float]] = field(default_factory=dict)
    """Time a category took in the traced runs, so that a slowdown can be put down to it."""
    operator_ns: Mapping[Arm, Mapping[str, float]] = field(default_factory=dict)
    """The same by operator name."""
    peak_bytes: Mapping[Arm, int] = field(default_factory=dict)
    pte_bytes: int | None = None
    pte_sha256: str = ""
    agreements: tuple[Agreement, ...] = ()
    versions: Mapping[str, str] = field(default_factory=dict)
    weights: str = "random"

    def current(self, threads: int) -> tuple[Session, ...]:
        """The sessions a new latency is held against: those of the last epoch."""
        same = tuple(session for session in self.sessions if session.threads == threads)
        if not same:
            return ()
        return tuple(session for session in same if session.epoch == same[-1].epoch)


@dataclass(frozen=True)
class Bounds:
    """Where a share must lie, ends included."""

    least: float = 0.0
    greatest: float = 1.0


@dataclass(frozen=True)
class Limits:
    """How much worse a thing may get. Growth is a fraction: 0.02 is 2 %."""

    max_regression: float = 0.02
    min_speedup: float | None = None
    """None: on may not be slower than off by more than ``max_regression``."""
    min_coverage: float | None = None
    """Of the matrix operators, the share that must run on SME2 kernels."""
    max_share_growth: float = 0.05
    """In parts of end-to-end time: 0.05 is five points."""
    max_memory_growth: float = 0.10
    max_memory_bytes: int | None = None
    max_size_growth: float = 0.01
    max_load_growth: float = 0.25
    shares: Mapping[Category, Bounds] = field(default_factory=dict)
    tolerances: Mapping[str, Tolerance] = field(default_factory=dict)
    """By the variant's precision, against the eager reference."""
    on_off_tolerances: Mapping[str, Tolerance] = field(default_factory=dict)
    """By the variant's precision, SME2 on against off."""
    sources: Mapping[str, str] = field(default_factory=dict)
    """Where each limit that is not the default came from."""


@dataclass(frozen=True)
class Check:
    """One metric held against its baseline or its limit."""

    metric: str
    verdict: Outcome
    message: str
    """One sentence; how it is laid out is up to the reports."""
    old: float | None = None
    new: float | None = None
    unit: str = ""
    """``ns``, ``bytes``, ``ratio``, ``share`` or ``count``."""
    interval: tuple[float, float] | None = None
    """Of the change that was judged: new over old for times, the value itself for the rest."""
    limit: float | None = None
    details: tuple[str, ...] = ()
    """The operators, kernels or outputs it is about, one line each."""
    p_value: float | None = None
    """Of interleaved pairs, over all looks; for Holm's procedure over a suite."""


@dataclass(frozen=True)
class Verdict:
    """All checks of one model and variant on one target, and what they come to."""

    model: str
    variant: str
    target: str
    outcome: Outcome
    checks: tuple[Check, ...]


@dataclass(frozen=True)
class BaselineChange:
    """One value that an update of a baseline rewrites."""

    what: str
    old: str
    new: str
