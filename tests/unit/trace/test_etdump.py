"""The reader on real dumps, on generated ones, and on damaged ones. Needs no torch."""

from __future__ import annotations

import contextlib
import tracemalloc
from collections.abc import Callable, Iterator
from pathlib import Path

import flatbuffers
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pytest_sme2.errors import EtdumpError
from pytest_sme2.trace.etdump import read_etdump
from tests.support.damaged_etdumps import DUMPS, check, read
from tests.support.etdump_builder import (
    Allocation,
    Block,
    Debugging,
    Event,
    Profiling,
    build_etdump,
)

REAL = sorted(DUMPS.glob("*.etdump"))


@pytest.fixture
def traced_memory() -> Iterator[None]:
    tracemalloc.start()
    yield
    tracemalloc.stop()


@pytest.mark.parametrize("path", REAL, ids=lambda path: path.stem)
def test_real_dumps_are_consistent(path: Path) -> None:
    columns = read_etdump(path)
    check(columns)
    names = [columns.names[code] for code in columns.name]
    assert columns.runs == (4 if path.stem == "py_methods" else 2)
    for row, name in enumerate(names):
        above = columns.parent[row]
        if columns.delegate_name[row] >= 0:
            assert names[above] == "DELEGATE_CALL"
            assert columns.instruction[above] == columns.instruction[row]
        elif name.startswith("native_call_"):
            assert names[above] == "OPERATOR_CALL"
            assert columns.instruction[above] == columns.instruction[row]
        elif name in ("OPERATOR_CALL", "DELEGATE_CALL"):
            assert names[above] == "Method::execute"
        elif name == "Method::init":
            assert names[above] == "Program::load_method"
        else:
            assert name in ("Method::execute", "Program::load_method")
            assert above == -1


int32 = st.integers(-(2**31), 2**31 - 1)
times = st.tuples(st.integers(0, 2**64 - 1), st.integers(0, 2**64 - 1)).map(sorted)
texts = st.one_of(st.none(), st.sampled_from(["", "a", "b", "ab", "é", "日本", "a\0b"]), st.text())
profiling = st.builds(
    lambda span, **fields: Profiling(start=span[0], end=span[1], **fields),
    span=times,
    name=texts,
    instruction=int32,
    chain=int32,
    delegate_id=st.one_of(st.just(-1), int32),
    delegate_name=texts,
    metadata=st.one_of(st.none(), st.binary(max_size=9)),
)
allocations = st.builds(Allocation, allocator=int32, size=st.integers(0, 2**64 - 1))
events = st.one_of(profiling, profiling, allocations, st.builds(Debugging, st.text(max_size=3)))
blocks = st.builds(
    Block,
    events=st.one_of(st.none(), st.lists(events, max_size=8)),
    name=texts,
    bundled_input=int32,
    allocators=st.lists(st.text(max_size=3), max_size=2),
)


def event_name(event: Profiling) -> str:
    """As Inspector names it."""
    if event.delegate_id != -1:
        return str(event.delegate_id)
    return event.delegate_name or event.name or ""


@pytest.mark.slow
@given(runs=st.lists(blocks, max_size=5), size_prefixed=st.booleans())
def test_what_is_written_is_read(runs: list[Block], size_prefixed: bool) -> None:
    columns = read_etdump(build_etdump(runs, size_prefixed=size_prefixed))
    check(columns)
    rows = [
        (index, event)
        for index, block in enumerate(runs)
        for event in block.events or ()
        if isinstance(event, Profiling)
    ]
    assert columns.block_names == tuple(block.name or "" for block in runs)
    assert columns.block.tolist() == [index for index, _ in rows]
    assert len(set(columns.names)) == len(columns.names)
    assert [columns.names[code] for code in columns.name] == [event_name(e) for _, e in rows]
    assert [columns.names[code] if code >= 0 else None for code in columns.delegate_name] == [
        event.delegate_name or None for _, event in rows
    ]
    assert columns.start.tolist() == [event.start for _, event in rows]
    assert columns.end.tolist() == [event.end for _, event in rows]
    assert columns.instruction.tolist() == [event.instruction for _, event in rows]
    assert columns.chain.tolist() == [event.chain for _, event in rows]
    assert columns.delegate_id.tolist() == [event.delegate_id for _, event in rows]


