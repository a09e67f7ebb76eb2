"""Which operator of a trace the model has where, and the words for it. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace

from pytest_sme2.profile.categories import classify
from pytest_sme2.results import Attribution, Executor, Operator, Origin

_MATRIX_NODES = ("aten.convolution.", "aten.linear.", "aten.addmm.", "aten.mm.", "aten.bmm.")
_NORM = "aten._native_batch_norm_legit_no_training"
# What XNNPACK may run an operator of the graph as.
_RUNS_AS: Mapping[str, tuple[str, ...]] = {
    "aten.convolution": ("Convolution", "Deconvolution", "Fully Connected"),
    "aten.bmm": ("Batch Matrix Multiply",),
    _NORM: ("Convolution",),
}
_LINEAR = ("Fully Connected", "Dynamic Fully Connected", "Convolution")
_MATRIX = frozenset({*_LINEAR, *(name for names in _RUNS_AS.values() for name in names)})

Nodes = Sequence[tuple[str, Origin]]


def match_origins(
    traced: Sequence[tuple[Operator, int]], attribution: Attribution
) -> tuple[Origin | None, ...]:
    """For each operator, with its instruction, where the model has it; None where not known.

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
    anchors = dict(_anchors(operators, nodes))
    rows = [-1, *anchors.values(), len(nodes)]
    inside: dict[tuple[int, str], list[int]] = {}
    passed = 0
    for place, operator in operators.items():
        if place in anchors:
            passed += 1
            yield place, nodes[anchors[place]][1]
        elif operator.operation not in _MATRIX:
            inside.setdefault((passed, operator.kind), []).append(place)
    for (passed, kind), places in inside.items():
        after, before = rows[passed], rows[passed + 1]
        found = [origin for name, origin in nodes[after + 1 : before] if _kind(name) == kind]
        beside = found + [nodes[row][1] for row in (after, before) if 0 <= row < len(nodes)]
        if len(found) == len(places):
            yield from zip(places, found, strict=True)
        elif beside:
            yield from ((place, replace(beside[0], near=True)) for place in places)


def _anchors(operators: Mapping[int, Operator], nodes: Nodes) -> list[tuple[int, int]]:
    """The matrix operators with their nodes; none where the two do not agree."""
    places = [place for place, found in operators.items() if found.operation in _MATRIX]
    matrix = [row for row, (name, _) in enumerate(nodes) if name.startswith(_MATRIX_NODES)]
    # A batch norm that follows no convolution runs as one.
    norms = [
        row
        for row, (name, _) in enumerate(nodes)
        if name.startswith(_NORM) and row - 1 not in matrix
    ]
    for rows in (matrix, sorted(matrix + norms)):
        if len(rows) == len(places) and all(
            operators[place].operation in _RUNS_AS.get(nodes[row][0].rpartition(".")[0], _LINEAR)
            for place, row in zip(places, rows, strict=True)
        ):
            return list(zip(places, rows, strict=True))
    return []


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
    parts = ("near" * origin.near, code, line, "in" * bool(module and line), module)
    return " ".join(filter(None, parts)) if module or line else ""


def short_file(file: str) -> str:
    """A file of an installed package from the package on; any other as it is."""
    return file.replace("\\", "/").rpartition("/site-packages/")[2]
