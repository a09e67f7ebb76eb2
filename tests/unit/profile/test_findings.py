"""What is found in profiles made in code, and in real ones: what, at which cost, which remedy."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import pytest

from pytest_sme2.profile.build import build_profiles
from pytest_sme2.profile.findings import by_data_type, find
from pytest_sme2.results.profile import Finding, Profile, Topic
from pytest_sme2.results.run import Attribution, MethodShapes, OperatorShapes, Origin
from tests.support.profiles import Call, columns_of, profile_of, run_of

ON = "Fully Connected (NC, PF32) GEMM"
MISSED = "Fully Connected (NC, F16) GEMM"
CONV_F32 = "Convolution (NHWC, F32) IGEMM"
TRANSPOSE = "Transpose (ND, X32)"
ADD = ("Add (ND) #1", 5_000)


@pytest.fixture
def mixed() -> Profile:
    """Two operators stay on NEON, the cheaper kind twice; one operator splits the delegate."""
    return profile_of(
        [(ON, 100), (MISSED, 10), (MISSED, 10), (TRANSPOSE, 500), (TRANSPOSE, 100)],
        ("expand_copy.out", 70),
        ("mean.out", 900),
        [(CONV_F32, 600), (TRANSPOSE, 30), ("Add (ND)", 5)],
    )


def of(topic: Topic, found: Sequence[Finding]) -> list[Finding]:
    return [finding for finding in found if finding.topic is topic]


def profile_of_runs(calls: Sequence[Call], *slower: float) -> Profile:
    """One run for each factor by which its operators take longer."""
    return build_profiles(columns_of(*(run_of(calls, slower=factor) for factor in slower)))[0]


def notes(profile: Profile) -> str:
    return " ".join(f"{note.what}: {note.remedy}" for note in of(Topic.NOTE, find(profile)))


def test_coverage_comes_first_and_the_rest_by_share_of_time(mixed: Profile) -> None:
    found = find(mixed)
    assert found[0].topic is Topic.COVERAGE
    assert found[0].what == "1 of 4"
    shares = [finding.cost.share for finding in found[1:]]
    assert shares == sorted(shares, reverse=True)
    assert [finding.what for finding in of(Topic.MISSED, found)] == [CONV_F32, MISSED]
    assert [finding.what for finding in of(Topic.PORTABLE, found)] == ["a mean", "expand"]
    assert {finding.cost.of for finding in of(Topic.PORTABLE, found)} == {"time"}


def test_layout_changes_beside_a_splitting_operator_are_part_of_its_cost(mixed: Profile) -> None:
    (found,) = (finding for finding in of(Topic.PORTABLE, find(mixed)) if finding.what == "expand")
    assert found.detail == "1 expand_copy, with 2 transposes beside"
    assert found.cost.operators == 1
    own = sum(
        member.share
        for member in mixed.operators
        if member.operator.operation == "expand_copy" or member.index in (3, 4)
    )
    assert found.cost.share == pytest.approx(own)


SILU = Origin("aten.silu", "features.0.2", "SiLU", "/x/site-packages/net/b.py", 7, "return f(x)")


def with_origins(*origins: Origin, aten: tuple[str, ...] = ()) -> Profile:
    """A convolution, then portable operators, then a convolution with a transpose inside."""
    calls: list[Call] = [[(ON, 100)]]
    calls += [("_to_dim_order_copy.out", 50) for _ in origins]
    calls.append([(ON, 100), (TRANSPOSE, 10), (ON, 100)])
    attribution = Attribution(
        aten={len(origins) + 1: aten},
        modules={},
        origins=dict(enumerate(origins, start=1)),
    )
    return build_profiles(columns_of(run_of(calls)), attribution=attribution)[0]


def test_what_splits_the_delegate_is_named_as_the_model_has_it() -> None:
    other = replace(SILU, module="features.1.2")
    (found,) = of(Topic.PORTABLE, find(with_origins(SILU, SILU, other)))
    assert (found.what, found.rewrite, found.cost.operators) == ("SiLU", "silu", 3)
    assert found.remedy.endswith("write `x * torch.sigmoid(x)`")
    assert found.place == ("features.0.2 (SiLU) and features.1.2 (SiLU); net/b.py:7 `return f(x)`")
    assert found.detail == "3 _to_dim_order_copy"


def test_constant_work_is_told_apart_from_work_on_the_input() -> None:
    found = of(
        Topic.PORTABLE,
        find(with_origins(replace(SILU, constant=True), replace(SILU, written="aten.cumsum"))),
    )
    assert {finding.rewrite for finding in found} == {"constant", "form"}
    (unknown,) = (finding for finding in found if finding.rewrite == "form")
    assert unknown.what == "_to_dim_order_copy.out of cumsum"


@pytest.mark.parametrize(
    ("name", "origin", "what", "rewrite"),
    [
        ("Cosine (NC) #1", Origin("aten.cos", constant=True), "work that does not", "constant"),
        (TRANSPOSE, Origin("aten.conv1d"), "Conv1d", "conv1d"),
    ],
)
def test_what_can_be_changed_inside_of_the_delegate_is_told_as_well(
    name: str, origin: Origin, what: str, rewrite: str
) -> None:
    profile = profile_of([(ON, 100), (name, 50)])
    convolution, other = profile.operators
    other = replace(other, origin=origin)
    (found,) = of(Topic.COSTLY, find(replace(profile, operators=(convolution, other))))
    assert (found.rewrite, found.cost.operators) == (rewrite, 1)
    assert found.what.startswith(what)
    assert not of(Topic.LAYOUT, find(replace(profile, operators=(convolution, other))))


@pytest.mark.parametrize(
    ("aten", "remedy"),
    [
        (("aten.permute_copy.default",), "they stay in the delegate"),
        (("aten.convolution.default",), "an input in channels_last"),
        ((), "an ETRecord tells"),
    ],
)
def test_own_permutes_are_named_only_where_the_model_has_them(
    aten: tuple[str, ...], remedy: str
) -> None:
    (found,) = of(Topic.LAYOUT, find(with_origins(SILU, aten=aten)))
    assert remedy in found.remedy


def test_depthwise_convolutions_are_told_apart_by_their_kernels() -> None:
    name = "Convolution (NHWC, F16) IGEMM"
    profile = profile_of([(name, 50), (f"{name} #2", 20), (f"{name} #3", 5)])
    kernels = ((7, 7), (3, 3), (1, 1))
    members = tuple(
        replace(
            member,
            operator=replace(member.operator, kind="depthwise", matrix=False),
            shapes=OperatorShapes(
                "depthwise convolution", ((1, 8, 8, 4), (1, *size, 4)), (1, 8, 8, 4)
            ),
        )
        for member, size in zip(profile.operators, kernels, strict=True)
    )
    found = of(Topic.DEPTHWISE, find(replace(profile, operators=members)))
    assert [finding.what for finding in found] == [
        "depthwise convolutions with more than 25 weights a channel",
        "depthwise convolutions",
        "depthwise convolutions of 1x1",
    ]
    assert found[1].one == "depthwise convolution"
    assert found[2].one == "depthwise convolution of 1x1"
    assert ["batch norm" in finding.remedy for finding in found] == [False, False, True]


def test_a_variant_is_judged_by_its_work_where_that_is_known() -> None:
    """One large layer in int8 outweighs two small ones in fp32, and the other way round."""
    linear = "Fully Connected (NC, F32) GEMM"
    profile = profile_of([(linear, 5), (f"{linear} #2", 5), ("Convolution (NHWC, QC8) IGEMM", 5)])

    def with_work(*widths: int) -> Profile:
        shapes = [OperatorShapes("linear", ((1, width), (8, width)), (1, 8)) for width in widths]
        members = zip(profile.operators, shapes, strict=True)
        return replace(
            profile, operators=tuple(replace(member, shapes=each) for member, each in members)
        )

    mostly_int8 = with_work(10, 10, 180)
    assert not of(Topic.DATA_TYPE, find(mostly_int8, precision="int8"))
    assert by_data_type(mostly_int8).endswith("; by work fp32 10 %, int8 90 %")
    (found,) = of(Topic.DATA_TYPE, find(mostly_int8, precision="fp32"))
    assert found.what == "1 of 3 matrix operators ran in int8"
    assert found.detail == "90 % of the multiply-accumulates"
    (found,) = of(Topic.DATA_TYPE, find(with_work(40, 40, 20), precision="int8"))
    assert found.detail == "80 % of the multiply-accumulates"


def test_an_operator_without_an_sme2_kernel_is_missed_also_when_nothing_runs_on_sme2() -> None:
    found = find(profile_of(("addmm.out", 50_000)))
    assert found[0].remedy.startswith("portable fallback")
    assert not of(Topic.MISSED, found), "its cost is told once"
    assert [finding.what for finding in of(Topic.PORTABLE, found)] == ["addmm.out"]


def test_noise_is_mentioned_where_there_are_enough_runs() -> None:
    noisy = notes(profile_of_runs([[ADD]], 1, 1.5, 2, 2.5, 3, 3.5))
    assert "latency is noisy: the middle half of the runs spreads over 4" in noisy
    assert "only" not in noisy
    assert notes(profile_of_runs([[ADD]], 1, 1, 1, 1, 1, 1)) == ""


@pytest.mark.parametrize(
    ("name", "tokens", "found"), [("PF32", 1, 1), ("PF32", 4, 0), ("F32", 1, 0)]
)
def test_a_single_row_on_sme2_is_to_be_measured(name: str, tokens: int, found: int) -> None:
    linear = OperatorShapes("linear", ((tokens, 64), (64, 64)), (tokens, 64))
    calls = [[(f"Fully Connected (NC, {name}) GEMM #1", 50), ("Softmax (NC, F32) #1", 50)]]
    profile = build_profiles(
        columns_of(run_of(calls)), shapes=(MethodShapes("forward", {0: (linear,)}),)
    )[0]
    single = of(Topic.SINGLE_ROW, find(profile))
    assert [finding.cost.operators for finding in single] == [1] * found
    assert all("XNNPACK#10719" in finding.remedy for finding in single)
    assert all("linear, fp32, 1 row, regular size: SME2" in entry.evidence for entry in single)
