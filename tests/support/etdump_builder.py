"""Builds ETDumps in code, for tests: whatever a runtime could write, and what none would."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace

import flatbuffers


@dataclass(frozen=True)
class Profiling:
    """One ProfileEvent; the defaults are the schema's."""

    name: str | None
    start: int
    end: int
    instruction: int = -1
    chain: int = 0
    delegate_id: int = -1
    delegate_name: str | None = None
    metadata: bytes | None = None


@dataclass(frozen=True)
class Allocation:
    allocator: int
    size: int


@dataclass(frozen=True)
class Debugging:
    name: str = "a debug event"


Event = Profiling | Allocation | Debugging


@dataclass(frozen=True)
class Block:
    """One RunData. ``None`` leaves the field out of the file."""

    events: Sequence[Event] | None = ()
    name: str | None = "Execute"
    bundled_input: int = -1
    allocators: Sequence[str] = ()


@dataclass(frozen=True)
class Tree:
    """An event with what it encloses; ``events()`` gives the order in which a runtime writes."""

    event: Profiling
    children: Sequence[Tree] = field(default=())

    def walk(self, depth: int = 0) -> Iterator[tuple[Tree, int]]:
        """Every node with its depth, innermost first."""
        for child in self.children:
            yield from child.walk(depth + 1)
        yield self, depth

    def events(self) -> list[Profiling]:
        return [tree.event for tree, _ in self.walk()]


def build_etdump(
    runs: Iterable[Block], *, size_prefixed: bool = True, identifier: bytes = b"ED00"
) -> bytes:
    """The bytes of an ETDump with these blocks."""
    builder = flatbuffers.Builder(1024)
    blocks = [_block(builder, block) for block in runs]
    run_data = _vector(builder, blocks)
    builder.StartObject(2)
    builder.PrependUOffsetTRelativeSlot(1, run_data, 0)
    root = builder.EndObject()
    if size_prefixed:
        builder.FinishSizePrefixed(root, file_identifier=identifier)
    else:
        builder.Finish(root, file_identifier=identifier)
    return bytes(builder.Output())


def inference(tree_children: Sequence[Tree], start: int = 1_000, end: int = 1_000_000) -> Block:
    """A block as the runtime writes it for one inference: all inside of Method::execute."""
    root = Tree(Profiling("Method::execute", start, end, 0, -1), tree_children)
    return Block(root.events())


def delegate_call(
    instruction: int, start: int, end: int, operators: Sequence[tuple[str, int]]
) -> Tree:
    """A DELEGATE_CALL with XNNPACK's events in it: names and durations, one after another."""
    children = []
    time = start
    for name, duration in operators:
        event = Profiling(None, time, time + duration, instruction, delegate_name=name)
        children.append(Tree(event))
        time += duration
    return Tree(Profiling("DELEGATE_CALL", start, end, instruction), children)


def operator_call(instruction: int, start: int, end: int, name: str) -> Tree:
    """An OPERATOR_CALL around its kernel."""
    kernel = Profiling(f"native_call_{name}", start, end, instruction)
    return Tree(replace(kernel, name="OPERATOR_CALL"), [Tree(kernel)])


def _vector(builder: flatbuffers.Builder, offsets: Sequence[int]) -> int:
    builder.StartVector(4, len(offsets), 4)
    for offset in reversed(offsets):
        builder.PrependUOffsetTRelative(offset)
    return int(builder.EndVector())


def _string(builder: flatbuffers.Builder, text: str | None) -> int:
    return 0 if text is None else int(builder.CreateString(text))


def _block(builder: flatbuffers.Builder, block: Block) -> int:
    name = _string(builder, block.name)
    allocators = []
    for allocator in block.allocators:
        allocator_name = _string(builder, allocator)
        builder.StartObject(1)
        builder.PrependUOffsetTRelativeSlot(0, allocator_name, 0)
        allocators.append(builder.EndObject())
    allocator_vector = _vector(builder, allocators) if allocators else 0
    events = 0
    if block.events is not None:
        events = _vector(builder, [_event(builder, event) for event in block.events])
    builder.StartObject(4)
    builder.PrependUOffsetTRelativeSlot(0, name, 0)
    builder.PrependInt32Slot(1, block.bundled_input, -1)
    builder.PrependUOffsetTRelativeSlot(2, allocator_vector, 0)
    builder.PrependUOffsetTRelativeSlot(3, events, 0)
    return int(builder.EndObject())


def _event(builder: flatbuffers.Builder, event: Event) -> int:
    if isinstance(event, Profiling):
        slot, table = 0, _profiling(builder, event)
    elif isinstance(event, Allocation):
        builder.StartObject(2)
        builder.PrependUint64Slot(1, event.size, 0)
        builder.PrependInt32Slot(0, event.allocator, 0)
        slot, table = 1, builder.EndObject()
    else:
        name = _string(builder, event.name)
        builder.StartObject(6)
        builder.PrependUOffsetTRelativeSlot(5, name, 0)
        slot, table = 2, builder.EndObject()
    builder.StartObject(3)
    builder.PrependUOffsetTRelativeSlot(slot, table, 0)
    return int(builder.EndObject())


def _profiling(builder: flatbuffers.Builder, event: Profiling) -> int:
    name = _string(builder, event.name)
    delegate_name = _string(builder, event.delegate_name)
    metadata = 0 if event.metadata is None else builder.CreateByteVector(event.metadata)
    builder.StartObject(8)
    builder.PrependUint64Slot(7, event.end, 0)
    builder.PrependUint64Slot(6, event.start, 0)
    builder.PrependUOffsetTRelativeSlot(5, metadata, 0)
    builder.PrependUOffsetTRelativeSlot(4, delegate_name, 0)
    builder.PrependInt32Slot(3, event.delegate_id, -1)
    builder.PrependInt32Slot(2, event.instruction, -1)
    builder.PrependInt32Slot(1, event.chain, 0)
    builder.PrependUOffsetTRelativeSlot(0, name, 0)
    return int(builder.EndObject())
