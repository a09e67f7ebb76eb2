"""What files of a run or a program say, before anything is concluded from them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from pytest_sme2.results.run import TensorSpec

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray


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


@dataclass(frozen=True)
class Origin:
    """Where an operator of a program was written in the model."""

    written: str
    """The operator as the model has it, before anything was decomposed: ``aten.silu``."""
    module: str = ""
    """The path of the module, ``features.0.2``; empty for the model itself."""
    module_type: str = ""
    """The module's class, without its package: ``SiLU``."""
    file: str = ""
    line: int = 0
    code: str = ""
    """The line itself."""
    constant: bool = False
    """Whether no input of the model goes into it: the result is always the same."""
    near: bool = False
    """Whether only an operator beside it is known to be there."""


@dataclass(frozen=True)
class Attribution:
    """What a call of the program came from: ATen operators and modules, by instruction."""

    aten: Mapping[int, tuple[str, ...]]
    modules: Mapping[int, tuple[str, ...]]
    origins: Mapping[int, Origin] = field(default_factory=dict)
    """Of calls that run one operator; a delegate call runs many."""
    nodes: Mapping[int, tuple[tuple[str, Origin], ...]] = field(default_factory=dict)
    """What each call was made from, by name, in the order of the graph."""


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
class MethodOutline:
    """What one method of a program takes and gives, and what it needs to run."""

    name: str
    inputs: tuple[TensorSpec | None, ...]
    """None for what is not a tensor. Sizes that may vary are the largest ones."""
    outputs: tuple[TensorSpec | None, ...]
    backends: tuple[str, ...]
    """Of its delegates, each once: ``XnnpackBackend``."""
    instructions: int
    """How many it executes; none where it only answers with a constant."""
