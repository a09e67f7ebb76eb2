from __future__ import annotations

import statistics
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pytest_sme2.errors import EtdumpError
from pytest_sme2.profile.build import (
    build_profiles,
    outliers,
    profile_frames,
    robust_stats,
    robust_stats_of_each,
)
from pytest_sme2.profile.operators import DETAIL, FRAMEWORK, OPERATOR, select
from pytest_sme2.results.profile import Category, Executor, Profile
from pytest_sme2.results.run import Attribution
from pytest_sme2.trace.etdump import read_etdump
from tests.support import ETDUMPS
from tests.support.etdump_builder import Block, Profiling, Tree, build_etdump, inference
from tests.support.profiles import COVERAGE, GAP, columns_of, profile_of, run_of

CONV = "Convolution (NHWC, PF32) IGEMM #1"
LINEAR = "Fully Connected (NC, F32) GEMM #1"
CALLS = ([("Transpose (ND, X32) #1", 2_000), (CONV, 6_000)], ("mean.out", 1_000), [(LINEAR, 500)])


def total_share(profile: Profile) -> float:
    return sum(member.share for member in profile.operators) + profile.share(profile.overhead_ns)


def test_end_to_end_is_method_execute_alone() -> None:
    profile = profile_of(*CALLS)
    # Nine microseconds and a half of work, three gaps before calls, two in delegates, one at last.
    assert profile.end_to_end_ns == (9_500 + 6 * GAP,)
    assert profile.overhead_ns == pytest.approx(6 * GAP)
    assert profile.overhead_parts_ns == pytest.approx(
        {"delegate calls": 2 * GAP, "operator calls": 0, "between calls": 4 * GAP}
    )


def test_time_and_counts_by_category_kind_and_executor() -> None:
    profile = profile_of(*CALLS)
    assert [member.label for member in profile.operators] == [
        "Transpose (ND, X32) #1", CONV, "native_call_mean.out", LINEAR,
    ]  # fmt: skip
    assert [member.call for member in profile.operators] == [0, 0, 1, 2]
    assert [member.instruction for member in profile.operators] == [0, 0, 1, 2]
    assert profile.category_ns == pytest.approx(
        {
            Category.CONV: 6_000,
            Category.GEMM: 500,
            Category.DATA_MOVEMENT: 2_000,
            Category.ELEMENTWISE: 0,
            Category.OTHER: 1_000,
        }
    )
    assert profile.category_counts == {
        category: int(category is not Category.ELEMENTWISE) for category in Category
    }
    assert profile.kind_ns[Category.DATA_MOVEMENT, "transpose"] == pytest.approx(2_000)
    assert profile.kind_counts[Category.OTHER, "reduction"] == 1
    assert profile.executor_ns == pytest.approx(
        {Executor.DELEGATED: 8_500, Executor.PORTABLE: 1_000}
    )
    assert profile.executor_counts == {Executor.DELEGATED: 3, Executor.PORTABLE: 1}
    assert profile.unknown == ()
    assert profile.notes == ()


def test_shares_add_up_over_runs_that_differ() -> None:
    blocks = [run_of(CALLS, slower=1 + 0.1 * number) for number in range(7)]
    profile = build_profiles(columns_of(*blocks))[0]
    assert profile.runs == 7
    assert total_share(profile) == pytest.approx(1.0, abs=1e-9)
    assert sum(profile.category_ns.values()) + profile.overhead_ns == pytest.approx(
        profile.end_to_end.median
    )
    assert profile.operators[1].samples_ns == tuple(
        int(6_000 * (1 + 0.1 * number)) for number in range(7)
    )


def test_a_run_with_outlying_latency_does_not_bend_the_shares() -> None:
    good = [run_of(CALLS, slower=1 + 0.001 * number) for number in range(9)]
    # The interference hits one operator.
    calls = ([("Transpose (ND, X32) #1", 900_000), (CONV, 6_000)], *CALLS[1:])
    clean = build_profiles(columns_of(*good))[0]
    profile = build_profiles(columns_of(*good, run_of(calls)))[0]
    assert profile.typical_runs == 9
    assert profile.end_to_end.outliers == 1
    assert profile.operators[0].share == pytest.approx(clean.operators[0].share)
    assert len(profile.operators[0].samples_ns) == 10


