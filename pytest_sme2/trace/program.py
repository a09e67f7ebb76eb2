"""What a ``.pte`` says of itself: its methods, and the shapes of its matrix operators' tensors.

ExecuTorch's program lists the calls of a method; the graph of an XNNPACK call lies in a segment of
the same file. Both are flatbuffers and are read with NumPy: neither torch nor ExecuTorch is needed.
The schemas are ExecuTorch's ``exir/_serialize/program.fbs`` and ``backends/xnnpack/serialization/
schema.fbs``. Which operator of a trace is which is decided in ``profile/matching.py``.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TypeVar

import numpy as np
from numpy.typing import NDArray

from pytest_sme2.errors import ProgramError
from pytest_sme2.results.run import MethodOutline, MethodShapes, OperatorShapes, Shape, TensorSpec
from pytest_sme2.trace.flatbuffer import Buffer, Positions, Tables

_T = TypeVar("_T")

IDENTIFIER = b"ET12"
HEADER = b"eh00"
XNNPACK_HEADER = b"XH00"
# A program, as its own runtime bounds it, has far fewer; a damaged length must not cost memory.
_MOST_ELEMENTS = 1 << 20

# The slots of the schemas' tables, in the order in which they declare their fields.
_PROGRAM_PLANS, _PROGRAM_INLINE, _PROGRAM_SEGMENTS = 1, 3, 4
_MOST_METHODS = 10_000
_PLAN_NAME, _PLAN_VALUES, _PLAN_INPUTS, _PLAN_OUTPUTS = 0, 2, 3, 4
_PLAN_CHAINS, _PLAN_OPERATORS, _PLAN_DELEGATES = 5, 6, 7
_CHAIN_INSTRUCTIONS = 2
_UNION_TYPE, _UNION_VALUE = 0, 1
_TENSOR = 5
_TENSOR_TYPE, _TENSOR_SIZES = 0, 2
# By the schema's numbers. What NumPy has no name for is left out.
_DATA_TYPES = {11: "bool"} | dict(
    enumerate(["uint8", "int8", "int16", "int32", "int64", "float16", "float32", "float64"])
)
_KERNEL_CALL, _DELEGATE_CALL = 1, 2
_CALL_INDEX, _CALL_ARGUMENTS = 0, 1
_OPERATOR_NAME, _OPERATOR_OVERLOAD = 0, 1
_DELEGATE_ID, _DELEGATE_DATA = 0, 1
_DATA_LOCATION, _DATA_INDEX = 0, 1
_SEGMENT = 1
_SEGMENT_OFFSET, _SEGMENT_SIZE = 0, 1

_GRAPH_NODES, _GRAPH_VALUES = 1, 2
_QUANTIZED_VALUE = 2
_VALUE_DIMENSIONS, _VALUE_ID = 2, 6

# By the node's place in XNNPACK's union: what it is, and the slots of its inputs and its output.
XNNPACK_NODES = {
    2: ("linear", (0, 1), 3),
    7: ("convolution", (15, 16), 18),
    13: ("depthwise convolution", (15, 16), 18),
    36: ("attention", (0, 1, 2), 5),
    37: ("matrix product", (0, 1), 2),
    39: ("transposed convolution", (15, 16), 18),
}


class _ProgramBuffer(Buffer):
    """The bytes of a program, or of a delegate's graph in it."""

    failure = ProgramError
    remedy = "The program is damaged or of another format: export it again."

    def vector(self, at: Positions, what: str) -> tuple[Positions, Positions]:
        first, length = super().vector(at, what)
        if int(length.sum()) > _MOST_ELEMENTS:
            raise self.error(f"{what} has more elements than any program")
        return first, length

    def tables(self, at: Positions, what: str) -> Tables:
        """The tables that the vectors at ``at`` hold, one vector after another."""
        return Tables(self, self.elements(*self.vector(at, what)), what)

    def numbers(self, at: Positions, what: str) -> list[tuple[int, ...]]:
        """The 32-bit numbers of the vector at each position; none where it is 0."""
        first, length = self.vector(at, what)
        values = iter(self.int32(self.slots(first, length)).tolist())
        return [tuple(itertools.islice(values, count)) for count in length.tolist()]


def read_program(path: Path) -> tuple[MethodShapes, ...]:
    """The matrix operators of each method of a program, by instruction.

    Raises ProgramError, saying what is wrong, for anything that is not a whole program.
    """
    buffer, blobs, plans = _open(path)
    return tuple(_method(buffer, plan, name, blobs) for name, plan in plans)


