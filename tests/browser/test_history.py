"""The page of a history in a browser: it fits, follows the colours, and names stay text."""

from __future__ import annotations

from pathlib import Path

import pytest

from pytest_sme2.report.history_page import history_page
from pytest_sme2.report.history_series import all_series
from tests.support.chromium import Page
from tests.support.histories import run, timed
from tests.support.records import HOSTILE


@pytest.fixture
def history(tmp_path: Path) -> Path:
    runs = [run(number, 1e6 * 1.01 ** (number // 4), case=HOSTILE) for number in range(40)]
    path = tmp_path / "history.html"
    path.write_text(
        history_page(all_series([*runs, *timed(30, {}, 0.005, seed=1)])), encoding="utf-8"
    )
    return path


@pytest.mark.parametrize("width", [1400, 400])
@pytest.mark.parametrize("colours", ["light", "dark"])
def test_it_fits_and_its_letters_can_be_read(
    page: Page, history: Path, width: int, colours: str
) -> None:
    page.prefer(colours)
    page.resize(width, 900, mobile=width < 500)
    page.open(history)
    assert page.evaluate("document.documentElement.scrollWidth") <= width
    letters = "document.querySelector('svg text').getBoundingClientRect().height"
    assert page.evaluate(letters) >= 9
    assert page.evaluate("document.querySelectorAll('svg .change').length") == 9
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


def test_names_are_text_and_a_case_is_reached_from_the_table(page: Page, history: Path) -> None:
    page.open(history)
    assert page.evaluate("document.title") == "History of SME2 performance"
    assert HOSTILE in page.evaluate("document.querySelector('summary h3').textContent")
    page.evaluate("document.querySelector('td a').click()")
    assert HOSTILE in page.evaluate("document.querySelector(location.hash).textContent")


def rows(page: Page, table: str, **filters: object) -> list[str]:
    """The first cells of those rows that are shown."""
    for name, value in filters.items():
        page.evaluate(f"document.forms[0].elements[{name!r}].value = {str(value)!r}")
    page.evaluate("document.forms[0].dispatchEvent(new Event('input'))")
    found: list[str] = page.evaluate(
        f"""[...document.querySelectorAll("[aria-label={table}] tbody tr")]
        .filter((row) => row.checkVisibility()).map((row) => row.cells[0].textContent)"""
    )
    return found


def test_rows_are_chosen_by_case_figure_device_and_size(page: Page, tmp_path: Path) -> None:
    levels = {"a-fp32": 1.2, "b-fp32": 1.5}
    runs = [
        run(number, 1e6 * (level if number >= len(case) else 1), case=case, device=device)
        for case, level in {**levels, "other-int8": 1.1}.items()
        for device in ("emulated", "linux")
        for number in range(30)
    ]
    path = tmp_path / "history.html"
    path.write_text(history_page(all_series(runs)), encoding="utf-8")
    page.open(path)
    assert rows(page, "Changes") == ["+50.00%", "+10.00%"]
    assert rows(page, "Changes", least=20) == ["+50.00%"]
    assert rows(page, "Changes", least="", case="OTHER") == ["+10.00%"]
    assert rows(page, "Cases", device="linux") == ["other-int8"]
    assert rows(page, "Changes", case="", device="", figure="instructions") == [
        "+50.00%",
        "+10.00%",
    ]


def test_planted_steps_of_hundreds_of_cases_are_seen_without_scrolling(
    page: Page, tmp_path: Path
) -> None:
    """With a drift of all cases, which was a wall of small changes."""
    planted = {10: (1.3, 40), 17: (1.5, 1), 25: (0.8, 30), 31: (1.12, 150), 36: (2.0, 2)}
    runs = []
    for number in range(40):
        for case in range(150):
            level = 1.0008 ** (number // 2)
            for at, (factor, cases) in planted.items():
                level *= factor if number >= at and case < cases else 1
            runs += [run(number, 1e6 * level, case=f"model{case:03}-fp32", device=device)
                     for device in ("emulated", "linux")]  # fmt: skip
    text = history_page(all_series(runs))
    assert len(text.encode()) < 1_000_000
    path = tmp_path / "history.html"
    path.write_text(text, encoding="utf-8")
    page.resize(1400, 900)
    page.open(path)
    assert "150 cases on 2 devices" in page.evaluate("document.querySelector('header').textContent")
    seen = page.evaluate(
        """[...document.querySelectorAll("[aria-label=Changes] tbody tr")]
        .filter((row) => row.getBoundingClientRect().bottom <= innerHeight)
        .map((row) => row.querySelector("code").textContent)"""
    )
    assert {f"c{at - 1:04}..c{at:04}" for at in planted} <= set(seen)
    assert len(seen) <= 8