@pytest.mark.parametrize(
    ("event", "runs"),
    [
        (Profiling("Method::execute", 1, 9), 1),
        (Profiling("c", 1, 9), 0),
        # What a delegate calls its own events says nothing about the method.
        (Profiling("x", 1, 9, delegate_name="Method::execute"), 0),
        (Profiling("Method::execute", 1, 9, delegate_id=7), 0),
    ],
)
def test_only_events_of_the_runtime_are_inferences(event: Profiling, runs: int) -> None:
    blocks = [Block([Profiling("a", 1, 2), Profiling("b", 1, 2)]), Block([event])]
    columns = read_etdump(build_etdump(blocks))
    assert columns.runs == runs
    assert columns.run.tolist() == [-1, -1, runs - 1]


def test_bytes_after_the_declared_size_are_ignored() -> None:
    data = REAL[0].read_bytes()
    assert read_etdump(data + b"\xff" * 64).start.tolist() == read_etdump(data).start.tolist()


@pytest.mark.parametrize(
    ("data", "message"),
    [
        (b"", "^ETDump: the file is empty"),
        (b"ED", "not an ETDump"),
        (b"\x1c\0\0\0ET12" + b"\0" * 64, "not an ETDump"),
        (b"\x89PNG\r\n\x1a\n" + b"\0" * 64, "begins with"),
        (b"\0\0\0\0ED00", "at offset"),
        (b"\xff\xff\xff\xffED00", "at offset"),
        (b"\xff\xff\xff\x7f\x08\0\0\0ED00", "announced"),
        (b"\x08\0\0\0\x08\0\0\0ED00", "the root table reaches past the file's 12 bytes"),
        (b"\0\0\0\0\x08\0\0\0ED00", "the header reaches past the file's 4 bytes"),
        (b"0123456789abcdef", r"begins with b'0123456789ab'\. Give"),
    ],
)
def test_files_of_other_formats_are_named(data: bytes, message: str) -> None:
    with pytest.raises(EtdumpError, match=message):
        read_etdump(data)


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("a 'b';\n<script>.etdump", "not an ETDump"),
        ("none.etdump", "no such file"),
        ("", "not a file"),
    ],
)
def test_errors_name_the_file(tmp_path: Path, name: str, message: str) -> None:
    (tmp_path / "a 'b';\n<script>.etdump").write_bytes(b"nothing of the kind")
    with pytest.raises(EtdumpError, match=message) as caught:
        read_etdump(tmp_path / name)
    assert str(caught.value).startswith(str(tmp_path / name))


def test_every_truncation_is_refused() -> None:
    """Cut anywhere, and with the size corrected: nothing but an error or a shorter whole."""
    data = (DUMPS / "cpp_toy_fp32_on.etdump").read_bytes()
    for length in range(0, len(data), 3):
        with pytest.raises(EtdumpError):
            read_etdump(data[:length])
        fitted = max(length - 4, 0).to_bytes(4, "little") + data[4:length]
        with contextlib.suppress(EtdumpError):
            check(read_etdump(fitted))


@pytest.mark.parametrize("start", [2**32 - 1, 2**40])
def test_an_event_that_ends_before_it_starts_is_refused(start: int) -> None:
    """As on a clock of 32 bits, too, which no chip with SME has."""
    data = build_etdump([Block([Profiling("A", start, start - 1)])])
    with pytest.raises(EtdumpError, match=r"ends before it starts at offset \d+"):
        read_etdump(data)


