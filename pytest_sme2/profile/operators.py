"""Which events of an ETDump are operators, and how long each took. Columns in, arrays out.

An operator is an event that does work: XNNPACK's inside a DELEGATE_CALL, a kernel's
``native_call_…`` inside an OPERATOR_CALL. What encloses them belongs to the framework; what a known
operator encloses is its detail. So no nanosecond is counted twice. Shares and statistics are made
in ``build.py``.
"""

from __future__ import annotations

from collections.abc import Set
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from pytest_sme2.profile.categories import DELEGATE_CALL, OPERATOR_CALL, classify
from pytest_sme2.results.case import OperatorCount, Structure
from pytest_sme2.results.profile import Executor, Operator, Profile
from pytest_sme2.results.run import Columns

EXECUTE = "Method::execute"

# What the runtime itself writes around instructions and methods.
_CALLS = frozenset({DELEGATE_CALL, OPERATOR_CALL})
FRAMEWORK_NAMES = _CALLS | {EXECUTE, "FREE_CALL", "JF_CALL", "MOVE_CALL"}
FRAMEWORK_NAMES |= {"Method::init", "Method::step", "Program::load_method"}

# A year, in nanoseconds. A delegate may write any number; anything longer is not a duration.
LONGEST = np.uint64(31_557_600 * 10**9)

OUTSIDE, FRAMEWORK, DETAIL, OPERATOR = range(4)
ROLE_NAMES = ("outside", "framework", "detail", "operator")

Rows = NDArray[np.int64]


@dataclass(frozen=True, eq=False)
class Selection:
    """The operators of every run of one ETDump."""

    columns: Columns
    operators: tuple[Operator, ...]
    """What each of ``columns.names`` says."""
    role: NDArray[np.int8]
    """Per event: OUTSIDE of any run, FRAMEWORK, DETAIL or OPERATOR."""
    execute: Rows
    """The row of each run's Method::execute."""
    rows: Rows
    """The rows that are operators, in file order, which is the order in which they ended."""
    run: NDArray[np.int32]
    """Per operator row: the position of its run in ``execute``."""
    call: Rows
    """Per operator row: the row of the call it ran in, itself where it is one."""
    duration: NDArray[np.int64]
    """Per operator row, in nanoseconds; never more in sum than the call they ran in."""
    excess: float
    """By how much the operators of a delegate call took longer than the call, at worst: 0.1 is
    10 %. Above zero the clocks differ or operators overlap, and durations were scaled to fit."""


def durations(columns: Columns, rows: Rows) -> NDArray[np.int64]:
    """How long the events of ``rows`` took; an event that ends before it starts took no time."""
    start, end = columns.start[rows], columns.end[rows]
    length = np.where(end > start, end - start, 0)
    fitted: NDArray[np.int64] = np.minimum(length, LONGEST).astype(np.int64)
    return fitted


def select(columns: Columns) -> Selection:
    """Sort the events of ``columns`` into operators and what is around and inside them."""
    operators = tuple(map(classify, columns.names))
    execute = _execute_rows(columns)
    levels = _levels(columns, np.flatnonzero(columns.parent >= 0))
    role = _roles(columns, operators, execute, levels)
    rows = np.flatnonzero(role == OPERATOR)
    call = _calls(columns, levels)[rows]
    position = np.zeros(max(columns.runs, 1), dtype=np.int32)
    position[columns.run[execute]] = np.arange(execute.size, dtype=np.int32)
    duration, excess = _fitted(columns, durations(columns, rows), call)
    return Selection(
        columns=columns,
        operators=operators,
        role=role,
        execute=execute,
        rows=rows,
        run=position[columns.run[rows]],
        call=call,
        duration=duration,
        excess=excess,
    )


def is_named(columns: Columns, names: Set[str]) -> NDArray[np.bool_]:
    table: NDArray[np.bool_] = np.fromiter((name in names for name in columns.names), dtype=bool)
    return table[columns.name]


def _execute_rows(columns: Columns) -> Rows:
    """One Method::execute per run: the outermost, if a method calls another."""
    rows = np.flatnonzero(is_named(columns, {EXECUTE}) & (columns.run >= 0))
    rows = rows[np.lexsort((rows, columns.depth[rows]))]
    _, first = np.unique(columns.run[rows], return_index=True)
    return rows[first]