def read_nodes(path: Path) -> dict[str, dict[int, tuple[int, ...]]]:
    """By method and instruction, the nodes of each graph for XNNPACK: their places in its union.

    Raises ProgramError as ``read_program`` does.
    """
    buffer, blobs, plans = _open(path)
    return {name: _graphs(buffer, plan, blobs, _xnnpack_nodes) for name, plan in plans}


def read_outline(path: Path) -> tuple[MethodOutline, ...]:
    """The methods of a program: what they take and give, and the backends that they need.

    Raises ProgramError as ``read_program`` does.
    """
    buffer, blobs, plans = _open(path)
    blobs.require_whole()
    return tuple(_outline(buffer, plan, name) for name, plan in plans)


def _plans(buffer: _ProgramBuffer, program: Tables) -> Iterator[tuple[str, Tables]]:
    """The methods with their names. One method may be listed many times in few bytes."""
    plans = buffer.tables(program.reference(_PROGRAM_PLANS), "the list of methods")
    if len(plans.at) > _MOST_METHODS:
        raise ProgramError(
            f"{buffer.source}: it lists {len(plans.at)} methods, and {_MOST_METHODS} is the most. "
            "It is damaged, or made to take long."
        )
    names = buffer.texts(plans.reference(_PLAN_NAME), "a method's name")
    for row, name in enumerate(names):
        yield name, Tables(buffer, plans.at[row : row + 1], "a method")


def _tensors(buffer: _ProgramBuffer, plan: Tables) -> dict[int, tuple[int, Shape]]:
    """The data type and the sizes of a method's tensors, by their place among its values."""
    values = buffer.tables(plan.reference(_PLAN_VALUES), "a method's values")
    is_tensor = np.flatnonzero(values.uint8(_UNION_TYPE) == _TENSOR)
    tensors = Tables(buffer, values.reference(_UNION_VALUE)[is_tensor], "a tensor")
    sizes = buffer.numbers(tensors.reference(_TENSOR_SIZES), "a tensor's sizes")
    types = tensors.uint8(_TENSOR_TYPE).tolist()
    return dict(zip(is_tensor.tolist(), zip(types, sizes, strict=True), strict=True))


def _outline(buffer: _ProgramBuffer, plan: Tables, name: str) -> MethodOutline:
    specs = {
        value: TensorSpec(_DATA_TYPES[kind], shape)
        for value, (kind, shape) in _tensors(buffer, plan).items()
        if kind in _DATA_TYPES
    }
    (inputs,) = buffer.numbers(plan.reference(_PLAN_INPUTS), "a method's inputs")
    (outputs,) = buffer.numbers(plan.reference(_PLAN_OUTPUTS), "a method's outputs")
    return MethodOutline(
        name,
        tuple(specs.get(value) for value in inputs),
        tuple(specs.get(value) for value in outputs),
        tuple(dict.fromkeys(backend for backend, _, _ in _delegates(buffer, plan))),
        len(_instructions(buffer, plan).at),
    )


def _load(path: Path) -> NDArray[np.uint8]:
    try:
        if not path.is_file():
            reason = "not a file" if path.exists() else "no such file"
            raise ProgramError(f"{path}: {reason}. Give the path of a .pte file.")
        if not path.stat().st_size:
            raise ProgramError(f"{path}: the file is empty. Export the program again.")
        # Weights are most of the file, and are not looked at.
        return np.memmap(path, dtype=np.uint8, mode="r")
    except OSError as error:
        raise ProgramError(f"{path}: cannot be read: {error.strerror}.") from error


def _open(path: Path) -> tuple[_ProgramBuffer, _Blobs, Iterator[tuple[str, Tables]]]:
    """The program's own flatbuffer, the data of its delegates, and its methods by name."""
    data = _load(path)
    head = data[:32].tobytes()
    if head[4:8] != IDENTIFIER:
        raise ProgramError(
            f"{path}: not a program: the identifier {IDENTIFIER.decode()} is missing, the file "
            f"begins with {head[:12]!r}. Give a .pte file."
        )
    size = segments_at = 0
    if head[8:12] == HEADER and len(head) == 32:
        size, segments_at = (int.from_bytes(head[at : at + 8], "little") for at in (16, 24))
    if max(size, segments_at) > data.size:
        raise ProgramError(f"{path}: it ends before its segments begin. Export it again.")
    buffer = _ProgramBuffer(data[: size or data.size], str(path))
    program = buffer.root()
    blobs = _Blobs(data, buffer, program, segments_at)
    return buffer, blobs, _plans(buffer, program)


