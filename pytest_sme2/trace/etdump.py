"""ETDump bytes to columns, with NumPy alone: neither torch nor ExecuTorch is needed.

The schema is ExecuTorch's ``devtools/etdump/etdump_schema_flatcc.fbs``. Every inference is a
RunData of its own and strings are stored again at every use, so all tables of one kind are
gathered across all runs at once. What the numbers mean is said at ``results.Columns``.
"""

from __future__ import annotations

import functools
import operator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from pytest_sme2.errors import EtdumpError
from pytest_sme2.results import Columns
from pytest_sme2.system.files import file_state
from pytest_sme2.trace.flatbuffer import Buffer, Positions, Tables

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
    """The row of the call that each delegated event belongs to; -1 for all others.

    A delegate writes its events before the runtime writes the call. What does not fit the next call
    goes by its time.
    """
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
    return parent


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


_ROUNDS = 20


def _next_not_greater(start: NDArray[np.uint64], strictly: NDArray[np.bool_]) -> Rows:
    """For each position the next one whose start is not greater (less where ``strictly``).

    The number of positions where there is none.
    """
    count = start.size
    answer = np.append(np.arange(1, count + 1), count)
    waiting = np.arange(count)
    # What lies between a wrong answer and its own answer is wrong as well: it is passed over.
    for _ in range(_ROUNDS):
        waiting = waiting[answer[waiting] < count]
        here, there = start[waiting], start[answer[waiting]]
        waiting = waiting[(there > here) | (strictly[waiting] & (there == here))]
        answer[waiting] = answer[answer[waiting]]
    if waiting.size:
        # A file that was made to take many rounds: position by position.
        starts = start.tolist()
        limits = list(map(operator.sub, starts, strictly.tolist()))
        open_ones: list[int] = []
        answer[:] = count
        for place, value in enumerate(starts):
            while open_ones and limits[open_ones[-1]] >= value:
                answer[open_ones.pop()] = place
            open_ones.append(place)
    return answer[:-1]


IDENTIFIER = b"ED00"

# The slots of the schema's tables, in the order in which it declares their fields.
_ETDUMP_RUN_DATA = 1
_RUN_NAME, _RUN_EVENTS = 0, 3
_EVENT_PROFILE = 0
_NAME, _CHAIN, _INSTRUCTION, _DELEGATE_ID, _DELEGATE_NAME, _, _START, _END = range(8)

# What even an empty run (its reference and its table) and an empty event (its reference, its
# table, the table of its kind) take up. A file that claims more of them than that allows has
# them lie on top of each other, which no writer does.
_RUN_BYTES = 8
_EVENT_BYTES = 16

LARGEST_FILE = 2 << 30
"""Of any flatbuffer: its offsets have 31 bits."""
LONGEST_NAME = 1000
"""Letters of an operator's name; the longest that XNNPACK and ExecuTorch have are below 100."""


def read_etdump(source: Path | bytes) -> Columns:
    """The profiling events of an ETDump, in file order.

    Raises EtdumpError, saying what is wrong and where, for anything that is not a whole ETDump.
    """
    if isinstance(source, Path):
        # A report asks for those of a case for its profiles, its tables and its timeline.
        return _last_read(source, file_state(source))
    return _columns(source)


@functools.lru_cache(maxsize=3)
def _last_read(path: Path, _state: object) -> Columns:
    return _columns(path)


def _columns(source: Path | bytes) -> Columns:
    buffer, root = _open(source)
    runs = _runs(buffer, root)
    block_names = tuple(buffer.texts(runs.reference(_RUN_NAME), "a run's name"))
    block, event_at = _events(buffer, runs)
    events = Tables(buffer, event_at, "an event")
    profile_at = events.reference(_EVENT_PROFILE)
    del events, event_at

    # Allocation and debug events, and kinds that a later schema may add, are left out.
    profiled = profile_at != 0
    profile = Tables(buffer, profile_at[profiled], "a profiling event")
    block = block[profiled]
    del profiled, profile_at

    start, end = profile.uint64(_START), profile.uint64(_END)
    buffer.refuse(start > end, profile.at, "an event ends before it starts")
    chain = profile.int32(_CHAIN, 0)
    instruction = profile.int32(_INSTRUCTION, -1)
    delegate_id = profile.int32(_DELEGATE_ID, -1)
    names, name, delegate_name = _names(buffer, profile, delegate_id)
    del profile

    delegated = (delegate_id != -1) | (delegate_name != -1)
    role = np.zeros(name.size, dtype=np.int8)
    for text in ROLES.keys() & names.keys():
        role[(name == names[text]) & ~delegated] = ROLES[text]
    executes = (name == names.get("Method::execute", -1)) & ~delegated
    texts = tuple(names)
    del names
    run, count = _inferences(block, executes, len(block_names))
    depth, parent = nest(Events(block, chain, instruction, role, delegated, start, end))
    return Columns(
        names=texts,
        name=name,
        block=block,
        run=run,
        start=start,
        end=end,
        instruction=instruction,
        chain=chain,
        delegate_id=delegate_id,
        delegate_name=delegate_name,
        depth=depth,
        parent=parent,
        block_names=block_names,
        runs=count,
    )