def test_runs_with_other_operators_are_told_of() -> None:
    other = run_of(([("Softmax (NC, F32) #1", 5_000)],))
    columns = columns_of(run_of(CALLS), other, run_of(CALLS))
    profile = build_profiles(columns)[0]
    assert profile.runs == 2
    assert "1 of 3 runs executed other operators (1 of them instead of 4)" in profile.notes[0]
    first, second = build_profiles(columns)
    assert (first.runs, second.runs) == (2, 1)
    assert [member.label for member in second.operators] == ["Softmax (NC, F32) #1"]


def test_a_dump_without_an_inference_is_an_error_that_says_so() -> None:
    load = Block([Profiling("Program::load_method", 1, 2, 0, -1)], name="Default")
    with pytest.raises(EtdumpError, match=r"no inference.*Run the program at least once"):
        build_profiles(columns_of(load))
    with pytest.raises(EtdumpError, match="no inference"):
        build_profiles(columns_of())


def test_load_and_init_are_told_apart_from_runs() -> None:
    load = Block(
        Tree(
            Profiling("Program::load_method", 0, 900, 0, -1),
            [Tree(Profiling("Method::init", 100, 800, 0, -1))],
        ).events(),
        name="Default",
    )
    profile = build_profiles(columns_of(load, run_of(CALLS)))[0]
    assert profile.load_ns == {"Method::init": 700, "Program::load_method": 900}
    assert len(profile.operators) == 4


def test_a_delegate_that_logs_nothing_counts_as_one_operator() -> None:
    profile = profile_of([], ("mean.out", 1_000), [])
    opaque = [member for member in profile.operators if member.label == "DELEGATE_CALL"]
    assert len(opaque) == 2
    assert opaque[0].operator.kind == "opaque delegate"
    assert profile.executor_ns[Executor.DELEGATED] == pytest.approx(2 * GAP)
    assert "2 delegate call(s) hold no operators" in profile.notes[0]
    assert total_share(profile) == pytest.approx(1.0)


def test_a_call_that_names_no_kernel_is_counted_and_told_of() -> None:
    call = Tree(Profiling("OPERATOR_CALL", 2_000, 5_000, 0))
    profile = build_profiles(columns_of(inference([call], start=1_000, end=6_000)))[0]
    assert [member.label for member in profile.operators] == ["OPERATOR_CALL"]
    assert profile.operators[0].time_ns == pytest.approx(3_000)
    assert "name no kernel" in profile.notes[0]
    assert profile.unknown == ()


@pytest.mark.parametrize(
    ("names", "took", "roles"),
    [
        (("native_call_mm.out", "my own scope"), 2_000, [DETAIL, OPERATOR]),
        # An unknown event around others is none.
        (("my own scope", "native_call_mm.out"), 500, [OPERATOR, FRAMEWORK]),
    ],
)
def test_what_a_known_operator_encloses_is_its_detail(
    names: tuple[str, str], took: int, roles: list[int]
) -> None:
    inner = Tree(Profiling(names[1], 2_500, 3_000, 0))
    outer = Tree(Profiling(names[0], 2_000, 4_000, 0), [inner])
    call = Tree(Profiling("OPERATOR_CALL", 1_500, 4_500, 0), [outer])
    columns = columns_of(inference([call], start=1_000, end=6_000))
    (member,) = build_profiles(columns)[0].operators
    assert (member.label, round(member.time_ns)) == ("native_call_mm.out", took)
    assert select(columns).role.tolist() == [*roles, FRAMEWORK, FRAMEWORK]


