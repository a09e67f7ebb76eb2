"""ETDump bytes to columns, with NumPy alone: neither torch nor ExecuTorch is needed.

The schema is ExecuTorch's ``devtools/etdump/etdump_schema_flatcc.fbs``. Every inference is a
RunData of its own and strings are stored again at every use, so all tables of one kind are
gathered across all runs at once. What the numbers mean is said at ``results.Columns``.
"""

from __future__ import annotations

import functools
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from pytest_sme2.errors import EtdumpError
from pytest_sme2.results.run import Columns
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
    calls = parent.copy()
    _nest_by_time(events, np.flatnonzero(calls < 0), events.block, parent)
    _nest_by_time(events, np.flatnonzero(calls >= 0), calls, parent)
    depth = (parent >= 0).astype(np.int32)
    rows, jump = np.flatnonzero(depth), parent.copy()
    # Each round jumps twice as far.
    while rows.size:
        target = jump[rows]
        depth[rows], jump[rows] = depth[rows] + depth[target], jump[target]
        rows = rows[jump[rows] >= 0]
    return depth, parent


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


def _nest_by_time(
    events: Events, rows: Rows, group: NDArray[np.signedinteger[Any]], parent: Rows
) -> None:
    """Give each of ``rows`` the innermost event of its group around it, where there is one."""
    rows = rows[_ended_order(events, group[rows], rows)]
    groups, starts = group[rows].tolist(), events.start[rows].tolist()
    waiting: list[int] = []
    for place, (outer, start) in enumerate(zip(groups, starts, strict=True)):
        while waiting and groups[waiting[-1]] == outer and starts[waiting[-1]] >= start:
            inner = waiting[-1]
            if starts[inner] == start and not _fits(events, rows[inner], rows[place]):
                break
            parent[rows[waiting.pop()]] = rows[place]
        waiting.append(place)


def _fits(events: Events, inner: int, outer: int) -> bool:
    """Whether an event lies in another one that ended later and began at the very same tick."""
    if events.start[inner] < events.end[inner]:
        # Equal events of a delegate are siblings.
        return bool(not events.delegated[outer] or events.end[outer] > events.end[inner])
    # Of no duration: only its own call and its method are around it.
    roles = events.role[inner], events.role[outer]
    if roles[1] in (OTHER, METHOD):
        return bool(roles[0] < roles[1])
    same = events.chain[inner] == events.chain[outer]
    return bool(
        same and events.instruction[inner] == events.instruction[outer] and roles[0] == OTHER
    )


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
