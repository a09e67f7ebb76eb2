"""What each operator executed: counted segments matched with the ETDump's events, one to one.

The runner marks where the tracer begins and ends an event, in the order in which the ETDump has
them. XNNPACK tells the tracer about its operators only afterwards, but reads the clock before the
first and after each of them, which the emulator's log shows. An operator that XNNPACK runs in
several steps (to concatenate, to split) has a reading after each step; the readings themselves then
say which steps belong to which operator, since its time in the ETDump is their sum. Where nothing
fits, or more than one thing does, nothing is claimed.
"""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence, Set
from dataclasses import dataclass, field, fields, replace
from itertools import pairwise

import numpy as np
from numpy.typing import NDArray

from pytest_sme2.profile.matching import place_text
from pytest_sme2.profile.operators import select
from pytest_sme2.results.evidence import (
    CountedInference,
    Counts,
    InferenceCost,
    KernelCost,
    KernelFamily,
    OperatorCost,
    Segment,
    StoredCost,
    StoredOperator,
    Toolchain,
)
from pytest_sme2.results.profile import Category, OperatorProfile, Profile
from pytest_sme2.results.run import Columns, OperatorShapes
from pytest_sme2.trace.instructions import DOT, LOOKUP, MULTIPLY_ADD, NEON

_Row = NDArray[np.int64]
_WIDTH = len(fields(Counts))
# XNNPACK's delegate reads the clock as it starts its profiler, and XNNPACK as it starts to run.
_READINGS_BEFORE = 2
# XNN_MAX_OPERATOR_OBJECTS in XNNPACK.
_MOST_STEPS = 5
# How many bytes one value has that a whole tile is made of, with sums of 32 bits.
_LANE_BYTES = {"fp32": 4, "fp16": 2, "bf16": 2, "int16": 2, "fp8": 1, "int8": 1}
_TILE = " outer product"
_NO_TILE = (LOOKUP, DOT, MULTIPLY_ADD, NEON)
_MOST_KERNELS = 4
_LIBRARY = re.compile(r"\.(so|dylib)\b")


class MismatchError(Exception):
    """The log and the ETDump do not agree."""


@dataclass
class _Code:
    """Counts by kernel or library."""

    rows: dict[str, _Row] = field(default_factory=dict)

    def add(self, other: Mapping[str, Sequence[int] | _Row]) -> None:
        for name, values in other.items():
            self.rows[name] = self.rows.get(name, 0) + np.asarray(values, dtype=np.int64)

    def instructions_in(self, names: Set[str]) -> int:
        return sum(int(row[0]) for name, row in self.rows.items() if name in names)

    def total(self) -> _Row:
        return sum(self.rows.values(), np.zeros(_WIDTH, dtype=np.int64))

    def ranked(self) -> list[tuple[str, Counts]]:
        """By name, most instructions first."""
        ranked = sorted(self.rows.items(), key=lambda item: (-item[1][0], item[0]))
        return [(name, _counts(row)) for name, row in ranked]


def _counts(row: _Row) -> Counts:
    return Counts(*map(int, row))


@dataclass
class _Event:
    own: _Code = field(default_factory=_Code)
    """Including events inside it that do not belong to a delegate."""
    pieces: list[Segment] = field(default_factory=list)
    """Between readings of the clock."""
    delegated: list[int] = field(default_factory=list)
    """The events that a delegate told of, by their number in the ETDump's order."""


@dataclass
class _Matched:
    events: dict[int, _Code] = field(default_factory=dict)
    """By number in the ETDump's order."""
    runtime: _Code = field(default_factory=_Code)
    setup: _Code = field(default_factory=_Code)


def match_events(segments: Sequence[Segment], durations_ns: Sequence[int]) -> _Matched:
    """The code of every event; ``durations_ns`` are those of the ETDump's events, in its order."""
    matched = _Matched()
    outside = _Event()
    stack = [outside]
    number = 0
    for segment in segments:
        event = stack[-1]
        if segment.mark == "clock":
            event.pieces.append(segment)
            continue
        if segment.mark == "delegated":
            # From its last operator to here the delegate only gathers its profile.
            event.delegated.append(number)
            number += 1
            continue
        event.own.add(segment.code)
        if segment.mark == "start":
            stack.append(_Event())
        elif segment.mark == "end":
            if len(stack) == 1:
                raise MismatchError("an event ended that had not begun")
            stack.pop()
            _close(event, matched, durations_ns)
            matched.events[number] = event.own
            number += 1
            stack[-1].own.add(event.own.rows)
    if len(stack) != 1:
        raise MismatchError("an event did not end")
    _close(outside, matched, durations_ns)
    matched.runtime = outside.own
    return matched


