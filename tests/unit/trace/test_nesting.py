"""Nesting against trees that are known."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pytest_sme2.trace.etdump import read_etdump
from tests.support.etdump_builder import (
    Block,
    Profiling,
    Tree,
    build_etdump,
    delegate_call,
)


def expected(trees: list[Tree]) -> tuple[list[int], list[int]]:
    """Depth and parent's row of every event of blocks that hold one tree each."""
    depth: list[int] = []
    parent: list[int] = []
    for tree in trees:
        walked = list(tree.walk())
        row = {id(node): len(depth) + index for index, (node, _) in enumerate(walked)}
        above = {id(child): row[id(node)] for node, _ in walked for child in node.children}
        depth += [level for _, level in walked]
        parent += [above.get(id(node), -1) for node, _ in walked]
    return depth, parent


def assert_nested(trees: list[Tree]) -> None:
    columns = read_etdump(build_etdump(Block(tree.events()) for tree in trees))
    depth, parent = expected(trees)
    assert columns.parent.tolist() == parent
    assert columns.depth.tolist() == depth


durations = st.sampled_from((0, 0, 1, 2, 1000))


@st.composite
def runtime_trees(draw: Callable[..., int]) -> Tree:
    """What a runtime could have traced, with a clock that may stand still at any time."""
    clock = draw(st.sampled_from((0, 5, 2**63)))
    begin = clock

    def pause() -> int:
        nonlocal clock
        clock += draw(durations)
        return clock

    calls = []
    for instruction in range(draw(st.integers(0, 4))):
        start = pause()
        children = []
        if draw(st.booleans()):
            # The delegate has a clock of its own, and may count more than the call took.
            own = draw(st.sampled_from((start, 0, 2**62)))
            for number in range(draw(st.integers(0, 4))):
                end = own + draw(durations)
                name = f"Operator #{number % 2}"
                event = Profiling(None, own, end, instruction, delegate_name=name)
                children.append(Tree(event))
                own = end
            name = "DELEGATE_CALL"
        else:
            for _ in range(draw(st.integers(0, 2))):
                kernel = pause()
                children.append(
                    Tree(Profiling("native_call_add.out", kernel, pause(), instruction))
                )
            name = "OPERATOR_CALL"
        calls.append(Tree(Profiling(name, start, pause(), instruction), children))
    return Tree(Profiling("Method::execute", begin, pause(), 0, -1), calls)


@pytest.mark.slow
@given(st.lists(runtime_trees(), min_size=1, max_size=3))
def test_every_event_finds_its_parent(trees: list[Tree]) -> None:
    assert_nested(trees)


def _delegated(start: int, end: int, instruction: int = 0, **name: str | int) -> Tree:
    return Tree(Profiling(None, start, end, instruction, **name))  # type: ignore[arg-type]


LATER = delegate_call(1, 200, 250, [])
TWINS = [_delegated(50, 60, delegate_id=number) for number in range(2)]
INNER = [
    _delegated(start, end, delegate_name=f"Inner #{number}")
    for number, (start, end) in enumerate([(10, 20), (20, 20), (25, 40)])
]
OUTER = Tree(Profiling(None, 10, 40, 0, delegate_name="Outer #1"), INNER)


@pytest.mark.parametrize(
    "calls",
    [
        [delegate_call(0, 10, 15, [("Convolution #1", 4_000), ("Transpose #1", 9_000)])],
        [
            delegate_call(0, 100, 150, []),
            replace(LATER, children=[_delegated(7, 9, 1, delegate_id=3)]),
        ],
        [delegate_call(4, 10 * turn, 10 * turn + 5, [("Add #1", 1)]) for turn in range(1, 4)],
        [Tree(Profiling("DELEGATE_CALL", 0, 100, 0), [OUTER, *TWINS])],
    ],
    ids=["outlast their call", "in cycles", "one instruction in a loop", "within each other"],
)
def test_delegate_events_stay_in_their_call(calls: list[Tree]) -> None:
    assert_nested([Tree(Profiling("Method::execute", 0, 300, 0, -1), calls)])


def test_delegate_events_without_a_call_go_by_time() -> None:
    compiled = [_delegated(20, 30, delegate_name="Compile")]
    init = Tree(Profiling("Method::init", 10, 90, 0, -1), compiled)
    assert_nested([Tree(Profiling("Program::load_method", 0, 100, 0, -1), [init])])


def test_outer_events_first() -> None:
    """Not what the runtime writes, but what a person might: parents before their children."""
    events = [
        Profiling("Method::execute", 0, 100, 0, -1),
        Profiling("OPERATOR_CALL", 10, 20, 0),
        Profiling("native_call_add.out", 10, 20, 0),
        Profiling("DELEGATE_CALL", 20, 30, 1),
        Profiling(None, 20, 30, 1, delegate_name="Add #1"),
    ]
    columns = read_etdump(build_etdump([Block(events)]))
    assert columns.parent.tolist() == [-1, 0, 1, 0, 3]
    assert columns.depth.tolist() == [0, 1, 2, 1, 2]


def test_blocks_do_not_enclose_each_other() -> None:
    blocks = [Block([Profiling("A", 10, 20)]), Block([Profiling("Method::execute", 0, 100)])]
    assert read_etdump(build_etdump(blocks)).parent.tolist() == [-1, -1]