class _Blobs:
    """The delegates' own data, wherever the program keeps it."""

    def __init__(
        self, data: NDArray[np.uint8], buffer: _ProgramBuffer, program: Tables, segments_at: int
    ) -> None:
        self.source = buffer.source
        self._data = data
        segments = buffer.tables(program.reference(_PROGRAM_SEGMENTS), "the list of segments")
        # Python's numbers, since the sum of two of the file's may not fit.
        offsets = (segments_at + offset for offset in segments.uint64(_SEGMENT_OFFSET).tolist())
        self._segments = list(zip(offsets, segments.uint64(_SEGMENT_SIZE).tolist(), strict=True))
        inline = buffer.tables(program.reference(_PROGRAM_INLINE), "the list of delegates' data")
        at = inline.reference(0)
        buffer.require(at, 4, 4, "a delegate's data")
        lengths = np.where(at == 0, 0, buffer.word(at))
        self._inline = list(zip((at + 4).tolist(), lengths.tolist(), strict=True))

    def require_whole(self) -> None:
        """Raise ProgramError if the file ends before a segment does: it was cut."""
        if any(start + size > self._data.size for start, size in self._segments):
            raise ProgramError(f"{self.source}: the file was cut off. Copy or export it again.")

    def __call__(self, in_segment: bool, index: int) -> bytes:
        places = self._segments if in_segment else self._inline
        start, size = places[index] if 0 <= index < len(places) else (0, 0)
        if not size or start + size > self._data.size:
            raise ProgramError(
                f"{self.source}: a delegate's data lies outside of the file. Export it again."
            )
        # The graph is at the front, its weights behind it: the header says where.
        head = self._data[start : start + 18].tobytes()
        if head[4:8] == XNNPACK_HEADER:
            first, length = (int.from_bytes(head[at : at + 4], "little") for at in (10, 14))
            return self._data[start + first : start + min(first + length, size)].tobytes()
        return self._data[start : start + size].tobytes()


def _instructions(buffer: _ProgramBuffer, plan: Tables) -> Tables:
    chains = buffer.tables(plan.reference(_PLAN_CHAINS), "a method's list of chains")
    # More than one chain was never written; its instructions would be numbered anew.
    return buffer.tables(chains.reference(_CHAIN_INSTRUCTIONS)[:1], "the instructions")


def _graphs(
    buffer: _ProgramBuffer,
    plan: Tables,
    blobs: _Blobs,
    read: Callable[[bytes, str], tuple[_T, ...]],
) -> dict[int, tuple[_T, ...]]:
    """What ``read`` finds in the graph of each call of a delegate, by instruction."""
    instructions = _instructions(buffer, plan)
    rows = np.flatnonzero(instructions.uint8(_UNION_TYPE) == _DELEGATE_CALL)
    calls = Tables(buffer, instructions.reference(_UNION_VALUE)[rows], "a delegate call")
    delegates = _delegates(buffer, plan)
    found: dict[int, tuple[_T, ...]] = {}
    graphs: dict[int, tuple[_T, ...]] = {}
    for row, index in zip(rows.tolist(), calls.int32(_CALL_INDEX, 0).tolist(), strict=True):
        if not 0 <= index < len(delegates):
            raise buffer.error("a call names a delegate that is not there")
        if index not in graphs:
            backend, in_segment, place = delegates[index]
            graphs[index] = (
                read(blobs(in_segment, place), buffer.source) if backend == "XnnpackBackend" else ()
            )
        found[row] = graphs[index]
    return found


def _method(buffer: _ProgramBuffer, plan: Tables, name: str, blobs: _Blobs) -> MethodShapes:
    instructions = _instructions(buffer, plan)
    kinds = instructions.uint8(_UNION_TYPE)
    calls_at = instructions.reference(_UNION_VALUE)
    calls = _graphs(buffer, plan, blobs, _xnnpack_operators)

    kernel_rows = np.flatnonzero(kinds == _KERNEL_CALL)
    kernels = Tables(buffer, calls_at[kernel_rows], "a kernel call")
    operators = _kernels(buffer, plan, kernels)
    calls |= {row: (found,) for row, found in zip(kernel_rows.tolist(), operators, strict=True)}
    return MethodShapes(name, dict(sorted(calls.items())))