def _close(event: _Event, matched: _Matched, durations_ns: Sequence[int]) -> None:
    if not event.delegated:
        for piece in event.pieces:
            event.own.add(piece.code)
        return
    expected = len(event.delegated) + _READINGS_BEFORE
    steps = event.pieces[_READINGS_BEFORE:]
    sizes = [1] * len(event.delegated)
    if len(event.pieces) > expected and len(durations_ns) > event.delegated[-1]:
        started = event.pieces[_READINGS_BEFORE - 1].clock_ns
        asked = [durations_ns[number] // 1000 for number in event.delegated]
        sizes = _steps_of(asked, [started, *(step.clock_ns for step in steps)])
    elif len(event.pieces) != expected:
        raise MismatchError(
            f"a delegate told of {len(event.delegated)} operators, which makes {expected} readings "
            f"of the clock, but read it {len(event.pieces)} times"
        )
    for piece in event.pieces[:_READINGS_BEFORE]:
        matched.setup.add(piece.code)
    place = 0
    for number, size in zip(event.delegated, sizes, strict=True):
        matched.events[number] = _Code()
        for step in steps[place : place + size]:
            matched.events[number].add(step.code)
            event.own.add(step.code)
        place += size


def _steps_of(asked: Sequence[int], clock_ns: Sequence[int]) -> list[int]:
    """How many steps each operator has, so that their times add up to its own, in microseconds.

    XNNPACK cuts every step to whole microseconds, so each may be one off.
    """
    steps = [(after - before) // 1000 for before, after in pairwise(clock_ns)]
    # From the last operator to the first: the ways to share out the steps from each place on.
    ways: dict[int, list[list[int]]] = {len(steps): [[]]}
    for operator in range(len(asked) - 1, -1, -1):
        found: dict[int, list[list[int]]] = {}
        for place in range(len(steps)):
            for size in range(1, _MOST_STEPS + 1):
                taken = steps[place : place + size]
                fits = len(taken) == size and abs(sum(taken) - asked[operator]) <= size
                if fits and place + size in ways:
                    rest = ways[place + size]
                    found.setdefault(place, []).extend([size, *each] for each in rest)
                    del found[place][2:]
        ways = found
    answers = ways.get(0, [])
    if len(answers) != 1:
        raise MismatchError(
            f"{len(steps)} steps of a delegate can be shared out among its {len(asked)} operators "
            f"in {'no way' if not answers else 'more than one way'} that fits their times"
        )
    return answers[0]


def build_cost(
    counted: CountedInference,
    columns: Columns,
    profile: Profile,
    *,
    cpu: str,
    toolchain: Toolchain,
) -> InferenceCost:
    """The cost of the one inference in ``columns``. Raises MismatchError."""
    codes, matched = _operator_code(counted, columns)
    if len(codes) != len(profile.operators):
        raise MismatchError("the ETDump and its profile differ in their operators")
    kernels, operators = _Code(), []
    for entry, code in zip(profile.operators, codes, strict=True):
        kernels.add(code.rows)
        operators.append(_operator_cost(entry, code, counted, toolchain))
    files = toolchain.files
    return InferenceCost(
        cpu=cpu,
        vector_bits=counted.vector_bits,
        operators=tuple(operators),
        kernels=tuple(
            KernelCost(name, counts, _work(name, counted)) for name, counts in kernels.ranked()
        ),
        runtime=_counts(matched.runtime.total() - kernels.total()),
        setup=_counts(matched.setup.total()),
        toolchain=toolchain.identity,
        runtime_system=matched.runtime.instructions_in(files) - kernels.instructions_in(files),
    )


def executed_families(counted: CountedInference, columns: Columns) -> tuple[KernelFamily, ...]:
    """What each operator of the one inference ran on: SME2 or SME where it executed instructions of
    streaming mode or on ZA. The one proof there is, free of names. Raises MismatchError.
    """
    codes, _ = _operator_code(counted, columns)
    return tuple(_family(code, counted) for code in codes)


def _family(code: _Code, counted: CountedInference) -> KernelFamily:
    """The most that any of its code needs."""
    found = {counted.code[name].family for name in code.rows if name in counted.code}
    return next((family for family in KernelFamily if family in found), KernelFamily.OTHER)


def _operator_code(counted: CountedInference, columns: Columns) -> tuple[list[_Code], _Matched]:
    """What each operator executed, in their order. Raises MismatchError."""
    if counted.problem:
        raise MismatchError(counted.problem)
    if columns.runs != 1:
        raise MismatchError(f"the ETDump holds {columns.runs} inferences, and one was counted")
    rows = np.flatnonzero(columns.run == 0)
    durations_ns = (columns.end[rows] - columns.start[rows]).tolist()
    matched = match_events(counted.segments, durations_ns)
    if rows.size != len(matched.events):
        raise MismatchError(
            f"the log shows {len(matched.events)} events, and the ETDump holds {rows.size}"
        )
    places = {int(row): number for number, row in enumerate(rows)}
    return [matched.events[places[row]] for row in select(columns).rows.tolist()], matched


def _work(name: str, counted: CountedInference) -> tuple[str, ...]:
    return counted.code[name].work if name in counted.code else ()


def _operator_cost(
    entry: OperatorProfile, code: _Code, counted: CountedInference, toolchain: Toolchain
) -> OperatorCost:
    counts, ranked = _counts(code.total()), code.ranked()
    operator = entry.operator
    work = (each for name, _ in ranked for each in _work(name, counted) if each not in _NO_TILE)
    product = next(work, "")
    return OperatorCost(
        index=entry.index,
        label=entry.label,
        name=operator.name,
        category=operator.category,
        executor=operator.executor,
        counts=counts,
        kernels=tuple((name, each.instructions) for name, each in ranked[:_MOST_KERNELS]),
        macs=multiply_accumulates(entry.shapes) if operator.matrix else None,
        matrix=operator.matrix,
        sme2=operator.sme2,
        sme1=operator.sme1,
        lane_bytes=_LANE_BYTES.get(product.removesuffix(_TILE), 0),
        product=product,
        system=code.instructions_in(toolchain.files),
    )


def product_kernel(entry: OperatorCost, cost: InferenceCost) -> str:
    """The kernel that multiplies, where it has a name: packing may be the same with SME2 off."""
    multiply = {each.name for each in cost.kernels if each.work}
    names = (name for name, _ in entry.kernels if name in multiply and not _LIBRARY.search(name))
    return next(names, "")


def multiply_accumulates(shapes: OperatorShapes | None) -> int | None:
    """How many an operator needs, from the shapes of its tensors; None where they do not tell."""
    if shapes is None or not shapes.inputs:
        return None
    weights = shapes.inputs[-1]
    outputs = math.prod(shapes.output)
    if shapes.operation == "convolution" and len(weights) == 4:
        # Weights: output channels, height, width, input channels of one group.
        return outputs * math.prod(weights[1:])
    if shapes.operation == "depthwise convolution" and len(weights) == 4:
        return outputs * weights[1] * weights[2]
    if shapes.operation == "transposed convolution" and len(weights) == 4:
        return math.prod(shapes.inputs[0]) * math.prod(weights[:3])
    if shapes.operation == "aten::convolution.out":
        image, weights = (*shapes.inputs, ())[:2]
        # A damaged program may say anything.
        if not 2 < len(image) == len(weights) == len(shapes.output):
            return None
        # The weights of a transposed one begin with its input channels; it makes images larger.
        larger = math.prod(shapes.output[2:]) > math.prod(image[2:])
        transposed = weights[0] == image[1] and (larger or weights[0] != shapes.output[1])
        return (math.prod(image) if transposed else outputs) * math.prod(weights[1:])
    if shapes.operation == "linear" or "mm" in shapes.operation or "matrix" in shapes.operation:
        return outputs * shapes.inputs[0][-1] if shapes.inputs[0] else None
    return None


def _macs(operators: Iterable[OperatorCost]) -> int:
    """All of them that are known."""
    return sum(entry.macs or 0 for entry in operators)


def work_coverage(cost: InferenceCost) -> float | None:
    """The share of all multiply-accumulates that ran on SME2; None where some are not known."""
    if any(entry.matrix and entry.macs is None for entry in cost.operators):
        return None
    total = _macs(cost.operators)
    return _macs(entry for entry in cost.operators if entry.sme2) / total if total else None


def tile_use(cost: InferenceCost, operators: Sequence[OperatorCost] | None = None) -> float | None:
    """Multiply-accumulates that were needed, of those that the executed outer products can do."""
    chosen = [
        entry
        for entry in (cost.operators if operators is None else operators)
        # Of quarter tiles nothing tells how much they could do.
        if entry.counts.outer_products and entry.macs and entry.lane_bytes
    ]
    possible = sum(
        entry.counts.outer_products * macs_of_outer_product(cost.vector_bits, entry.lane_bytes)
        for entry in chosen
    )
    return _macs(chosen) / possible if possible else None


def macs_of_outer_product(vector_bits: int, lane_bytes: int) -> int:
    """One outer product into 32-bit sums: a tile of them, over as many values as fit a lane."""
    lanes = vector_bits // 32
    return lanes * lanes * (4 // lane_bytes)


# Of costs from before the class of their products was kept.
_DATA_TYPES = {4: "fp32", 2: "fp16", 1: "int8"}


def split(cost: InferenceCost) -> dict[str, int]:
    """All instructions by what executes them, since one of each kind takes other times."""
    found: Counter[str] = Counter()
    for entry in cost.operators:
        if entry.counts.outer_products:
            kind = entry.product.removesuffix(_TILE) or _DATA_TYPES[entry.lane_bytes]
            found[f"outer products, {kind}"] += entry.counts.outer_products
    found["other streaming"] = -sum(found.values()) + sum(
        each.counts.instructions for each in cost.kernels if _is_streaming(each.counts)
    )
    found["NEON and scalar"] = cost.total.instructions - sum(found.values())
    return dict(found)


def _is_streaming(counts: Counts) -> bool:
    return counts.outer_products + counts.sme2_other > 0


def rest(cost: InferenceCost) -> tuple[float, Category, float] | None:
    """What SME2 cannot help with: the part of all instructions that is not matrix work, the
    category with most of it, and that one's part of it.
    """
    parts: Counter[Category] = Counter()
    for entry in cost.operators:
        if not entry.matrix:
            parts[entry.category] += entry.counts.instructions
    matrix = sum(entry.counts.instructions for entry in cost.operators if entry.matrix)
    left = cost.total.instructions - matrix
    if not parts or not left:
        return None
    category, most = parts.most_common(1)[0]
    return left / cost.total.instructions, category, most / left


def packing_share(cost: InferenceCost) -> float:
    """The part of all instructions that rearranges data: packing kernels and layout operators.

    In streaming mode, a kernel that multiplies nothing packs, whatever it is called.
    """
    total = cost.total.instructions
    packs = {each.name for each in cost.kernels if each.work == () and _is_streaming(each.counts)}
    moved = sum(
        entry.counts.instructions
        if entry.category is Category.DATA_MOVEMENT
        else sum(number for name, number in entry.kernels if name in packs or "_pack" in name)
        for entry in cost.operators
    )
    return moved / total if total else 0.0


def stored(cost: InferenceCost, profile: Profile | None = None) -> StoredCost:
    """What a baseline keeps of a cost; ``profile`` tells shapes and places."""
    members = {} if profile is None else {each.index: each for each in profile.operators}
    return StoredCost(
        cpu=cost.cpu,
        total=cost.total,
        operators=tuple(
            replace(
                stored_operator(members.get(entry.index)),
                name=entry.name,
                category=entry.category,
                instructions=entry.counts.instructions,
                kernel=_named_kernel(entry),
                system=entry.system,
            )
            for entry in cost.operators
        ),
        toolchain=cost.toolchain,
        system=cost.system,
        runtime=cost.runtime.instructions,
    )


def stored_operator(member: OperatorProfile | None) -> StoredOperator:
    """What a baseline keeps of an operator that was not counted."""
    if member is None:
        return StoredOperator("", Category.OTHER)
    operator, shapes = member.operator, str(member.shapes or "")
    place = place_text(member.origin)
    return StoredOperator(operator.name, operator.category, shapes=shapes, place=place)


def _named_kernel(entry: OperatorCost) -> str:
    """Where most is executed. A place in a library moves with every build, and says nothing."""
    name = entry.kernels[0][0] if entry.kernels else ""
    return "" if _LIBRARY.search(name) else name
