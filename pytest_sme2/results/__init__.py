"""The values that pass between the stages: frozen dataclasses, and nothing that computes.

One file per stage. A stage knows the one before it only through these values, so each stage can
be tested, cached and run again alone. Nothing heavy is imported here: arrays are named in
annotations only. What computes, reads or prints does not live here.
"""

from pytest_sme2.results.artifact import AS_EXPORTED, Arm, Artifact, TensorSpec
from pytest_sme2.results.baseline import (
    Baseline,
    BaselineChange,
    BaselineFigures,
    BaselineSession,
)
from pytest_sme2.results.case import (
    RUNTIME,
    Agreement,
    CaseResult,
    Estimate,
    OperatorCount,
    Spread,
    Structure,
    Tolerance,
)
from pytest_sme2.results.comparison import Change, Comparison, OperatorChange
from pytest_sme2.results.cost import (
    CountedInference,
    Counts,
    InferenceCost,
    KernelCost,
    OperatorCost,
    Segment,
    StoredCost,
    StoredOperator,
    Toolchain,
    total_of,
)
from pytest_sme2.results.evidence import Evidence, Kernel, KernelCensus, KernelFamily, Pair
from pytest_sme2.results.finding import Cost, Finding, Topic
from pytest_sme2.results.matrix import Cell, CellAnswer, KernelMatrix
from pytest_sme2.results.profile import (
    Category,
    Coverage,
    Executor,
    Operator,
    OperatorProfile,
    Profile,
    RobustStats,
    TransposeChain,
    TransposeReport,
)
from pytest_sme2.results.run import Capabilities, Fingerprint, Output, Run, RunRequest, Turn
from pytest_sme2.results.timing import (
    TIME_LIMIT,
    Decision,
    DroppedPair,
    Look,
    Outcome,
    PairedTiming,
    PairSample,
)
from pytest_sme2.results.trace import (
    Attribution,
    Columns,
    MethodShapes,
    OperatorShapes,
    Origin,
    Shape,
    shape_text,
)
from pytest_sme2.results.verdict import Bounds, Check, Limits, Verdict

__all__ = [
    "AS_EXPORTED",
    "RUNTIME",
    "TIME_LIMIT",
    "Agreement",
    "Arm",
    "Artifact",
    "Attribution",
    "Baseline",
    "BaselineChange",
    "BaselineFigures",
    "BaselineSession",
    "Bounds",
    "Capabilities",
    "CaseResult",
    "Category",
    "Cell",
    "CellAnswer",
    "Change",
    "Check",
    "Columns",
    "Comparison",
    "Cost",
    "CountedInference",
    "Counts",
    "Coverage",
    "Decision",
    "DroppedPair",
    "Estimate",
    "Evidence",
    "Executor",
    "Finding",
    "Fingerprint",
    "InferenceCost",
    "Kernel",
    "KernelCensus",
    "KernelCost",
    "KernelFamily",
    "KernelMatrix",
    "Limits",
    "Look",
    "MethodShapes",
    "Operator",
    "OperatorChange",
    "OperatorCost",
    "OperatorCount",
    "OperatorProfile",
    "OperatorShapes",
    "Origin",
    "Outcome",
    "Output",
    "Pair",
    "PairSample",
    "PairedTiming",
    "Profile",
    "RobustStats",
    "Run",
    "RunRequest",
    "Segment",
    "Shape",
    "Spread",
    "StoredCost",
    "StoredOperator",
    "Structure",
    "TensorSpec",
    "Tolerance",
    "Toolchain",
    "Topic",
    "TransposeChain",
    "TransposeReport",
    "Turn",
    "Verdict",
    "shape_text",
    "total_of",
]
