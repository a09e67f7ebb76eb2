"""The table of what rewrites bring."""

from __future__ import annotations

import pytest

from benchmarks.rewrites import ROWS, TABLE, kept
from pytest_sme2.export.rewrites import NAMES

FOUND = kept()


def test_the_page_has_the_table() -> None:
    text = TABLE.path.read_text("utf-8")
    assert TABLE.put(text) == text, "python -m benchmarks.rewrites --write, then read the page"


def test_every_rewrite_is_measured_alone() -> None:
    assert {row.rewrites[0] for row in ROWS if len(row.rewrites) == 1} == set(NAMES)
    assert {str(row) for row in ROWS} == set(FOUND)


@pytest.mark.parametrize("row", FOUND)
def test_what_advice_names_takes_fewer_instructions(row: str) -> None:
    before, after = FOUND[row]["before"], FOUND[row]["after"]
    assert after["instructions"] < before["instructions"]