def _delegates(buffer: _ProgramBuffer, plan: Tables) -> list[tuple[str, bool, int]]:
    """Each delegate's backend, and where its data is."""
    delegates = buffer.tables(plan.reference(_PLAN_DELEGATES), "a method's delegates")
    backends = buffer.texts(delegates.reference(_DELEGATE_ID), "a delegate's name")
    places = Tables(buffer, delegates.reference(_DELEGATE_DATA), "a delegate's place")
    segments = places.uint8(_DATA_LOCATION) == _SEGMENT
    return list(
        zip(backends, segments.tolist(), places.int32(_DATA_INDEX, 0).tolist(), strict=True)
    )


def _kernels(buffer: _ProgramBuffer, plan: Tables, calls: Tables) -> Iterator[OperatorShapes]:
    operators = buffer.tables(plan.reference(_PLAN_OPERATORS), "a method's operators")
    names = buffer.texts(operators.reference(_OPERATOR_NAME), "an operator's name")
    overloads = buffer.texts(operators.reference(_OPERATOR_OVERLOAD), "an operator's overload")
    tensors = _tensors(buffer, plan)
    called = calls.int32(_CALL_INDEX, 0).tolist()
    arguments = buffer.numbers(calls.reference(_CALL_ARGUMENTS), "a call's arguments")
    for index, values in zip(called, arguments, strict=True):
        if not 0 <= index < len(names):
            raise buffer.error("a call names an operator that is not there")
        name = f"{names[index]}.{overloads[index]}" if overloads[index] else names[index]
        # The output is the last argument, and is named once more as what is returned.
        shapes = [tensors[value][1] for value in dict.fromkeys(values) if value in tensors]
        yield OperatorShapes(name, tuple(shapes[:-1]), shapes[-1] if shapes else ())


def _xnnpack_graph(graph: bytes, source: str) -> tuple[_ProgramBuffer, Tables, Tables]:
    data = np.frombuffer(graph, dtype=np.uint8)
    buffer = _ProgramBuffer(data, f"{source}, an XNNPACK graph in it")
    root = buffer.root()
    return buffer, root, buffer.tables(root.reference(_GRAPH_NODES), "the graph's nodes")


def _xnnpack_nodes(graph: bytes, source: str) -> tuple[int, ...]:
    if graph[4:7] != b"XN0":
        return ()
    return tuple(_xnnpack_graph(graph, source)[2].uint8(_UNION_TYPE).tolist())


def _xnnpack_operators(graph: bytes, source: str) -> tuple[OperatorShapes, ...]:
    """The matrix operators of an XNNPACK graph, in its order."""
    if graph[4:7] != b"XN0":
        return ()
    buffer, root, nodes = _xnnpack_graph(graph, source)
    shape_of = _xnnpack_shapes(buffer, root)
    kinds = nodes.uint8(_UNION_TYPE)
    node_at = nodes.reference(_UNION_VALUE)
    found: dict[int, OperatorShapes] = {}
    for kind, (operation, inputs, output) in XNNPACK_NODES.items():
        rows = np.flatnonzero(kinds == kind)
        tables = Tables(buffer, node_at[rows], "a node")
        columns = [tables.int32(slot, 0).tolist() for slot in (*inputs, output)]
        for row, values in zip(rows.tolist(), zip(*columns, strict=True), strict=True):
            *taken, given = (shape_of.get(value, ()) for value in values)
            found[row] = _named(OperatorShapes(operation, tuple(taken), given))
    return tuple(found[row] for row in sorted(found))


def _named(shapes: OperatorShapes) -> OperatorShapes:
    """ExecuTorch writes a dense convolution of one input channel as a depthwise one."""
    if shapes.operation != "depthwise convolution" or shapes.inputs[0][-1:] != (1,):
        return shapes
    image, weights = shapes.inputs
    return OperatorShapes("convolution", (image, (*weights[-1:], *weights[1:-1], 1)), shapes.output)


def _xnnpack_shapes(buffer: _ProgramBuffer, root: Tables) -> dict[int, Shape]:
    values = buffer.tables(root.reference(_GRAPH_VALUES), "the graph's values")
    at = values.reference(_UNION_VALUE).copy()
    quantized = np.flatnonzero(values.uint8(_UNION_TYPE) == _QUANTIZED_VALUE)
    at[quantized] = Tables(buffer, at[quantized], "a quantized value").reference(0)
    tensors = Tables(buffer, at, "a value")
    shapes = buffer.numbers(tensors.reference(_VALUE_DIMENSIONS), "a value's dimensions")
    return dict(zip(tensors.int32(_VALUE_ID, 0).tolist(), shapes, strict=True))
