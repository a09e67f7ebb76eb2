"""The page of the kernel matrix in a browser, without a network."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from pytest_sme2.results.evidence import Cell, CellAnswer, KernelMatrix
from tests.support.chromium import Page
from tools.matrix.comparing import matrix_page

HOSTILE = "</script><script>document.title = 'broken'</script>"
LINEAR = CellAnswer(
    Cell("linear", "fp32", 32, "regular"), "sme2", "kai_mopa", ("FC",), 4096, 512, 130.0
)
POINTWISE = CellAnswer(
    Cell("convolution 1x1", "fp16", 32, "regular"), "neon", "xnn_neon", ("FC",), 4096, 9000, 60.0
)
FAILED = CellAnswer(Cell("attention", "bf16", 1, "regular"), problem=HOSTILE)
NEW = KernelMatrix("1.5.1", "2.13.0", "0.18.0", "max", (LINEAR, POINTWISE, FAILED))
OLD = replace(NEW, executorch="1.5.0", answers=(replace(LINEAR, family="neon"), POINTWISE, FAILED))
SHOWN = "[...document.querySelectorAll('#rows tr')].map(row => row.cells[0].innerText)"


def choose(page: Page, name: str, value: str) -> None:
    page.evaluate(
        f"choices.{name}.value = {value!r}; choices.{name}.dispatchEvent(new Event('change'))"
    )


def test_cells_are_filtered_and_two_versions_compared(page: Page, tmp_path: Path) -> None:
    path = tmp_path / "matrix.html"
    path.write_text(matrix_page([OLD, NEW]), encoding="utf-8")
    page.open(path)
    assert page.evaluate(SHOWN) == ["linear", "convolution 1x1", "attention"]
    assert page.evaluate("document.title") == "The SME2 kernel matrix of ExecuTorch"
    assert "broken" in page.evaluate("document.querySelector('#rows').innerText")
    choose(page, "family", "neon")
    assert page.evaluate(SHOWN) == ["convolution 1x1"]
    choose(page, "family", "none")
    assert page.evaluate(SHOWN) == ["attention"]
    choose(page, "family", "")
    choose(page, "since", "1.5.0")
    assert page.evaluate(SHOWN) == ["linear"]
    assert page.evaluate("document.querySelector('#count').innerText") == (
        "1 of 3 cells changed since 1.5.0"
    )
