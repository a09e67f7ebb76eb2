"""The page of a history in a browser: it fits, follows the colours, and names stay text."""

from __future__ import annotations

from pathlib import Path

import pytest

from pytest_sme2.report.history import all_series, read_history
from pytest_sme2.report.html import history_page
from tests.support.chromium import Page
from tests.support.histories import run, timed
from tests.support.records import HOSTILE

COMMITS = Path(__file__).parents[1] / "data" / "histories"


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


def test_real_commits_of_a_model_are_told_where_they_changed_it(page: Page, tmp_path: Path) -> None:
    """Eight commits, each run on the emulator; a new name and a comment changed nothing."""
    path = tmp_path / "history.html"
    path.write_text(history_page(all_series(read_history(COMMITS))), encoding="utf-8")
    page.open(path)
    told = page.evaluate("[...document.querySelectorAll('li')].map(each => each.innerText)")
    assert [line for line in told if "instructions (on)" in line] == [
        "+19.49% instructions (on): 41cbc0a653bc..75a79cdf5466",  # a wider layer
        "+155.31% instructions (on): 75a79cdf5466..1d203b0433e1+",  # GELU for ReLU
        "+475.51% instructions (on): 1d203b0433e1+..2f34085ea69b+",  # a flip of the input
        "-10.57% instructions (on): 7e65ae4e97e9+..45ee9fa24ecf+",  # ReLU again
        "-92.39% instructions (on): 45ee9fa24ecf+..cf94e1b87bdc",  # without the flip
    ]
    assert page.evaluate("document.querySelectorAll('svg .change').length") == 5
    caption = page.evaluate("document.querySelector('figcaption').innerText")
    assert caption == "instructions (on): 7,910, +19.49% in 5 changes from 6,620"