def test_overhead_of_a_call_inside_of_a_call_is_not_counted_twice() -> None:
    inner = Tree(Profiling("OPERATOR_CALL", 1_000, 1_500, 0))
    kernel = Tree(Profiling("native_call_mm.out", 2_000, 3_000, 0))
    outer = Tree(Profiling("OPERATOR_CALL", 1_000, 6_000, 0), [inner, kernel])
    (profile,) = build_profiles(columns_of(inference([outer], start=1_000, end=6_000)))
    parts = profile.overhead_parts_ns
    assert min(parts.values()) >= 0
    assert sum(parts.values()) == pytest.approx(3_500)


def test_a_delegate_with_another_clock_is_scaled_and_told_of() -> None:
    events = [
        Profiling(None, 0, 30_000, 0, delegate_name="cycle counter A"),
        Profiling(None, 30_000, 40_000, 0, delegate_name="cycle counter B"),
    ]
    call = Tree(Profiling("DELEGATE_CALL", 2_000, 4_000, 0), [Tree(event) for event in events])
    profile = build_profiles(columns_of(inference([call], start=1_000, end=5_000)))[0]
    assert [member.time_ns for member in profile.operators] == pytest.approx([1_500, 500])
    assert total_share(profile) == pytest.approx(1.0)
    assert any("another unit" in note for note in profile.notes)
    assert profile.unknown == ("cycle counter A", "cycle counter B")


def test_damaged_times_are_refused_or_fitted() -> None:
    year = 31_557_600 * 10**9
    with pytest.raises(EtdumpError, match="more than a year"):
        build_profiles(columns_of(inference([], start=0, end=2 * year)))
    event = Profiling(None, 0, 2**64 - 1, 0, delegate_name="Add (ND) #1")
    call = Tree(Profiling("DELEGATE_CALL", 2_000, 4_000, 0), [Tree(event)])
    profile = build_profiles(columns_of(inference([call], start=1_000, end=5_000)))[0]
    assert profile.operators[0].samples_ns == (2_000,)


def test_attribution_reaches_the_profile() -> None:
    profile = build_profiles(
        columns_of(run_of(([(LINEAR, 3_000)], ("mean.out", 1_000)))),
        attribution=Attribution({1: ("aten.mean.dim",)}, {1: ("pool",)}),
    )[0]
    assert profile.operators[1].aten == ("aten.mean.dim",)
    assert profile.operators[1].modules == ("pool",)
    assert profile.operators[0].aten == ()


@pytest.mark.parametrize(
    "path",
    sorted([*ETDUMPS.glob("*.etdump"), *COVERAGE.glob("*.etdump")]),
    ids=lambda path: path.stem,
)
def test_real_dumps_add_up_and_every_name_is_known(path: Path) -> None:
    for profile in build_profiles(read_etdump(path)):
        assert total_share(profile) == pytest.approx(1.0, abs=1e-9)
        assert profile.overhead_ns >= 0
        assert profile.unknown == ()
        assert sum(profile.category_counts.values()) == len(profile.operators)
        assert not any("another unit" in note for note in profile.notes)


NAMES = st.sampled_from(
    ["Convolution (NHWC, F16) IGEMM #1", "Transpose (ND, X16) #1", "native_call_add.out",
     "native_call_bmm.out", "my own scope", "<script>'\n;../", "OPERATOR_CALL", "DELEGATE_CALL",
     "MOVE_CALL", "Method::execute"]
)  # fmt: skip


@st.composite
def trees(draw: st.DrawFn, start: int, end: int, depth: int = 3) -> list[Tree]:
    """Events one after another between ``start`` and ``end``, with others inside of them."""
    edges = sorted(draw(st.lists(st.integers(start, end), max_size=6)))
    found = []
    for left, right in zip(edges[::2], edges[1::2], strict=False):
        event = Profiling(draw(NAMES), left, right, draw(st.integers(0, 2)))
        inside = draw(trees(left, right, depth - 1)) if depth and right - left > 2 else []
        found.append(Tree(event, inside))
    return found


@st.composite
def delegated_calls(draw: st.DrawFn, start: int, end: int) -> list[Tree]:
    """A delegate call whose operators may reach past its end, as rounded times do."""
    lengths = draw(st.lists(st.integers(0, 2 * (end - start)), max_size=5))
    time, children = start, []
    for length in lengths:
        name = draw(NAMES.filter(lambda name: not name.isupper()))
        event = Profiling(None, time, time + length, 7, delegate_name=name)
        children.append(Tree(event))
        time += length
    return [Tree(Profiling("DELEGATE_CALL", start, end, 7), children)]


