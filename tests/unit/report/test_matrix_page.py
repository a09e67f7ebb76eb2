"""The kernel matrix as a page and as a table."""

from __future__ import annotations

from dataclasses import replace

from pytest_sme2.report.matrix_page import overview, page
from pytest_sme2.results import Cell
from tests.unit.profile.test_kernel_matrix import MATRIX


def test_the_overview_shows_where_each_operator_runs_and_what_is_not_known() -> None:
    missing = (Cell("linear", "fp16", 32, "regular"),)
    lines = list(overview(replace(MATRIX, missing=missing)))
    assert lines == [
        "| operator | fp32 | fp16 | bf16 |",
        "| --- | --- | --- | --- |",
        "| linear | **SME2** | ? |  |",
        "| convolution 1x1 |  | NEON |  |",
        "| attention |  |  |  |",
    ]
    assert "| attention |  |  | fails |" in overview(MATRIX, rows=1)


def test_no_text_of_a_matrix_ends_the_script_that_holds_it() -> None:
    answers = (replace(MATRIX.answers[2], problem="</script><b>"),)
    text = page([replace(MATRIX, answers=answers)])
    assert "</script><b>" not in text
    assert "\\u003c/script>" in text
