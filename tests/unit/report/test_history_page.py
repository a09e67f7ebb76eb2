"""The page of a history: one file that asks nothing, every name as text."""

from __future__ import annotations

import re
from dataclasses import replace
from xml.etree import ElementTree

import pytest

from pytest_sme2.report import history_series
from pytest_sme2.report.history_page import history_page
from pytest_sme2.report.history_series import MISSING, all_series
from tests.support.histories import run, timed
from tests.support.records import HOSTILE


def drawings(page: str) -> list[ElementTree.Element]:
    found = [ElementTree.fromstring(text) for text in re.findall("<svg.*?</svg>", page)]
    return [drawing for drawing in found if drawing.get("class") != "spark"]


def test_every_change_point_is_listed_with_its_commits_and_versions() -> None:
    runs = [run(number, 1e6 * 1.01**number) for number in range(4)]
    runs[2] = replace(runs[2], versions={"executorch": "1.5.1"})
    page = history_page(all_series(runs))
    assert "<h2>3 changes, the largest first</h2>" in page
    assert page.index("+1.00%") < page.index("c0001..c0002")
    assert "executorch none → 1.5.1" in page
    assert "+3.03% in 3 steps from 1,000,000" in page
    (drawing,) = drawings(page)
    kinds = [part.get("class") for part in drawing.iter() if part.get("class")]
    assert kinds.count("change bad") == 3
    assert kinds.count("version") == 2


def test_noisy_figures_are_drawn_with_intervals_levels_and_change_points() -> None:
    pytest.importorskip("ruptures")
    page = history_page(all_series(timed(80, {40: 1.05}, spread=0.005, seed=2)))
    (drawing,) = drawings(page)
    kinds = [part.get("class") for part in drawing.iter() if part.get("class")]
    assert kinds.count("interval on") == 1
    assert kinds.count("level") == 2
    assert kinds.count("change bad") == 1
    assert "a change is one of level" in page


def test_what_never_changed_is_told_and_not_drawn() -> None:
    page = history_page(all_series([run(number, 1e6) for number in range(3)]))
    assert drawings(page) == []
    assert "<h2>0 changes" in page
    assert "unchanged" in page


def test_it_asks_nothing_and_escapes_every_name() -> None:
    runs = [
        run(number, 1e6 + number * 1e5, case=HOSTILE, commit=HOSTILE, versions={HOSTILE: HOSTILE})
        for number in range(2)
    ]
    page = history_page(all_series([*runs, run(3, 1e6, device=HOSTILE, recorded=HOSTILE)]))
    assert HOSTILE not in page
    assert page.count("<script") == 1
    assert "default-src &#x27;none&#x27;; script-src &#x27;sha256-" in page
    assert all(
        not set(part.keys()) & {"src", "onerror", "onload"}
        for drawing in drawings(page)
        for part in drawing.iter()
    )


def test_it_says_what_was_not_looked_for(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(history_series, "available", lambda: False)
    page = history_page(all_series(timed(20, {}, spread=0.005, seed=1)))
    assert MISSING.partition("`")[0] in page


@pytest.mark.parametrize("runs", [1, 2, 61])
def test_any_number_of_runs_can_be_drawn(runs: int) -> None:
    records = [
        replace(each, figures={"latency (on)": (1.0, None, None)})
        for each in timed(runs, {}, 0.0, seed=1)
    ]
    assert len(drawings(history_page(all_series(records)))) == (runs > 1)