def test_names_that_are_not_text_are_refused() -> None:
    data = build_etdump([Block([Profiling("name", 1, 2)])]).replace(b"name", b"na\xff\xfe")
    with pytest.raises(EtdumpError, match="not UTF-8"):
        read_etdump(data)


def shared_vector(count: int, table: int, builder: flatbuffers.Builder) -> int:
    builder.StartVector(4, count, 4)
    for _ in range(count):
        builder.PrependUOffsetTRelative(table)
    return int(builder.EndVector())


def finish(builder: flatbuffers.Builder, run_data: int) -> bytes:
    builder.StartObject(2)
    builder.PrependUOffsetTRelativeSlot(1, run_data, 0)
    builder.FinishSizePrefixed(builder.EndObject(), file_identifier=b"ED00")
    return bytes(builder.Output())


@pytest.mark.parametrize(("runs", "events"), [(100, 0), (1, 100)])
def test_one_run_or_event_cannot_be_claimed_to_be_many(runs: int, events: int) -> None:
    builder = flatbuffers.Builder(1024)
    builder.StartObject(3)
    vector = shared_vector(events, builder.EndObject(), builder)
    builder.StartObject(4)
    builder.PrependUOffsetTRelativeSlot(3, vector, 0)
    data = finish(builder, shared_vector(runs, builder.EndObject(), builder))
    what = "events" if events else "runs"
    with pytest.raises(EtdumpError, match=rf"ETDump: 100 {what} are claimed, more than \d+ bytes"):
        read_etdump(data)


@pytest.mark.usefixtures("traced_memory")
def test_names_that_overlap_do_not_multiply() -> None:
    """Each name reaches from its own place to the end of all: together, the square of the file."""
    count = 4_000
    builder = flatbuffers.Builder(1024)
    # Words that are lengths at the same time, all of names that end at the same zero.
    body = b"".join((4 * (count - index)).to_bytes(4, "little") for index in range(count))
    pool = builder.CreateByteVector(body + b"\0" * 8)
    tables = []
    for index in range(count):
        builder.StartObject(8)
        builder.PrependUOffsetTRelativeSlot(0, pool - 4 - 4 * index, 0)
        profile = builder.EndObject()
        builder.StartObject(3)
        builder.PrependUOffsetTRelativeSlot(0, profile, 0)
        tables.append(builder.EndObject())
    builder.StartVector(4, count, 4)
    for table in tables:
        builder.PrependUOffsetTRelative(table)
    event_vector = builder.EndVector()
    builder.StartObject(4)
    builder.PrependUOffsetTRelativeSlot(3, event_vector, 0)
    data = finish(builder, shared_vector(1, builder.EndObject(), builder))
    assert "overlap" in (read(data) or "")


@pytest.mark.slow
@pytest.mark.usefixtures("traced_memory")
@pytest.mark.parametrize(
    "kind",
    [
        lambda row: Profiling(None, 0, 0),
        lambda row: Profiling(None, 0, 5_000 - row),
        lambda row: Profiling(f"{row}", 0, 0, 0, delegate_name=f"d{row}"),
        lambda row: Profiling(None, 0, 0, delegate_id=row),
        lambda row: Allocation(0, 0),
    ],
    ids=["empty", "backwards", "all names differ", "all numbers differ", "allocations"],
)
def test_the_smallest_events_stay_within_the_memory_promised(kind: Callable[[int], Event]) -> None:
    assert read(build_etdump([Block([kind(row) for row in range(5_000)])])) is None
    assert read(build_etdump([Block(None, None)] * 5_000)) is None


def test_a_name_that_every_report_would_repeat_is_refused() -> None:
    longest, longer = (
        build_etdump([Block([Profiling("x" * length, 1, 2, 0)] * 3)]) for length in (1000, 1001)
    )
    assert read_etdump(longest).names == ("x" * 1000,)
    with pytest.raises(EtdumpError, match="a name has more than 1000 letters"):
        read_etdump(longer)
