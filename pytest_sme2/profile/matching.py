"""Which operator of a trace is which of the program: its shapes, and where the model has it. Pure.

A trace names operators without shapes, a program has shapes without XNNPACK's names. Both list the
operators of a call in the same order; where number and kind of them do not agree, nothing is
claimed. The program is read in ``trace/program.py``, its source in ``trace/etrecord.py``.
"""

from __future__ import annotations

import bisect
import math
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace

from pytest_sme2.profile.categories import classify
from pytest_sme2.results.profile import Executor, Operator
from pytest_sme2.results.run import (
    Attribution,
    Frame,
    MethodShapes,
    OperatorShapes,
    Origin,
    shape_text,
)
from pytest_sme2.system.wording import count
from pytest_sme2.trace.program import XNNPACK_NODES

MOST_NAMED = 3

# What XNNPACK may run a node of its graph as, by its place in the schema's union, from 1 on.
_NODE_RUNS_AS = tuple(frozenset(names.split("/")) for names in (
    "Add", "Fully Connected/Dynamic Fully Connected/Convolution", "Softmax", "Sigmoid",
    "Transpose", "Clamp", "Convolution/Fully Connected", "Divide", "Resize Bilinear",
    "Constant Pad", "Average Pooling", "Minimum", "Convolution", "Max Pooling", "Multiply/Square",
    "Subtract", "Floor", "Convert", "Mean", "Static Reshape", "ArgMax Pooling", "Square Root",
    "Ceiling", "HardSwish", "LeakyReLU", "Maximum", "Negate", "Square", "ELU", "Abs", "PReLU",
    "Copy", "Copy", "Copy", "Slice", "Softmax", "Batch Matrix Multiply", "Copy", "Deconvolution",
    "Reciprocal Square Root", "Log", "GELU", "TanH", "Exp", "Sine", "Copy", "Cosine",
))  # fmt: skip
_RUNS_AS: Mapping[str, frozenset[str]] = {
    name: _NODE_RUNS_AS[kind - 1]
    for kind, (name, *_) in XNNPACK_NODES.items()
    if name != "attention"
}
# The same of the graph that the model was lowered to.
_NODES: Mapping[str, frozenset[str]] = {
    "aten.convolution": frozenset({"Convolution", "Deconvolution", "Fully Connected"}),
    **dict.fromkeys(("aten.linear", "aten.addmm", "aten.mm"), _RUNS_AS["linear"]),
    "aten.bmm": _RUNS_AS["matrix product"],
}
_NORM = "aten._native_batch_norm_legit_no_training"
_MATRIX = frozenset().union(*_RUNS_AS.values())

# A function of one value that is looked up, in int8, has this name.
_LOOKED_UP = "Invalid Unary Op"
_FUNCTIONS = frozenset({4, 17, 22, 23, 24, 25, 27, 28, 29, 30, 40, 41, 42, 43, 44, 45, 47})
# It leaves these out where it can: the operator before a Clamp, or the next one, does it as well.
_CLAMP, _LEFT_OUT = 6, frozenset({6, 10, 18, 20})

Traced = Sequence[tuple[Operator, int]]
"""The operators of a run, each with its instruction."""
Nodes = Sequence[tuple[str, Origin]]


def match_shapes(
    traced: Traced, methods: Sequence[MethodShapes]
) -> tuple[OperatorShapes | None, ...]:
    """For each operator its shapes, from the method that explains most; None where unknown.

    An ETDump does not name its methods.
    """
    answers = [_match_method(traced, method) for method in methods]
    best: dict[int, OperatorShapes] = max(answers, key=len, default={})
    return tuple(map(best.get, range(len(traced))))


def _match_method(traced: Traced, method: MethodShapes) -> dict[int, OperatorShapes]:
    """By place in the trace."""
    answer: dict[int, OperatorShapes] = {}
    places: dict[int, list[int]] = {}
    for place, (operator, instruction) in enumerate(traced):
        if operator.executor is Executor.PORTABLE or operator.operation in _MATRIX:
            places.setdefault(instruction, []).append(place)
    for instruction, asked in places.items():
        known = method.calls.get(instruction, ())
        if len(asked) == len(known):
            found = dict(zip(asked, known, strict=True))
            if all(_same(traced[place][0], shapes) for place, shapes in found.items()):
                answer |= found
    return answer


def _same(operator: Operator, shapes: OperatorShapes) -> bool:
    if operator.executor is not Executor.PORTABLE:
        return operator.operation in _RUNS_AS.get(shapes.operation, ())
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


def match_nodes(operators: Sequence[str], nodes: Sequence[int]) -> tuple[list[int], dict[int, int]]:
    """For each operation of a call the node that it runs, and the nodes that others ran with them.

    Both have the order of the graph: an operation runs the next node that fits. One that has no
    node serves the one before it. Nothing where no node is known.
    """
    ran: list[int] = []
    for operation in operators:
        last = ran[-1] if ran else -1
        fits = (at for at in range(last + 1, len(nodes)) if _may_run_as(nodes[at], operation))
        place = next(fits, last)
        # A clamp that XNNPACK adds: it is not that of a later node.
        added = operation == "Clamp" and not _LEFT_OUT.issuperset(nodes[last + 1 : place])
        ran.append(last if added else place)
    own = sorted({*ran} - {-1})
    parts = {}
    for node in set(range(len(nodes))) - {*own} if own else ():
        place = bisect.bisect(own, node) - (nodes[node] == _CLAMP)
        parts[node] = own[min(max(place, 0), len(own) - 1)]
    return [max(place, own[0]) for place in ran if own], parts


