"""The kernel matrix as a page."""

from __future__ import annotations

from dataclasses import replace

from pytest_sme2.report.matrix_page import page
from tests.unit.profile.test_kernel_matrix import MATRIX


def test_no_text_of_a_matrix_ends_the_script_that_holds_it() -> None:
    answers = (replace(MATRIX.answers[2], problem="</script><b>"),)
    text = page([replace(MATRIX, answers=answers)])
    assert "</script><b>" not in text
    assert "\\u003c/script>" in text
