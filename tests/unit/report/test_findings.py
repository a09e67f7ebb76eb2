"""The sentences about one profile, or about two: when each is said, and when it is not."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from pytest_sme2.profile.build import build_profile
from pytest_sme2.profile.compare import compare
from pytest_sme2.report.findings import comparison_findings, profile_findings
from pytest_sme2.results import Profile
from tests.support.etdump_builder import inference, operator_call
from tests.support.profiles import Call, columns_of, profile_of, run_of

CONV_F32 = ("Convolution (NHWC, F32) IGEMM #1", 50_000)
CONV_PF32 = ("Convolution (NHWC, PF32) IGEMM #1", 5_000)
ADD = ("Add (ND) #1", 5_000)


def profile_of_runs(calls: Sequence[Call], *slower: float) -> Profile:
    """One run for each factor by which its operators take longer."""
    return build_profile(columns_of(*(run_of(calls, slower=factor) for factor in slower)))


def instant() -> Profile:
    """An inference on a clock too coarse to see it."""
    return build_profile(columns_of(inference([], start=1_000, end=1_000)))


def test_no_matrix_operator_on_sme2_may_have_several_reasons() -> None:
    found = profile_findings(profile_of([CONV_F32]))
    assert found[0] == (
        "none of the 1 matrix operator ran on an SME2 kernel: SME2 is off, the CPU has none, or "
        "the shapes do not fit"
    )
    assert not any("stayed on NEON" in sentence for sentence in found)


def test_without_a_kernel_in_the_data_type_the_reason_is_told_by_operator() -> None:
    found = profile_findings(profile_of(("mm.out", 50_000)))
    assert found[0].endswith("there is none for them in these data types")
    assert found[1].startswith("'native_call_mm.out' (1 operator, ")
    assert "ran on portable kernels" in found[1]


def test_few_runs_are_called_few_and_their_noise_is_left_alone() -> None:
    text = " ".join(profile_findings(profile_of_runs([[ADD]], 1, 1, 2, 2)))
    assert "only 4 runs: take at least 5 to trust the shares" in text
    assert "noisy" not in text


def test_noise_is_told_where_there_are_runs_enough() -> None:
    noisy = " ".join(profile_findings(profile_of_runs([[ADD]], 1, 1.5, 2, 2.5, 3, 3.5)))
    assert "latency is noisy: the middle half of the runs spreads over 4" in noisy
    assert "only" not in noisy
    steady = " ".join(profile_findings(profile_of_runs([[ADD]], 1, 1, 1, 1, 1, 1)))
    assert "noisy" not in steady
    assert "outlying" not in steady


def test_runs_far_from_the_others_are_counted() -> None:
    slower = (1, 1.01, 1.02, 1.03, 1.04, 1.05, 50)
    text = " ".join(profile_findings(profile_of_runs([[ADD]], *slower)))
    assert "1 run with outlying latency left out of the shares" in text


def test_no_bottleneck_is_named_where_no_operator_took_time() -> None:
    text = " ".join(profile_findings(profile_of([("Add (ND) #1", 0)])))
    assert "most time goes to" not in text
    assert "the framework's overhead takes 100.0 % of the time" in text


def test_overhead_is_told_only_where_it_is_large() -> None:
    text = " ".join(profile_findings(profile_of([("Add (ND) #1", 1_000_000)])))
    assert "overhead" not in text


@pytest.mark.parametrize("swapped", [False, True])
def test_what_took_no_time_is_not_called_slower_or_faster(swapped: bool) -> None:
    sides = [instant(), profile_of([ADD])]
    found = compare(*reversed(sides)) if swapped else compare(*sides)
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
