"""Which event encloses which. Pure: arrays in, arrays out; reads no file.

The runtime writes an event when it ends, so in a file an event stands before whatever encloses
it. What holds in every dump, and what is used here:

- A delegate's events belong to the DELEGATE_CALL of their instruction that ends next. Their times
  are the delegate's own: XNNPACK's start where the call did and add up whole microseconds, other
  delegates count cycles. So they are never compared with the runtime's times, only among
  themselves.
- Every other event belongs to the first one that ends no earlier and started no later.
- A clock can stand still between two events. An event of no duration at the very tick at which
  another begins belongs to it only if that is its own instruction's call, or the method's event.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

Rows = NDArray[np.int64]

# What a name says about an event's place, innermost first.
OTHER, OPERATOR_CALL, DELEGATE_CALL, METHOD = range(4)

ROLES = {
    "OPERATOR_CALL": OPERATOR_CALL,
    "DELEGATE_CALL": DELEGATE_CALL,
    "Method::execute": METHOD,
    "Program::load_method": METHOD,
}


@dataclass(frozen=True, eq=False)
class Events:
    """What nesting depends on: row i of every array is the same event, blocks in order."""

    block: NDArray[np.int32]
    chain: NDArray[np.int32]
    instruction: NDArray[np.int32]
    role: NDArray[np.int8]
    delegated: NDArray[np.bool_]
    start: NDArray[np.uint64]
    end: NDArray[np.uint64]


def nest(events: Events) -> tuple[NDArray[np.int32], NDArray[np.int64]]:
    """The depth and the parent's row of every event."""
    parent = _calls_of_delegated(events)
    inside = parent >= 0
    runtime = np.flatnonzero(~inside)
    parent[runtime] = _parents_by_time(events, runtime)
    delegated = np.flatnonzero(inside)
    if not _one_after_another(events, parent, delegated):
        _nest_within_calls(events, parent, delegated)
    return depths(parent), parent


def depths(parent: NDArray[np.int64]) -> NDArray[np.int32]:
    """How many steps each row is from its root, by jumping twice as far in every round."""
    depth = (parent >= 0).astype(np.int32)
    rows = np.flatnonzero(depth)
    jump = parent.copy()
    while rows.size:
        target = jump[rows]
        # Both right-hand sides are read in full before either is written.
        steps, further = depth[target], jump[target]
        depth[rows] += steps
        jump[rows] = further
        rows = rows[further >= 0]
    return depth


def _calls_of_delegated(events: Events) -> Rows:
    """The row of the call that each delegated event belongs to; -1 for all others."""
    parent = np.full(events.block.size, -1, dtype=np.int64)
    calls = np.flatnonzero((events.role == DELEGATE_CALL) & ~events.delegated)
    rows = np.flatnonzero(events.delegated)
    if not calls.size or not rows.size:
        return parent
    candidate = calls[np.minimum(np.searchsorted(calls, rows), calls.size - 1)]
    matches = (
        (candidate > rows)
        & (events.block[candidate] == events.block[rows])
        & (events.chain[candidate] == events.chain[rows])
        & (events.instruction[candidate] == events.instruction[rows])
    )
    parent[rows[matches]] = candidate[matches]
    if not matches.all():
        strays = rows[~matches]
        parent[strays] = _search_calls(events, calls, strays)
    return parent


def _search_calls(events: Events, calls: Rows, rows: Rows) -> Rows:
    """For events that the next call does not fit: the next that does, else the last, else -1."""
    both = np.concatenate([calls, rows])
    order = np.lexsort((both, events.instruction[both], events.chain[both], events.block[both]))
    ordered = both[order]
    is_call = order < calls.size
    new = np.ones(ordered.size, dtype=bool)
    new[1:] = (
        (np.diff(events.block[ordered]) != 0)
        | (events.chain[ordered][1:] != events.chain[ordered][:-1])
        | (events.instruction[ordered][1:] != events.instruction[ordered][:-1])
    )
    place = np.arange(ordered.size)
    key = np.cumsum(new)
    call_at = np.where(is_call, place, ordered.size)
    following = np.minimum.accumulate(call_at[::-1])[::-1]
    preceding = np.maximum.accumulate(np.where(is_call, place, -1))
    found = np.full(ordered.size, -1, dtype=np.int64)
    for position in (preceding, following):
        valid = (position >= 0) & (position < ordered.size)
        valid[valid] = key[position[valid]] == key[valid]
        found[valid] = ordered[position[valid]]
    answer = np.empty(both.size, dtype=np.int64)
    answer[order] = found
    return answer[calls.size :]


def _ended_order(
    events: Events, group: NDArray[np.signedinteger[Any]], rows: Rows
) -> NDArray[np.intp]:
    """How to order ``rows`` so that in each group the events stand as they ended.

    The file's own order where it is one, because it also says what ended first within one tick.
    """
    end = events.end[rows]
    step = np.diff(group)
    if bool(((step > 0) | ((step == 0) & (end[1:] >= end[:-1]))).all()):
        return np.arange(rows.size)
    return np.lexsort((events.role[rows], ~events.start[rows], end, group))


