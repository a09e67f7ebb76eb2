"""What a whole run means, where a model has little to say or something rare."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from pytest_sme2.report.insights import Insight, insights
from pytest_sme2.results import Arm
from pytest_sme2.session.run_directory import CaseRecord, read_record
from tests.support.etdump_builder import build_etdump
from tests.support.profiles import Call, run_of
from tests.support.records import stored_dumps, write_case

QP8 = ("Fully Connected (NC, QP8, F32, QC4W) GEMM #1", 50_000)
CONV_PF32 = ("Convolution (NHWC, PF32) IGEMM #1", 50_000)


def built(root: Path, off: Sequence[Call], on: Sequence[Call], **changes: Any) -> CaseRecord:
    """A case whose arms make these calls."""
    dumps = {
        Arm.OFF: build_etdump([run_of(off)] * 2),
        Arm.ON: build_etdump([run_of(on)] * 2),
    }
    return read_record(write_case(root, "toy", "fp32", dumps, **changes))


def starting(found: Sequence[Insight], start: str) -> list[Insight]:
    return [insight for insight in found if insight.text.startswith(start)]


def test_a_case_without_a_profile_says_nothing(tmp_path: Path) -> None:
    bare = read_record(write_case(tmp_path, "bare", "fp16", {}, kernels={}))
    assert insights([bare]) == []
    whole = read_record(write_case(tmp_path, "toy", "fp16", stored_dumps("toy_fp16")))
    assert {insight.model for insight in insights([bare, whole])} == {"toy"}


def test_unproven_operators_are_neither_covered_nor_missed(tmp_path: Path) -> None:
    found = insights([built(tmp_path, [[QP8]], [[QP8]], kernels={})])
    (told,) = [insight for insight in found if "QP8" in insight.text]
    assert told.text == ("fp32: 1 matrix operator on packed QP8 kernels, which SME2 and NEON share")
    assert told.advice == "A kernel census can settle it: `sme2 kernels`."
    assert told.cost > 0.9
    assert not any("on SME2" in insight.text or "on NEON" in insight.text for insight in found)


def test_no_bottleneck_is_named_where_no_operator_took_time(tmp_path: Path) -> None:
    nothing = [[("Add (ND) #1", 0)]]
    assert not starting(insights([built(tmp_path, nothing, nothing)]), "with SME2 most time")
    some = [[("Add (ND) #1", 900)]]
    (told,) = starting(insights([built(tmp_path, nothing, some)]), "with SME2 most time")
    assert "ELEMENTWISE" in told.text


def test_what_a_model_has_not_is_not_told(tmp_path: Path) -> None:
    found = insights([built(tmp_path, [[CONV_PF32]], [[CONV_PF32]])])
    assert starting(found, "fp32 runs the only matrix operator on SME2")
    for start in ("layout changes", "operators outside", "depthwise", "unknown operators"):
        assert not starting(found, start)


def test_layout_changes_inside_of_a_delegate_are_not_said_to_be_at_its_border(
    tmp_path: Path,
) -> None:
    transpose = ("Transpose (ND, X32) #1", 20_000)
    inside = [[CONV_PF32, transpose, ("Convolution (NHWC, PF32) IGEMM #2", 50_000)]]
    (told,) = starting(insights([built(tmp_path, inside, inside)]), "layout changes: 1, ")
    assert "border" not in told.advice
    last = [[CONV_PF32, transpose]]
    (told,) = starting(insights([built(tmp_path, last, last)]), "layout changes: 1, ")
    assert "at a delegate's border" in told.advice


def test_unknown_operators_are_listed_up_to_three(tmp_path: Path) -> None:
    names = ("Zeta (NC, F32)", "Yota (NC, F32)", "Xi (NC, F32)", "Wau (NC, F32)")
    calls = [[(f"{name} #1", 5_000) for name in names]]
    (told,) = starting(insights([built(tmp_path, calls, calls)]), "unknown operators")
    assert told.text.endswith("'Wau (NC, F32)', 'Xi (NC, F32)', 'Yota (NC, F32)' and 1 more")
    (told,) = starting(
        insights([built(tmp_path, [calls[0][:3]], [calls[0][:3]])]), "unknown operators"
    )
    assert told.text.endswith("'Xi (NC, F32)', 'Yota (NC, F32)', 'Zeta (NC, F32)'")
