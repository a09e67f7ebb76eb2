"""The sentences about one profile, about two, and about a whole run: when each is said."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from pytest_sme2.profile.build import build_profiles
from pytest_sme2.profile.compare import compare
from pytest_sme2.report.findings import (
    advice,
    advice_text,
    comparison_findings,
    cost_text,
    next_step,
    profile_findings,
    remedy_text,
    run_findings,
    sentences,
)
from pytest_sme2.report.html import report_document
from pytest_sme2.report.markdown import case_lines
from pytest_sme2.report.terminal import run_lines
from pytest_sme2.results.case import Check
from pytest_sme2.results.profile import Cost, Finding, Profile, Topic
from pytest_sme2.results.run import AS_EXPORTED
from pytest_sme2.results.timing import Outcome
from pytest_sme2.session.run_directory import CaseRecord, read_record
from tests.support import recorded_runs
from tests.support.etdump_builder import inference
from tests.support.profiles import columns_of, profile_of
from tests.support.records import built, changed, stored_dumps, write_case

CONV_F32 = ("Convolution (NHWC, F32) IGEMM #1", 50_000)
CONV_PF32 = ("Convolution (NHWC, PF32) IGEMM #1", 5_000)
ADD = ("Add (ND) #1", 5_000)
QP8 = ("Fully Connected (NC, QP8, F32, QC4W) GEMM #1", 50_000)


def instant() -> Profile:
    """An inference on a clock too coarse to see it."""
    return build_profiles(columns_of(inference([], start=1_000, end=1_000)))[0]


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


def test_a_side_without_a_bottleneck_is_not_said_to_have_had_one() -> None:
    found = compare(instant(), profile_of([ADD]))
    assert not found.shifted
    assert "the bottleneck is ELEMENTWISE" in comparison_findings(found)


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


def texts(*records: CaseRecord) -> list[str]:
    return [f"{model}: {cost_text(entry)}" for model, entry in run_findings(records)]


def test_a_case_without_a_profile_says_nothing(tmp_path: Path) -> None:
    bare = read_record(write_case(tmp_path, "bare", "fp16", {}, kernels={}))
    assert texts(bare) == []
    whole = read_record(write_case(tmp_path, "toy", "fp16", stored_dumps("toy_fp16")))
    assert all(text.startswith("toy: ") for text in texts(bare, whole))


def test_unproven_operators_are_neither_covered_nor_missed(tmp_path: Path) -> None:
    found = run_findings([built(tmp_path, [[QP8]], [[QP8]], kernels={})])
    (told,) = (entry for _, entry in found if entry.topic is Topic.UNPROVEN)
    assert cost_text(told).startswith("not known to be on SME2: matrix operators on kernels")
    assert "--device emulated" in remedy_text(told)
    assert told.cost.share > 0.9


def test_a_single_row_is_to_be_measured_in_every_report(tmp_path: Path) -> None:
    """All of its matrix operators run on SME2, which is not good in itself."""
    record = read_record(recorded_runs.unpack("gru-fp16", tmp_path))
    assert record.measured.coverage.operators == 1
    assert any(text.startswith("gru: measure it: matrix operators") for text in texts(record))
    assert any("gru: measure it:" in line for line in run_lines([record], 1))
    assert any("- measure it: 9 matrix operators" in line for line in case_lines(record, "#"))
    (case,) = report_document([(tmp_path / "gru-fp16", record)])["cases"]
    assert any(text.startswith("measure it: 9 matrix") for text in case["findings"])


def recorded(root: Path, name: str) -> CaseRecord:
    return read_record(recorded_runs.unpack(name, root))


def test_the_next_step_tries_the_rewrite_that_saves_most(tmp_path: Path) -> None:
    small, large = (recorded(tmp_path, name) for name in ("detector-fp16", "efficientnet-fp16"))
    assert next_step([small, large]) == (
        "sme2 advise efficientnet --variants fp16 --device emulated --try silu"
    )
    assert next_step([small]).startswith("sme2 advise detector ")
    assert next_step([]) == ""
    new = replace(large, checks=(Check("operators", Outcome.NO_BASELINE, "none"),))
    open_ = replace(large, checks=(Check("cost", Outcome.INCONCLUSIVE, "."),))
    assert next_step([large, new], ("pytest", "a b")) == "pytest 'a b' --update-baselines"
    assert next_step([new]).startswith("sme2 advise"), "`sme2 run` stores none"
    assert next_step([open_]) == ""


def test_a_failed_case_comes_first(tmp_path: Path) -> None:
    small, large = (recorded(tmp_path, name) for name in ("detector-fp16", "efficientnet-fp16"))
    check = Check("cost (on)", Outcome.REGRESSED, "more")
    failed = replace(small, checks=(check,))
    assert run_lines([failed, large])[-1] == (
        "Next: sme2 run detector --variant fp16 --device emulated"
    )
    doubtful = replace(small, checks=(replace(check, verdict=Outcome.INVALID),))
    assert next_step([large, doubtful, failed]) == "sme2 doctor --device emulated"


def test_a_program_without_its_source_has_no_next_step(tmp_path: Path) -> None:
    record = recorded(tmp_path, "efficientnet-fp16")
    assert next_step([changed(record, variant=AS_EXPORTED)]) == ""
