"""The sentences about one profile, or about two: when each is said, and when it is not."""

from __future__ import annotations

from dataclasses import replace

import pytest

from pytest_sme2.profile.build import build_profile
from pytest_sme2.profile.compare import compare
from pytest_sme2.report.findings import (
    advice,
    advice_text,
    comparison_findings,
    profile_findings,
    sentences,
)
from pytest_sme2.results import Cost, Finding, Profile, Topic
from tests.support.etdump_builder import inference, operator_call
from tests.support.profiles import columns_of, profile_of

CONV_F32 = ("Convolution (NHWC, F32) IGEMM #1", 50_000)
CONV_PF32 = ("Convolution (NHWC, PF32) IGEMM #1", 5_000)
ADD = ("Add (ND) #1", 5_000)


def instant() -> Profile:
    """An inference on a clock too coarse to see it."""
    return build_profile(columns_of(inference([], start=1_000, end=1_000)))


def test_a_finding_reads_as_what_it_costs_and_what_to_do() -> None:
    seen = profile_of([CONV_PF32, ("Fully Connected (NC, F16) GEMM #1", 5_000)])
    assert profile_findings(seen)[0] == (
        "matrix operators on SME2: 1 of 2 (fp32 1 of 1, fp16 0 of 1)"
    )
    (missed,) = (line for line in profile_findings(seen) if line.startswith("not on SME2: "))
    assert missed.startswith("not on SME2: 1 Fully Connected (NC, F16) GEMM (")
    assert " % of the time): most likely 1x1 convolutions" in missed
    (counted,) = (line for line in profile_findings(seen, timed=False) if "not on SME2" in line)
    assert counted.startswith("not on SME2: 1 Fully Connected (NC, F16) GEMM: most likely")


def test_findings_with_one_remedy_are_one_sentence() -> None:
    shares = (0.4, 0.3, 0.2, 0.1, 0.05, 0.04, 0.03)
    found = [
        Finding(Topic.PORTABLE, f"op{number}", Cost(number + 1, share, "time"), "do this")
        for number, share in enumerate(shares)
    ]
    other = Finding(Topic.PORTABLE, "last", Cost(1, 0.01, "time"), "do that")
    first, second = sentences([*found, other])
    assert first.startswith("outside of the delegate: 1 op0 (40.0 % of the time), 2 op1 (30.0 %")
    assert first.endswith("5 op4 (5.0 % of the time) and 13 more: do this")
    assert second == "outside of the delegate: 1 last (1.0 % of the time): do that"


@pytest.mark.parametrize(
    ("number", "said"), [(1, "1 depthwise convolution of 1x1"), (2, "2 depthwise convolutions of")]
)
def test_a_counted_noun_agrees_with_its_number(number: int, said: str) -> None:
    what, one = "depthwise convolutions of 1x1", "depthwise convolution of 1x1"
    found = Finding(Topic.DEPTHWISE, what, Cost(number, 0.1, "time"), one=one)
    (sentence,) = sentences([found])
    assert sentence.startswith(f"not matrix work: {said}")


def test_notes_are_not_joined() -> None:
    notes = [Finding(Topic.NOTE, "one"), Finding(Topic.NOTE, "two", remedy="do this")]
    assert sentences(notes) == ["one", "two: do this"]


@pytest.mark.parametrize("swapped", [False, True])
def test_what_took_no_time_is_not_called_slower_or_faster(swapped: bool) -> None:
    one, other = instant(), profile_of([ADD])
    found = compare(other, one) if swapped else compare(one, other)
    assert not any("as fast as 'off'" in text or "slower" in text
                   for text in comparison_findings(found))  # fmt: skip


def test_the_operator_that_grew_most_is_named_with_both_times() -> None:
    before = profile_of([CONV_PF32, ADD])
    after = profile_of([CONV_PF32, ("Add (ND) #1", 9_000)])
    assert "'Add (ND) #1' grew most: 5.0 us to 9.0 us" in comparison_findings(
        compare(before, after)
    )


def test_nothing_is_said_to_have_grown_where_nothing_did() -> None:
    found = comparison_findings(compare(profile_of([CONV_F32, ADD]), profile_of([CONV_PF32, ADD])))
    assert not any("grew most" in text or "is new" in text for text in found)


def test_what_stays_the_bottleneck_is_said_to_stay() -> None:
    found = comparison_findings(compare(profile_of([CONV_F32]), profile_of([CONV_PF32])))
    assert "the bottleneck is CONV on both sides" in found


def test_a_side_without_a_bottleneck_is_not_said_to_have_had_one() -> None:
    found = compare(instant(), profile_of([ADD]))
    assert not found.shifted
    assert "the bottleneck is ELEMENTWISE" in comparison_findings(found)


def test_no_bound_is_told_where_all_time_is_in_one_category() -> None:
    whole = inference([operator_call(0, 1_000, 2_000, "mm.out")], start=1_000, end=2_000)
    profile = build_profile(columns_of(whole))
    found = comparison_findings(compare(profile, profile))
    assert "the bottleneck is GEMM on both sides" in found
    assert not any("were free" in text for text in found)


def test_without_time_only_what_came_and_went_is_told() -> None:
    found = compare(profile_of([CONV_F32, ADD]), profile_of([CONV_PF32]))
    assert comparison_findings(found, timed=False) == ["1 operator removed: 1 'Add (ND)'"]


def test_advice_is_given_once_for_a_model_and_the_costliest_first() -> None:
    silu = Finding(
        Topic.PORTABLE, "SiLU", Cost(4, 0.4, "time"), "write it out", "4 copies", "a.b", "silu"
    )
    cheap = Finding(Topic.LAYOUT, "between A and B", Cost(1, 0.0001, "time"))
    missed = Finding(Topic.MISSED, "Conv", Cost(2, 0.5, "time"), "no kernel")
    findings = {"fp16": (silu, cheap, missed), "int8": (replace(silu, cost=Cost(2, 0.1, "time")),)}
    first, second = advice(findings)
    assert first.what == "not on SME2: Conv"
    assert (second.rewrite, list(second.costs)) == ("silu", ["fp16", "int8"])
    assert advice_text(second) == (
        "outside of the delegate: SiLU: 4 operators, 40.0 % of the time in fp16, 2 operators, "
        "10.0 % of the time in int8 (4 copies). Write it out. In the model: a.b."
    )
