"""The table of what rewrites bring."""

from __future__ import annotations

import pytest

from benchmarks.rewrites import REWRITES, TABLE, kept
from pytest_sme2.export.rewrites import NAMES

ROWS = kept()


def test_the_page_has_the_table() -> None:
    text = TABLE.path.read_text("utf-8")
    assert TABLE.put(text) == text, "python -m benchmarks.rewrites --write, then read the page"


def test_all_are_known_rewrites() -> None:
    assert {name for names in REWRITES.values() for name in names} <= set(NAMES)


@pytest.mark.parametrize("model", ROWS)
def test_what_advice_names_takes_fewer_instructions(model: str) -> None:
    before, after = ROWS[model]["before"], ROWS[model]["after"]
    assert after["instructions"] < before["instructions"]
    assert after["outside"] < before["outside"]