@st.composite
def inferences(draw: st.DrawFn) -> Block:
    start = draw(st.integers(0, 1_000))
    middle = start + draw(st.integers(0, 100_000))
    end = middle + draw(st.integers(0, 100_000))
    children = [*draw(trees(start, middle)), *draw(delegated_calls(middle, end))]
    return inference(children, start=start, end=end)


@pytest.mark.slow
@given(st.lists(inferences(), min_size=1, max_size=4))
def test_shares_add_up_and_nothing_is_counted_twice(blocks: list[Block]) -> None:
    columns = read_etdump(build_etdump(blocks))
    selection = select(columns)
    parents = columns.parent.tolist()
    chosen = set(selection.rows.tolist())
    for row in chosen:
        up = parents[row]
        while up >= 0:
            assert up not in chosen, "an operator was counted inside of another"
            up = parents[up]

    profiles = build_profiles(columns)
    assert sum(profile.runs for profile in profiles) == len(blocks)
    assert sum(len(p.operators) * p.runs for p in profiles) == len(chosen)
    for profile in profiles:
        assert sum(sum(member.samples_ns) for member in profile.operators) <= sum(
            profile.end_to_end_ns
        )
        assert profile.overhead_ns >= -1e-6
        assert min(profile.overhead_parts_ns.values()) >= -1e-6
        if profile.end_to_end.median and any(profile.end_to_end_ns):
            assert total_share(profile) == pytest.approx(1.0, abs=1e-3)
            assert sum(profile.executor_ns.values()) == pytest.approx(
                sum(profile.category_ns.values())
            )
            assert sum(profile.kind_ns.values()) == pytest.approx(sum(profile.category_ns.values()))


@given(
    st.integers(1, 12).flatmap(
        lambda size: st.lists(
            st.lists(st.integers(0, 10**9), min_size=size, max_size=size), min_size=1, max_size=5
        )
    )
)
def test_many_series_at_once_are_those_alone(rows: list[list[int]]) -> None:
    found = robust_stats_of_each(rows)
    assert found == [robust_stats(row) for row in rows]
    assert [stats.median for stats in found] == [statistics.median(row) for row in rows]
    assert [stats.outliers for stats in found] == [
        int(outliers(np.array(row, dtype=np.float64)).sum()) for row in rows
    ]


def test_robust_stats_of_a_known_series() -> None:
    stats = robust_stats([*range(1, 20), 1_000])
    assert (stats.count, stats.median, stats.minimum, stats.maximum) == (20, 10.5, 1, 1_000)
    assert stats.mad == 5
    assert stats.trimmed_mean == pytest.approx(np.mean(range(3, 19)))
    assert stats.mean == pytest.approx(59.5)
    assert (stats.p25, stats.p75) == (5.75, 15.25)
    assert stats.standard_deviation == pytest.approx(np.std([*range(1, 20), 1_000], ddof=1))
    assert stats.cv == pytest.approx(stats.standard_deviation / stats.mean)
    assert stats.outliers == 1


def test_outliers_where_most_values_are_equal() -> None:
    assert outliers(np.array([5.0] * 20 + [50.0])).tolist() == [False] * 20 + [True]
    assert not outliers(np.array([5.0] * 5)).any()
    assert not outliers(np.array([1.0, 1.0, 1.0, 900.0])).any()


def test_frames_agree_with_the_profile() -> None:
    profile = profile_of(*CALLS)
    frames = profile_frames(profile)
    assert frames["operators"]["label"].tolist() == [each.label for each in profile.operators]
    assert frames["categories"]["time_ns"].sum() == pytest.approx(sum(profile.category_ns.values()))
    parts = frames["runs"].drop(columns="end_to_end_ns").sum(axis=1)
    assert parts.tolist() == pytest.approx(frames["runs"]["end_to_end_ns"].tolist())
