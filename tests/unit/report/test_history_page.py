"""The page of a history: one chart for each case, and every name as text."""

from __future__ import annotations

import re
from dataclasses import replace
from xml.etree import ElementTree

import pytest

from pytest_sme2.report.history_page import history_page
from pytest_sme2.report.history_series import all_series
from tests.support.histories import run, timed
from tests.support.records import HOSTILE


def drawings(page: str) -> list[list[str]]:
    """The kinds of what each chart shows."""
    found = [ElementTree.fromstring(text) for text in re.findall("<svg.*?</svg>", page)]
    return [[kind for part in one.iter() if (kind := part.get("class"))] for one in found]


def test_every_change_is_listed_and_drawn_with_its_commits_and_versions() -> None:
    runs = [
        run(number, 1e6 * 1.01**number, {"program bytes": 1000 + number}) for number in range(4)
    ]
    runs[2] = replace(runs[2], versions={"executorch": "1.5.1"})
    page = history_page(all_series([*runs, *timed(80, {40: 1.05}, spread=0.005, seed=2)]))
    noisy, exact = drawings(page)
    assert [exact.count(kind) for kind in ("change bad", "version", "level")] == [3, 2, 0]
    assert [noisy.count(kind) for kind in ("interval on", "level", "change bad")] == [1, 1, 1]
    assert page.count("<li>") == 7
    assert "c0001..c0002; executorch none → 1.5.1" in page
    # The largest change comes first.
    assert page.index("linux-12ab") < page.index("emulated")


def test_it_asks_nothing_and_escapes_every_name() -> None:
    runs = [
        run(number, 1e6 + number * 1e5, case=HOSTILE, commit=HOSTILE, versions={HOSTILE: HOSTILE})
        for number in range(2)
    ]
    page = history_page(all_series([*runs, run(3, 1e6, device=HOSTILE, recorded=HOSTILE)]))
    assert HOSTILE not in page
    assert "<script" not in page
    assert "default-src &#x27;none&#x27;; script-src ;" in page
    assert not re.search(r"<[^>]* (src|href|on\w+)=", page)


@pytest.mark.parametrize("runs", [1, 2, 61])
def test_any_number_of_runs_can_be_drawn(runs: int) -> None:
    records = [
        replace(each, figures={"latency (on)": (1.0, None, None)})
        for each in timed(runs, {}, 0.0, seed=1)
    ]
    assert len(drawings(history_page(all_series(records)))) == 1


def test_the_page_of_hundreds_of_cases_stays_small() -> None:
    runs = [run(number, 1e6 + number, case=f"m{case}") for case in range(150) for number in (0, 1)]
    page = history_page(all_series(runs))
    assert len(page.encode()) < 1_000_000
    assert "70 cases more changed less: --case chooses." in page
