"""The values that pass between the stages: frozen dataclasses, and nothing that computes.

One file per stage. A stage knows the one before it only through these values, so each stage can
be tested, cached and run again alone. Nothing heavy is imported here: arrays are named in
annotations only. What computes, reads or prints does not live here.
"""

from pytest_sme2.results.case import (
    DECODE,
    PHASES,
    PREFILL,
    RUNTIME,
    Agreement,
    CaseResult,
    Generated,
    OperatorCount,
    PhaseRatio,
    Sample,
    Spread,
    StepCosts,
    Structure,
    Tolerance,
)
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
from pytest_sme2.results.evidence import (
    Cell,
    CellAnswer,
    Evidence,
    Kernel,
    KernelCensus,
    KernelFamily,
    KernelMatrix,
    Pair,
)
from pytest_sme2.results.profile import (
    Category,
    Change,
    Comparison,
    Cost,
    Coverage,
    Executor,
    Finding,
    Operator,
    OperatorChange,
    OperatorProfile,
    Profile,
    RobustStats,
    Topic,
    TransposeChain,
)
from pytest_sme2.results.run import (
    AS_EXPORTED,
    FORWARD,
    PAIR,
    SHOWN,
    SME1_ONLY,
    Arm,
    Artifact,
    Capabilities,
    CoreUse,
    FarmDevice,
    Fingerprint,
    GenerationPlan,
    Output,
    Run,
    RunRequest,
    TensorSpec,
    Turn,
)
from pytest_sme2.results.timing import (
    BLIND_MARGIN,
    MATTERS,
    TIME_LIMIT,
    Decision,
    DroppedPair,
    Estimate,
    Frontier,
    FrontierCell,
    Look,
    Outcome,
    PairedTiming,
    PairSample,
    Ship,
)
from pytest_sme2.results.trace import (
    Attribution,
    Columns,
    MethodOutline,
    MethodShapes,
    OperatorShapes,
    Origin,
    Shape,
    shape_text,
)
from pytest_sme2.results.verdict import (
    Baseline,
    BaselineChange,
    BaselineFigures,
    BaselineSession,
    Bounds,
    Check,
    Limits,
    StoredFrontier,
    StoredGeneration,
    Verdict,
)