def _open(source: Path | bytes) -> tuple[Buffer, int]:
    """The buffer, and where its root offset stands: after the size, where there is one.

    The runtime puts the size first; ``flatc`` and other writers may leave it out.
    """
    data, label = _load(source)
    if data.size == 0:
        raise EtdumpError(
            f"{label}: the file is empty. Was the run traced, and did the runner reach its end?"
        )
    head = data[:12].tobytes()
    if head[8:12] == IDENTIFIER:
        size = int.from_bytes(head[:4], "little") + 4
        buffer = Buffer(data[:size], label)
        if size > data.size:
            raise buffer.error(f"{size} bytes were announced and {data.size} are there")
        return buffer, 4
    if head[4:8] == IDENTIFIER:
        return Buffer(data, label), 0
    raise EtdumpError(
        f"{label}: not an ETDump: the identifier {IDENTIFIER.decode()} is missing, the file "
        f"begins with {head!r}. Give a file that the runner wrote with --etdump."
    )


def _load(source: Path | bytes) -> tuple[NDArray[np.uint8], str]:
    if isinstance(source, bytes):
        return np.frombuffer(source, dtype=np.uint8), "ETDump"
    try:
        if not source.is_file():
            reason = "not a file" if source.exists() else "no such file"
            raise EtdumpError(f"{source}: {reason}. Give the path of an .etdump file.")
        if source.stat().st_size > LARGEST_FILE:
            raise EtdumpError(
                f"{source}: it has more than {LARGEST_FILE >> 30} GiB, which no ETDump can have. "
                "Trace fewer runs."
            )
        return np.fromfile(source, dtype=np.uint8), str(source)
    except OSError as error:
        raise EtdumpError(f"{source}: cannot be read: {error.strerror}.") from error


def _runs(buffer: Buffer, root: int) -> Tables:
    etdump = buffer.root(root)
    first, length = buffer.vector(etdump.reference(_ETDUMP_RUN_DATA), "the list of runs")
    _refuse_overlap(buffer, length, _RUN_BYTES, "runs")
    return Tables(buffer, buffer.elements(first, length), "a run")


def _events(buffer: Buffer, runs: Tables) -> tuple[NDArray[np.int32], Positions]:
    """The block and the position of every event."""
    first, length = buffer.vector(runs.reference(_RUN_EVENTS), "a run's list of events")
    _refuse_overlap(buffer, length, _EVENT_BYTES, "events")
    block = np.repeat(np.arange(length.size, dtype=np.int32), length)
    return block, buffer.elements(first, length)


def _refuse_overlap(buffer: Buffer, length: Positions, size: int, what: str) -> None:
    total = int(length.sum())
    if total * size > buffer.size:
        raise buffer.error(f"{total} {what} are claimed, more than {buffer.size} bytes can hold")


def _names(
    buffer: Buffer, profile: Tables, delegate_id: NDArray[np.int32]
) -> tuple[dict[str, int], NDArray[np.int32], NDArray[np.int32]]:
    """All names, each event's, and each event's delegate's; a delegated event goes by the latter.

    As Inspector does, the delegate's integer comes before its string, and an empty string is none.
    """
    names: dict[str, int] = {}
    delegate_name = buffer.strings(
        profile.reference(_DELEGATE_NAME), "a delegate's name", names, absent=-1
    )
    if "" in names:
        delegate_name[delegate_name == names[""]] = -1
    name = buffer.strings(profile.reference(_NAME), "an event's name", names, absent=-1)
    name = np.where(delegate_name != -1, delegate_name, name)
    if (numbered := delegate_id != -1).any():
        numbers, inverse = np.unique(delegate_id[numbered], return_inverse=True)
        codes = (names.setdefault(str(number), len(names)) for number in numbers)
        name[numbered] = np.fromiter(codes, np.int32, numbers.size)[inverse]
    if (unnamed := name == -1).any():
        name[unnamed] = names.setdefault("", len(names))
    # Events share a name's bytes, but every report repeats them: a small file could fill a disk.
    if max(map(len, names), default=0) > LONGEST_NAME:
        raise buffer.error(f"a name has more than {LONGEST_NAME} letters")
    return names, name, delegate_name


def _inferences(
    block: NDArray[np.int32], executes: NDArray[np.bool_], blocks: int
) -> tuple[NDArray[np.int32], int]:
    """The inference that each event belongs to, and how many there are."""
    holds = np.zeros(blocks, dtype=bool)
    holds[block[executes]] = True
    number = np.where(holds, np.cumsum(holds) - 1, -1).astype(np.int32)
    return number[block], int(holds.sum())
