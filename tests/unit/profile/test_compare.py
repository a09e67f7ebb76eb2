from __future__ import annotations

import pytest

from pytest_sme2.profile.compare import compare, match_operators
from pytest_sme2.report.findings import comparison_findings
from pytest_sme2.results.profile import Category, Change, Comparison
from tests.support import ETDUMPS
from tests.support.profiles import COVERAGE, GAP, Call, profile_of, real

OFF: tuple[Call, ...] = (
    [
        ("Transpose (ND, X16) #1", 10_000),
        ("Convolution (NHWC, F16) IGEMM #1", 60_000),
        ("Fully Connected (NC, F16) GEMM #1", 20_000),
    ],
    ("mean.out", 1_000),
)
ON: tuple[Call, ...] = (
    [
        ("Transpose (ND, X16) #1", 10_000),
        ("Convolution (NHWC, PF16) IGEMM #1", 6_000),
        ("Fully Connected (NC, PF16) GEMM #1", 2_000),
    ],
    ("mean.out", 1_000),
)


def labels(comparison: Comparison) -> list[tuple[str | None, str | None]]:
    sides = ((change.before, change.after) for change in comparison.operators)
    return [(a.label if a else None, b.label if b else None) for a, b in sides]


def by_name(changes: tuple[Change, ...]) -> dict[str, float | None]:
    return {change.name: change.ratio for change in changes}


def test_off_against_on() -> None:
    found = compare(profile_of(*OFF), profile_of(*ON))
    assert (found.before_name, found.after_name) == ("off", "on")
    assert found.end_to_end.ratio == pytest.approx((91_000 + 4 * GAP) / (19_000 + 4 * GAP))
    assert by_name(found.categories) == pytest.approx(
        {"CONV": 10.0, "GEMM": 10.0, "DATA_MOVEMENT": 1.0, "OTHER": 1.0}
    )
    assert by_name(found.kinds)["CONV convolution"] == pytest.approx(10.0)
    assert found.overhead.ratio == pytest.approx(1.0)
    assert [change.ratio for change in found.operators] == pytest.approx([1.0, 10.0, 10.0, 1.0])
    assert found.added == found.removed == ()


def test_the_bottleneck_shifts() -> None:
    found = compare(profile_of(*OFF), profile_of(*ON))
    assert (found.largest_before, found.largest_after) == (Category.CONV, Category.DATA_MOVEMENT)
    assert found.shifted
    assert "the bottleneck moved from CONV to DATA_MOVEMENT" in comparison_findings(found)


def test_operators_that_came_and_went_are_listed_where_they_stood() -> None:
    before = profile_of([("Sigmoid (NC) #1", 5_000), ("Add (ND) #1", 5_000)], ("mm.out", 5_000))
    after = profile_of([("Pack LH (X32) #1", 1_000), ("Add (ND) #1", 5_000)], ("mm.out", 5_000),
                       ("exp.out", 50_000))  # fmt: skip
    found = compare(before, after, names=("A", "B"))
    assert labels(found) == [
        ("Sigmoid (NC) #1", None),
        (None, "Pack LH (X32) #1"),
        ("Add (ND) #1", "Add (ND) #1"),
        ("native_call_mm.out", "native_call_mm.out"),
        (None, "native_call_exp.out"),
    ]
    assert [member.label for member in found.removed] == ["Sigmoid (NC) #1"]
    assert [member.label for member in found.added] == ["Pack LH (X32) #1", "native_call_exp.out"]
    text = " ".join(comparison_findings(found))
    assert "1 operator removed: 1 'Sigmoid (NC)'" in text
    assert "'B' is" in text
    assert "slower than 'A'" in text


def test_another_precision_is_laid_beside() -> None:
    found = compare(real("cpp_mobile_fp32_on"), real("cpp_mobile_fp16_on"), names=("fp32", "fp16"))
    assert found.added == found.removed == ()
    assert len(found.operators) == 23


PAIRS = [f"cpp_{name}_{kind}" for name in ("toy", "mobile") for kind in ("fp32", "fp16", "int8")]
OTHERS = ["mixed_fp32", "mixed_fp16", "int8_per_channel", "int8_per_tensor", "int8_dynamic"]


@pytest.mark.parametrize("program", [*PAIRS, *OTHERS])
def test_real_pairs_match_operator_by_operator(program: str) -> None:
    folder = ETDUMPS if program in PAIRS else COVERAGE
    off, on = (real(f"{program}_{arm}", folder) for arm in ("off", "on"))
    found = compare(off, on)
    assert [change.before for change in found.operators] == list(off.operators)
    assert [change.after for change in found.operators] == list(on.operators)


@pytest.mark.parametrize(("before", "after"), [("AB", "ABAB"), ("ABA", "A"), ("AAA", "AA")])
def test_equal_ends_do_not_overlap(before: str, after: str) -> None:
    names = {"A": ("Add (ND)", 5), "B": ("Clamp (NC)", 5)}
    sides = [profile_of([names[letter] for letter in side]).operators for side in (before, after)]
    changes = match_operators(*sides)
    assert [change.before for change in changes if change.before] == list(sides[0])
    assert [change.after for change in changes if change.after] == list(sides[1])
    assert sum(None not in (change.before, change.after) for change in changes) == min(
        len(before), len(after)
    )