def _parents_by_time(events: Events, rows: Rows) -> Rows:
    """The row of the innermost runtime event around each of ``rows``, -1 for none."""
    order = _ended_order(events, events.block[rows], rows)
    ended = rows[order]
    block, start = events.block[ended], events.start[ended]
    empty = start == events.end[ended]
    place = _next_not_greater(start, empty)
    found = place < ended.size
    found[found] = block[place[found]] == block[found]
    place[~found] = ended.size
    _settle_ties(events, ended, empty, place)
    answer = np.empty(rows.size, dtype=np.int64)
    answer[order] = np.append(ended, -1)[place]
    return answer


def _settle_ties(events: Events, rows: Rows, empty: NDArray[np.bool_], place: Rows) -> None:
    """Put events of no duration into a call or method that begins at the very same tick."""
    block, role, start = events.block[rows], events.role[rows], events.start[rows]
    for outer in (METHOD, OPERATOR_CALL):
        is_outer = (role == METHOD) if outer == METHOD else (role > OTHER) & (role < METHOD)
        inner = np.flatnonzero(empty & (role < outer))
        outers = np.flatnonzero(is_outer)
        if not inner.size or not outers.size:
            continue
        candidate = outers[np.minimum(np.searchsorted(outers, inner), outers.size - 1)]
        fits = (
            (candidate > inner)
            & (candidate < place[inner])
            & (block[candidate] == block[inner])
            & (start[candidate] == start[inner])
        )
        if outer == OPERATOR_CALL:
            here, there = rows[inner], rows[candidate]
            fits &= events.instruction[here] == events.instruction[there]
            fits &= events.chain[here] == events.chain[there]
        place[inner[fits]] = candidate[fits]


def _one_after_another(events: Events, call: Rows, rows: Rows) -> bool:
    """Whether no two events of one delegate call overlap, as XNNPACK's never do."""
    before, after = rows[:-1], rows[1:]
    apart = (call[after] > call[before]) | (
        (call[after] == call[before]) & (events.start[after] >= events.end[before])
    )
    return bool(apart.all())


def _nest_within_calls(events: Events, parent: Rows, rows: Rows) -> None:
    """Nest a delegate's events among themselves: inside of what is longer and around them."""
    rows = rows[_ended_order(events, parent[rows], rows)]
    call, start, end = parent[rows], events.start[rows], events.end[rows]
    place = _next_not_greater(start, start == end)
    # Equal events are siblings and stand side by side: all ask for what encloses the last.
    last = np.ones(rows.size, dtype=bool)
    last[:-1] = (call[1:] != call[:-1]) | (start[1:] != start[:-1]) | (end[1:] != end[:-1])
    lasts = np.flatnonzero(last)
    place = place[lasts[np.searchsorted(lasts, np.arange(rows.size))]]
    found = place < rows.size
    found[found] = call[place[found]] == call[found]
    parent[rows[found]] = rows[place[found]]


_NEIGHBOURS = 8


def _next_not_greater(start: NDArray[np.uint64], strictly: NDArray[np.bool_]) -> Rows:
    """For each position the next one whose start is not greater (less where ``strictly``).

    The number of positions where there is none. Climbs and descends a tree of minima for all
    positions at once, so that no arrangement of events costs more than n log n.
    """
    count = start.size
    limit = start - strictly.astype(np.uint64)
    hopeless = strictly & (start == 0)
    answer = np.full(count, count, dtype=np.int64)
    waiting = ~hopeless
    # Most are found nearby, and looking at neighbours costs a fraction of climbing.
    for step in range(1, min(_NEIGHBOURS, count - 1) + 1):
        hit = np.flatnonzero(waiting[:-step] & (start[step:] <= limit[:-step]))
        answer[hit] = hit + step
        waiting[hit] = False
    asking = np.flatnonzero(waiting)
    if not asking.size:
        return answer
    levels = [start]
    while levels[-1].size > 1:
        level = levels[-1]
        if level.size % 2:
            # No limit reaches the padding: an event that starts at the last tick is empty.
            level = levels[-1] = np.append(level, np.uint64(2**64 - 1))
        levels.append(np.minimum(level[0::2], level[1::2]))

    node = asking + 1
    for height, level in enumerate(levels):
        inside = node < level.size
        asking, node = asking[inside], node[inside]
        if not asking.size:
            break
        odd = (node & 1) == 1
        hit = odd & (level[node] <= limit[asking])
        if hit.any():
            answer[asking[hit]] = _descend(levels, height, node[hit], limit[asking[hit]])
            asking, node, odd = asking[~hit], node[~hit], odd[~hit]
        node = (node + odd) >> 1
    return answer


def _descend(
    levels: list[NDArray[np.uint64]], height: int, node: Rows, limit: NDArray[np.uint64]
) -> Rows:
    """The first leaf under each node that is not greater than its limit."""
    for level in reversed(levels[:height]):
        node = node * 2
        node += level[node] > limit
    return node