def _levels(columns: Columns, rows: Rows) -> list[Rows]:
    """``rows`` by their depth, outermost first."""
    depth = columns.depth[rows]
    # Events are nested a few levels deep: small types sort in linear time.
    depth = depth.astype(np.min_scalar_type(int(depth.max(initial=0))))
    order = np.argsort(depth, kind="stable")
    edges = np.flatnonzero(np.diff(depth[order])) + 1
    return np.split(rows[order], edges)


def _roles(
    columns: Columns, operators: tuple[Operator, ...], execute: Rows, levels: list[Rows]
) -> NDArray[np.int8]:
    framework = is_named(columns, FRAMEWORK_NAMES)
    known = np.fromiter((operator.known for operator in operators), dtype=bool)[columns.name]
    parent = columns.parent

    inside = np.zeros(columns.name.size, dtype=bool)
    inside[execute] = True
    for rows in levels:
        inside[rows] |= inside[parent[rows]]

    candidate = inside & ~framework
    # Whether an event encloses a candidate, however deep.
    encloses = np.zeros(columns.name.size, dtype=bool)
    for rows in reversed(levels):
        holders = rows[candidate[rows] | encloses[rows]]
        encloses[parent[holders]] = True
    unnamed = inside & ~encloses & is_named(columns, _CALLS)

    wanted = (candidate & (known | ~encloses)) | unnamed
    within = np.zeros(columns.name.size, dtype=bool)
    for rows in levels:
        up = parent[rows]
        within[rows] = within[up] | wanted[up]

    role = np.full(columns.name.size, OUTSIDE, dtype=np.int8)
    role[inside] = FRAMEWORK
    role[inside & within] = DETAIL
    role[wanted & ~within] = OPERATOR
    return role


def _calls(columns: Columns, levels: list[Rows]) -> Rows:
    """For each event the DELEGATE_CALL or OPERATOR_CALL that it ran in or is, else itself."""
    is_call = is_named(columns, _CALLS)
    answer: Rows = np.arange(columns.name.size)
    for rows in levels:
        above = answer[columns.parent[rows]]
        inner = is_call[above] & ~is_call[rows]
        answer[rows[inner]] = above[inner]
    return answer


def _fitted(
    columns: Columns, duration: NDArray[np.int64], call: Rows
) -> tuple[NDArray[np.int64], float]:
    """Durations that add up to no more than the call they ran in, and the greatest excess.

    XNNPACK rounds to whole microseconds, and some delegates count in cycles of their own.
    """
    if not duration.size:
        return duration, 0.0
    calls, inverse = np.unique(call, return_inverse=True)
    total = np.bincount(inverse, weights=duration, minlength=calls.size)
    available = durations(columns, calls).astype(np.float64)
    over = total > available
    if not over.any():
        return duration, 0.0
    scale = np.ones(calls.size)
    scale[over] = available[over] / total[over]
    excess = float(np.max(total[over] / np.maximum(available[over], 1.0)) - 1.0)
    return np.floor(duration * scale[inverse]).astype(np.int64), excess


def structure_of(profile: Profile) -> Structure:
    """What the program is made of."""
    counts: dict[tuple[str, Executor], OperatorCount] = {}
    for entry in profile.operators:
        found = entry.operator
        key = _name(found), found.executor
        if key in counts:
            counts[key] = replace(counts[key], count=counts[key].count + 1)
            continue
        counts[key] = OperatorCount(
            key[0], found.category, found.kind, found.executor,
            1, found.matrix, found.sme2, found.unproven, found.sme1,
        )  # fmt: skip
    # Sorted, as two structures are compared and written.
    entries = sorted(counts.values(), key=lambda entry: (entry.name, entry.executor.value))
    return Structure(tuple(entries))


def _name(operator: Operator) -> str:
    """XNNPACK has one name for convolutions that run as IGEMM, depthwise or not, and ExecuTorch for
    all: two are counted apart, since one of them is matrix work.
    """
    one_name = operator.algorithm == "IGEMM" or operator.executor is Executor.PORTABLE
    by_shape = operator.kind == "depthwise" and one_name
    return f"{operator.name}, depthwise" if by_shape else operator.name
