"""What a whole run means, where a model has little to say or something rare."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from pytest_sme2.report.findings import RunFinding, next_step, run_findings
from pytest_sme2.report.html import report_document
from pytest_sme2.report.markdown import case_lines
from pytest_sme2.report.terminal import run_lines
from pytest_sme2.results import AS_EXPORTED, Check, Outcome
from pytest_sme2.session.run_directory import CaseRecord, read_record
from tests.support import recorded_runs
from tests.support.records import built, changed, stored_dumps, toy_run, write_case

QP8 = ("Fully Connected (NC, QP8, F32, QC4W) GEMM #1", 50_000)
CONV_PF32 = ("Convolution (NHWC, PF32) IGEMM #1", 50_000)


def starting(found: Sequence[RunFinding], start: str) -> list[RunFinding]:
    return [finding for finding in found if finding.text.startswith(start)]


def test_a_case_without_a_profile_says_nothing(tmp_path: Path) -> None:
    bare = read_record(write_case(tmp_path, "bare", "fp16", {}, kernels={}))
    assert run_findings([bare]) == []
    whole = read_record(write_case(tmp_path, "toy", "fp16", stored_dumps("toy_fp16")))
    assert {finding.model for finding in run_findings([bare, whole])} == {"toy"}


def test_unproven_operators_are_neither_covered_nor_missed(tmp_path: Path) -> None:
    found = run_findings([built(tmp_path, [[QP8]], [[QP8]], kernels={})])
    (told,) = [finding for finding in found if "QP8" in finding.text]
    assert told.text.startswith(
        "matrix operators on packed QP8 kernels, which may be SME2 or NEON: 1 ("
    )
    assert "`sme2 run --kernels`" in told.remedy
    assert told.share > 0.9
    assert starting(found, "matrix operators on SME2: 0 of 1 (fp32)")


def test_no_bottleneck_is_named_where_no_operator_took_time(tmp_path: Path) -> None:
    nothing = [[("Add (ND) #1", 0)]]
    assert not starting(run_findings([built(tmp_path, nothing, nothing)]), "most time goes to")
    some = [[("Add (ND) #1", 900)]]
    (told,) = starting(run_findings([built(tmp_path, nothing, some)]), "most time goes to")
    assert "ELEMENTWISE" in told.text


def test_what_a_model_has_not_is_not_told(tmp_path: Path) -> None:
    found = run_findings([built(tmp_path, [[CONV_PF32]], [[CONV_PF32]])])
    assert starting(found, "matrix operators on SME2: 1 of 1 (fp32)")
    for start in ("layout changes", "operators outside", "depthwise", "unknown operators"):
        assert not starting(found, start)


def test_layout_changes_inside_of_a_delegate_are_not_said_to_be_at_its_border(
    tmp_path: Path,
) -> None:
    transpose = ("Transpose (ND, X32) #1", 20_000)
    inside = [[CONV_PF32, transpose, ("Convolution (NHWC, PF32) IGEMM #2", 50_000)]]
    (told,) = starting(run_findings([built(tmp_path, inside, inside)]), "layout changes: 1 (")
    assert "Inside the delegate" in told.remedy
    last = [[CONV_PF32, transpose]]
    (told,) = starting(run_findings([built(tmp_path, last, last)]), "layout changes: 1 (")
    assert "at the output of the program" in told.remedy.lower()


def test_a_number_that_variants_share_is_said_once(tmp_path: Path) -> None:
    folders = toy_run(tmp_path, emulated=True)
    (layout,) = starting(run_findings([read_record(folder) for folder in folders]), "layout")
    assert layout.text == "layout changes: 1 (fp16, fp32); 2 (int8)"


def test_a_single_row_is_to_be_measured_in_every_report(tmp_path: Path) -> None:
    """All of its matrix operators run on SME2, which is not good in itself."""
    record = read_record(recorded_runs.unpack("gru-fp16", tmp_path))
    assert record.measured.coverage.operators == 1
    (found,) = starting(run_findings([record]), "measure it: matrix operators")
    assert found.share > 0.1
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
    (finding,) = (entry for entry in run_findings([large]) if "outside" in entry.text)
    assert "; the largest: SiLU (features.0.2 (SiLU), features.1.0.block.0.2 (SiLU)" in finding.text


def test_a_failed_case_comes_first(tmp_path: Path) -> None:
    small, large = (recorded(tmp_path, name) for name in ("detector-fp16", "efficientnet-fp16"))
    failed = replace(small, checks=(Check("cost (on)", Outcome.REGRESSED, "more"),))
    assert run_lines([failed, large])[-1].startswith("Next: sme2 advise detector ")


def test_a_program_without_its_source_has_no_next_step(tmp_path: Path) -> None:
    record = recorded(tmp_path, "efficientnet-fp16")
    assert next_step([changed(record, variant=AS_EXPORTED)]) == ""
