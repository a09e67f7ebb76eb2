"""Which operator of a trace has which shapes, and what they say.

A trace names operators without shapes, a program has shapes without XNNPACK's names. Both list the
matrix operators of a call in the same order; where number and kind of them do not agree, nothing is
claimed. The program is read in ``trace/program.py``.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence

from pytest_sme2.results import Executor, MethodShapes, Operator, OperatorShapes, shape_text
from pytest_sme2.system.wording import count

MOST_NAMED = 3

# What XNNPACK may run a node of a program as.
_RUNS_AS: Mapping[str, frozenset[str]] = {
    "linear": frozenset({"Fully Connected", "Dynamic Fully Connected", "Convolution"}),
    # A 1x1 convolution is rewritten.
    "convolution": frozenset({"Convolution", "Fully Connected"}),
    "depthwise convolution": frozenset({"Convolution"}),
    "transposed convolution": frozenset({"Deconvolution"}),
    "matrix product": frozenset({"Batch Matrix Multiply"}),
}
_MATRIX_OPERATIONS = frozenset().union(*_RUNS_AS.values())

Traced = Sequence[tuple[Operator, int]]
"""The operators of a run, each with its instruction."""


def match_shapes(
    traced: Traced, methods: Sequence[MethodShapes]
) -> tuple[OperatorShapes | None, ...]:
    """For each operator its shapes, from the method that explains most; None where unknown.

    An ETDump does not name its methods.
    """
    answers = [_match_method(traced, method) for method in methods]
    nothing: tuple[OperatorShapes | None, ...] = (None,) * len(traced)
    return max(answers, key=lambda answer: len(answer) - answer.count(None), default=nothing)


def _match_method(traced: Traced, method: MethodShapes) -> tuple[OperatorShapes | None, ...]:
    answer: dict[int, OperatorShapes] = {}
    places: dict[int, list[int]] = {}
    for place, (operator, instruction) in enumerate(traced):
        if operator.executor is Executor.PORTABLE or operator.operation in _MATRIX_OPERATIONS:
            places.setdefault(instruction, []).append(place)
    for instruction, asked in places.items():
        known = method.calls.get(instruction, ())
        found = dict(zip(asked, known, strict=False))
        agree = all(_same(traced[place][0], shapes) for place, shapes in found.items())
        if agree and len(asked) == len(known):
            answer |= found
    return tuple(map(answer.get, range(len(traced))))


def _same(operator: Operator, shapes: OperatorShapes) -> bool:
    if operator.executor is not Executor.PORTABLE:
        return operator.operation in _RUNS_AS.get(shapes.operation, frozenset())
    name = operator.name.removeprefix("native_call_")
    return name == shapes.operation.rpartition("::")[2]


def shapes_text(members: Iterable[tuple[OperatorShapes | None, float]]) -> str:
    """The shapes of several operators with what each costs, the costliest first; ``""`` for none.

    ``1x56x56x16 by 72x1x1x16, 1x28x28x24 by 88x1x1x24 and 3 other shapes``.
    """
    costs: dict[str, float] = {}
    for shapes, cost in members:
        if shapes is not None:
            text = " by ".join(map(shape_text, shapes.inputs))
            costs[text] = costs.get(text, 0.0) + cost
    ranked = sorted(costs, key=lambda text: -costs[text])
    left = len(ranked) - MOST_NAMED
    named = ", ".join(ranked[:MOST_NAMED])
    return f"{named} and {count(left, 'other shape')}" if left > 0 else named


def is_pointwise(shapes: OperatorShapes) -> bool:
    """Whether the program has a 1x1 convolution here, whatever XNNPACK made of it."""
    return shapes.operation == "convolution" and shapes.inputs[-1][1:3] == (1, 1)


def rows(shapes: OperatorShapes) -> int | None:
    """The rows of the matrix product: tokens, or pixels of the output; None where not known."""
    if shapes.operation == "matrix product":
        return shapes.output[-2] if len(shapes.output) > 1 else None
    if shapes.operation == "linear" or "convolution" in shapes.operation:
        return math.prod(shapes.output[:-1])
    return None


def kernel_size(shapes: OperatorShapes | None) -> tuple[int, int] | None:
    """Height and width of a convolution's kernel; None where the program does not tell."""
    if shapes is None or "convolution" not in shapes.operation or len(shapes.inputs[-1]) != 4:
        return None
    return shapes.inputs[-1][1], shapes.inputs[-1][2]
