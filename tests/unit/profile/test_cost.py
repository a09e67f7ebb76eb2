"""Counted segments matched with events, and what work and its use are made of."""

from __future__ import annotations

from dataclasses import replace

import pytest

from pytest_sme2.profile.cost import (
    MismatchError,
    match_events,
    multiply_accumulates,
    packing_share,
    tile_use,
    work_coverage,
)
from pytest_sme2.results.evidence import Counts, InferenceCost, OperatorCost, Segment
from pytest_sme2.results.profile import Category, Executor
from pytest_sme2.results.run import OperatorShapes


def segment(mark: str, instructions: int = 0, name: str = "lib") -> Segment:
    return Segment(mark, {name: (instructions, *[0] * 2)} if instructions else {})


PORTABLE = [
    segment("inference"),
    segment("start", 1),  # Method::execute
    segment("resume"),
    segment("start", 10),  # OPERATOR_CALL
    segment("resume"),
    segment("start", 20),  # native_call_add
    segment("resume"),
    segment("end", 1000, "kernel"),
    segment("resume"),
    segment("end", 30),
    segment("resume"),
    segment("end", 40),
    segment("resume"),
    segment("done", 2),
]

DELEGATE = [
    segment("inference"),
    segment("start"),
    segment("resume"),
    segment("clock", 5000),
    segment("clock", 50),
    segment("clock", 300, "first"),
    segment("clock", 400, "second"),
    segment("delegated", 7777),
    segment("resume"),
    segment("delegated", 8888),
    segment("resume"),
    segment("end", 60),
    segment("resume"),
    segment("done"),
]


def test_a_kernel_call_has_what_ran_between_its_marks() -> None:
    matched = match_events(PORTABLE, [])
    assert [matched.events[i].total()[0] for i in range(3)] == [1000, 1050, 1100]
    assert matched.runtime.total()[0] == 1103


def test_a_delegates_operators_stand_between_readings_of_the_clock() -> None:
    matched = match_events(DELEGATE, [])
    assert len(matched.events) == 3
    assert list(matched.events[0].rows) == ["first"]
    assert matched.events[1].total()[0] == 400
    assert matched.setup.total()[0] == 5050
    # Gathering the profile is the tracer's work, not the program's.
    assert matched.runtime.total()[0] == 300 + 400 + 60


@pytest.mark.parametrize("dropped", [3, 5])
def test_nothing_is_claimed_where_the_clock_and_the_operators_do_not_fit(dropped: int) -> None:
    segments = DELEGATE[:dropped] + DELEGATE[dropped + 1 :]
    with pytest.raises(MismatchError, match="readings of the clock"):
        match_events(segments, [])


def in_steps(*readings_us: int) -> list[Segment]:
    """A delegate that tells of two operators, and reads the clock at these times."""
    clocks = [
        Segment("clock", {"lib": (10**place, *[0] * 2)}, 1000 * reading)
        for place, reading in enumerate(readings_us)
    ]
    return [*DELEGATE[:3], *clocks, *DELEGATE[7:]]


def test_the_steps_of_an_operator_are_found_by_their_times() -> None:
    # Set-up twice, then an operator of 70 µs in two steps, and one of 200 µs in one.
    segments = in_steps(0, 5, 35, 75, 275)
    matched = match_events(segments, [70_000, 200_000, 0])
    assert matched.events[0].total()[0] == 100 + 1000
    assert matched.events[1].total()[0] == 10_000


@pytest.mark.parametrize(
    ("durations", "message"),
    [([70_000, 100_000, 0], "in no way"), ([30_000, 31_000, 0], "in more than one way")],
)
def test_steps_that_could_be_shared_out_otherwise_are_not_guessed(durations, message) -> None:
    segments = in_steps(0, 5, 35, 36, 66)
    with pytest.raises(MismatchError, match=message):
        match_events(segments, durations)


@pytest.mark.parametrize(
    ("segments", "message"),
    [(PORTABLE[:9], "did not end"), ([*PORTABLE, segment("end")], "had not begun")],
)
def test_events_that_do_not_pair_are_refused(segments: list[Segment], message: str) -> None:
    with pytest.raises(MismatchError, match=message):
        match_events(segments, [])


@pytest.mark.parametrize(
    ("operation", "inputs", "output", "expected"),
    [
        ("convolution", ((1, 32, 32, 3), (16, 3, 3, 3)), (1, 32, 32, 16), 32 * 32 * 16 * 27),
        ("convolution", ((1, 8, 8, 64), (64, 3, 3, 16)), (1, 8, 8, 64), 64 * 64 * 144),
        ("depthwise convolution", ((1, 8, 8, 4), (1, 3, 3, 4)), (1, 8, 8, 4), 8 * 8 * 4 * 9),
        ("transposed convolution", ((1, 4, 4, 8), (6, 2, 2, 8)), (1, 8, 8, 6), 4 * 4 * 8 * 24),
        ("linear", ((7, 20), (30, 20)), (7, 30), 7 * 30 * 20),
        ("matrix product", ((2, 5, 6), (2, 6, 7)), (2, 5, 7), 2 * 5 * 7 * 6),
        ("aten::bmm.out", ((2, 5, 6), (2, 6, 7)), (2, 5, 7), 2 * 5 * 7 * 6),
        ("aten::convolution.out", ((1, 8, 50), (6, 2, 5), (6,)), (1, 6, 46), 6 * 46 * 2 * 5),
        ("aten::convolution.out", ((1, 8, 5), (8, 6, 4)), (1, 6, 20), 8 * 5 * 6 * 4),
        ("aten::convolution.out", ((1, 8, 5),), (1, 6, 20), None),
        ("aten::convolution.out", ((1, 8, 5), ()), (1, 6, 20), None),
        ("aten::convolution.out", ((), (8, 6, 4)), (), None),
        ("aten::add.out", ((2, 5), (2, 5)), (2, 5), None),
    ],
)
def test_multiply_accumulates(operation, inputs, output, expected) -> None:
    assert multiply_accumulates(OperatorShapes(operation, inputs, output)) == expected


def operator(**changes: object) -> OperatorCost:
    first = OperatorCost(
        index=0,
        label="Fully Connected",
        name="Fully Connected",
        category=Category.GEMM,
        executor=Executor.DELEGATED,
        counts=Counts(instructions=1000, outer_products=10),
        kernels=(("kai_run_matmul_sme2_mopa", 700), ("kai_run_lhs_pack_sme", 300)),
        macs=1280,
        matrix=True,
        sme2=True,
    )
    return replace(first, **changes)  # type: ignore[arg-type]


def cost(*operators: OperatorCost) -> InferenceCost:
    return InferenceCost("max", 512, operators, (), Counts(instructions=500), Counts())


def test_coverage_is_weighted_by_work() -> None:
    missed = operator(macs=3 * 1280, sme2=False, counts=Counts(instructions=3000))
    found = cost(operator(), missed)
    assert work_coverage(found) == 0.25
    assert tile_use(found) == 1280 / 2560
    assert work_coverage(cost(operator(macs=None))) is None


def test_packing_is_packing_kernels_and_layout_operators() -> None:
    transpose = operator(
        category=Category.DATA_MOVEMENT,
        counts=Counts(instructions=500),
        kernels=(("xnn_x32_packw", 500),),
        macs=None,
    )
    found = cost(operator(), transpose)
    assert packing_share(found) == (300 + 500) / 2000
