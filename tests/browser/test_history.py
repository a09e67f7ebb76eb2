"""The page of a history in a browser: it fits, follows the colours, and names stay text."""

from __future__ import annotations

from pathlib import Path

import pytest

from pytest_sme2.report.history_page import history_page
from pytest_sme2.report.history_series import all_series
from tests.support.chromium import Page
from tests.support.histories import run, timed
from tests.support.records import HOSTILE


@pytest.mark.parametrize("width", [1400, 400])
@pytest.mark.parametrize("colours", ["light", "dark"])
def test_it_fits_and_its_letters_can_be_read(
    page: Page, tmp_path: Path, width: int, colours: str
) -> None:
    runs = [run(number, 1e6 * 1.01 ** (number // 4), case=HOSTILE) for number in range(40)]
    drift = timed(45, dict.fromkeys(range(15, 35), 1.02), 0.005, seed=1)
    path = tmp_path / "history.html"
    path.write_text(history_page(all_series([*runs, *drift])), encoding="utf-8")
    page.prefer(colours)
    page.resize(width, 900, mobile=width < 500)
    page.open(path)
    assert page.evaluate("document.title") == "History of SME2 performance"
    assert HOSTILE in page.evaluate("document.querySelectorAll('h2')[1].textContent")
    assert page.evaluate("document.documentElement.scrollWidth") <= width
    letters = "document.querySelector('svg text').getBoundingClientRect().height"
    assert page.evaluate(letters) >= 9
    assert page.evaluate("document.querySelectorAll('svg .change').length") == 10
    # Neither a label nor a line leaves its drawing.
    assert page.evaluate(
        """[...document.querySelectorAll("svg")].every((drawing) => {
          const whole = drawing.getBoundingClientRect();
          return [...drawing.querySelectorAll("text, path, circle")].every((part) => {
            const box = part.getBoundingClientRect();
            return box.left >= whole.left - 1 && box.right <= whole.right + 1
              && box.top >= whole.top - 1 && box.bottom <= whole.bottom + 1;
          });
        })"""
    )
    ink = "getComputedStyle(document.querySelector('svg .line')).stroke"
    paper = "getComputedStyle(document.body).backgroundColor"
    assert page.evaluate(ink) != page.evaluate(paper)
