"""Where the time of one program goes, what changed between two, and what that means."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from pytest_sme2.results.run import OperatorShapes, Origin, Word


class Category(Word):
    """The five categories at the top of the taxonomy."""

    CONV = "CONV"
    GEMM = "GEMM"
    DATA_MOVEMENT = "DATA_MOVEMENT"
    ELEMENTWISE = "ELEMENTWISE"
    OTHER = "OTHER"


class Executor(Word):
    """Who ran an operator."""

    DELEGATED = "delegated"
    PORTABLE = "portable"


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
    """Whether it ran on an SME2 or SME1 kernel: not by its name, see ``coverage.settled``."""
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
    sme1: bool = False
    """Whether that kernel is an SME1 one, which a chip without SME2 can run."""

    @property
    def proof(self) -> str | bool:
        """Whether it ran on SME2, or a word: ``sme1``, ``unproven``."""
        return "unproven" if self.unproven else "sme1" if self.sme1 else self.sme2


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
    call: int = 0
    """Which call of a delegate or kernel it ran in, counted from 0; its neighbours share it."""
    aten: tuple[str, ...] = ()
    modules: tuple[str, ...] = ()
    shapes: OperatorShapes | None = None
    """Of its tensors, where the program was at hand; of matrix operators alone."""
    origin: Origin | None = None
    """Where the model has it, where the ETRecord was at hand."""
    module: str = ""
    """The path of the module it belongs to, as in ``features.0.conv``; empty where not known."""


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
    """How much of the matrix work ran on SME2 kernels, without depthwise convolutions, unless one
    ran on SME2: where none can, no model could ever be covered.
    """

    matrix_operators: int
    sme2_operators: int
    missed: tuple[tuple[OperatorProfile, str], ...]
    """The matrix operators that did not, each with the likely reason."""
    unproven: tuple[OperatorProfile, ...] = ()
    """Matrix operators whose name fits SME2 and NEON kernels alike, or is unknown; not counted as
    SME2."""
    depthwise_operators: int = 0
    source: str = "operator names"
    """Or ``operator names and kernel census``, or ``executed instructions``."""
    unknown: tuple[str, ...] = ()
    """Names of matrix operators of which no run on the emulator told anything."""

    @property
    def operators(self) -> float | None:
        """The share of matrix operators on SME2; None where there is no matrix operator."""
        return self.sme2_operators / self.matrix_operators if self.matrix_operators else None


@dataclass(frozen=True)
class Profile:
    """Where the time of one program goes, over the runs of one ETDump.

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
    unknown: tuple[str, ...]
    notes: tuple[str, ...] = ()
    """What a reader has to know about the data: runs left out, clocks that do not fit, …"""

    def share(self, ns: float) -> float:
        """``ns`` of the breakdown as a share of end-to-end time."""
        return ns / self.end_to_end.median if self.end_to_end.median else 0.0


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
        before, after = self.before, self.after
        return before.time_ns / after.time_ns if before and after and after.time_ns else None


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

    @property
    def added(self) -> tuple[OperatorProfile, ...]:
        return tuple(one.after for one in self.operators if one.after and not one.before)

    @property
    def removed(self) -> tuple[OperatorProfile, ...]:
        return tuple(one.before for one in self.operators if one.before and not one.after)

    @property
    def shifted(self) -> bool:
        """Whether the bottleneck moved to another category."""
        sides = {self.largest_before, self.largest_after}
        return len(sides) > 1 and None not in sides


class Topic(Word):
    COVERAGE = "coverage"
    MISSED = "missed"
    UNPROVEN = "unproven"
    """Matrix operators on kernels whose name does not show it."""
    SINGLE_ROW = "single row"
    """Matrix operators on SME2 whose gain is in doubt: they multiply one row."""
    DEPTHWISE = "depthwise"
    BOTTLENECK = "bottleneck"
    LAYOUT = "layout"
    PORTABLE = "portable"
    DATA_TYPE = "data type"
    """Operators that do not run in the variant's data type."""
    COSTLY = "costly"
    """Work inside the delegate that costs much and is not matrix work, with or without advice."""
    OVERHEAD = "overhead"
    UNKNOWN = "unknown"
    NOTE = "note"
    """What a reader has to know about the data; it costs nothing."""


@dataclass(frozen=True)
class Cost:
    """What a finding concerns. Findings are ordered by ``share``."""

    operators: int = 0
    share: float = 0.0
    of: str = "operators"
    """What ``share`` is a share of: ``time`` end to end; where time means nothing, executed
    ``instructions``; where those were not counted, the ``operators`` of the program."""


@dataclass(frozen=True)
class Finding:
    topic: Topic
    what: str
    """In the plural, where ``one`` is the singular."""
    cost: Cost = Cost()
    remedy: str = ""
    detail: str = ""
    """More about it, where there is room: shapes, the costliest operator."""
    place: str = ""
    """Where it is in the model: modules and the source line."""
    rewrite: str = ""
    """The name of the rewrite that removes it, where one is known."""
    evidence: str = ""
    """What the kernel matrix says of it."""
    one: str = ""
    """``what`` in the singular, where it is a noun that is counted."""
    is_cause: bool = False
    """Whether ``what`` names the cause of operators, and ``detail`` counts them."""