def _may_run_as(node: int, operation: str) -> bool:
    """Of a node of a later version nothing is known: any operation may be what it runs."""
    looked_up = operation == _LOOKED_UP and node in _FUNCTIONS
    return looked_up or node > len(_NODE_RUNS_AS) or operation in _NODE_RUNS_AS[node - 1]


def match_origins(traced: Traced, attribution: Attribution) -> tuple[Origin | None, ...]:
    """For each operator where the model has it; None where not known.

    A delegate has its operators in the order of the graph. Where number or kind do not agree,
    nothing is claimed but that an operator is near one of its kind, or a matrix operator.
    """
    answer = [attribution.origins.get(instruction) for _, instruction in traced]
    calls: dict[int, dict[int, Operator]] = {}
    for place, (operator, instruction) in enumerate(traced):
        if operator.executor is not Executor.PORTABLE:
            calls.setdefault(instruction, {})[place] = operator
    for instruction, operators in calls.items():
        for place, origin in _matched(operators, attribution.nodes.get(instruction, ())):
            answer[place] = origin
    return tuple(answer)


def _matched(operators: Mapping[int, Operator], nodes: Nodes) -> Iterator[tuple[int, Origin]]:
    """The operators of one call: the matrix operators, and between two of them the others."""
    anchors = _anchors(operators, nodes)
    edges = [-1, *anchors.values(), len(nodes)]
    inside: dict[tuple[int, str], list[int]] = {}
    passed = 0
    for place, operator in operators.items():
        if place in anchors:
            passed += 1
            yield place, nodes[anchors[place]][1]
        elif operator.operation not in _MATRIX:
            inside.setdefault((passed, operator.kind), []).append(place)
    for (passed, kind), places in inside.items():
        after, before = edges[passed], edges[passed + 1]
        found = [origin for name, origin in nodes[after + 1 : before] if _kind(name) == kind]
        beside = found + [nodes[row][1] for row in (after, before) if 0 <= row < len(nodes)]
        if len(found) == len(places):
            yield from zip(places, found, strict=True)
        elif beside:
            yield from ((place, replace(beside[0], near=True)) for place in places)


def _anchors(operators: Mapping[int, Operator], nodes: Nodes) -> dict[int, int]:
    """The matrix operators with the rows of their nodes; none where the two do not agree."""
    places = [place for place, found in operators.items() if found.operation in _MATRIX]
    names = [name.rpartition(".")[0] for name, _ in nodes]
    matrix = {row: _NODES[name] for row, name in enumerate(names) if name in _NODES}
    # A batch norm that follows no convolution runs as one.
    norms = {
        row: _RUNS_AS["depthwise convolution"]
        for row, name in enumerate(names)
        if name == _NORM and row - 1 not in matrix
    }
    for runs_as in (matrix, dict(sorted((matrix | norms).items()))):
        if len(runs_as) == len(places) and all(
            operators[place].operation in known
            for place, known in zip(places, runs_as.values(), strict=True)
        ):
            return dict(zip(places, runs_as, strict=True))
    return {}


def _kind(name: str) -> str:
    """Of a node of the graph; the runtime's kernels are called after them."""
    operation = name.split(".")[1:2] or [name]
    return classify(f"native_call_{operation[0]}").kind


def source_text(origin: Origin) -> str:
    """``` `x.flip(-1)` at net.py:8 in stem.0 (Conv2d)```, as much as is known of it."""
    code = f"`{origin.code}`" if origin.code else ""
    line = f"at {short_file(origin.file)}:{origin.line}" if origin.file else ""
    kind = f" ({origin.module_type})" if origin.module_type else ""
    module = f"{origin.module}{kind}" if origin.module else ""
    way = f"({_way_text(origin)})" * bool(line and _way_text(origin))
    parts = ("near" * origin.near, code, line, way, "in" * bool(module and line), module)
    return " ".join(filter(None, parts)) if module or line else ""


def _way_text(origin: Origin) -> str:
    """``forward:45 → scan:35``: the user's own calls from the innermost ``forward`` on."""
    names = [frame.function for frame in origin.way]
    first = max((row for row, name in enumerate(names) if name == "forward"), default=0)
    way = origin.way[first:]
    if not way or (way[-1].file, way[-1].line) != (origin.file, origin.line):
        # A line of an installed package.
        return f"from {short_file(way[-1].file)}:{way[-1].line}" if way else ""
    calls = " → ".join(f"{frame.function}:{frame.line}" for frame in way)
    return calls if len(way) > 1 else ""


def short_file(file: str) -> str:
    """A file of an installed package from the package on; any other as it is."""
    return file.replace("\\", "/").rpartition("/site-packages/")[2]


_PLACE = re.compile(r"(near )?(?:(.+):([0-9]+) ?(\S*?))?(?: ?in (\S+))?", re.DOTALL)


def place_text(origin: Origin | None) -> str:
    """As a baseline keeps it: ``net/model.py:35 scan in stem.0``.

    Of the path two parts: another folder to start from makes no other baseline.
    """
    if origin is None:
        return ""
    file = "/".join(origin.file.replace("\\", "/").split("/")[-2:])
    last = origin.way[-1:] if origin.file else ()
    function = "".join(frame.function for frame in last if frame.line == origin.line)
    line = f"{file}:{origin.line} {function}".strip() if file else ""
    parts = (line, f"in {origin.module}" if origin.module else "")
    text = " ".join(filter(None, parts))
    return f"near {text}" if text and origin.near else text


def read_place(text: str) -> Origin:
    """The origin, as far as a baseline has kept it."""
    found = _PLACE.fullmatch(text)
    if found is None:
        return Origin("")
    near, file, line, function, module = found.groups(default="")
    way = (Frame(file, int(line), function),) if function else ()
    return Origin("", module, "", file, int(line or 0), near=bool(near), way=way)
