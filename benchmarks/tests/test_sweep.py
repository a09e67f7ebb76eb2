"""The table of planted bugs."""

from __future__ import annotations

from benchmarks.sweep import TABLE, kept
from tests.support.planted_kernels import PLANTS


def test_the_page_has_the_table() -> None:
    text = TABLE.path.read_text("utf-8")
    assert TABLE.put(text) == text, "python -m benchmarks.sweep --write, then read the page"


def test_every_planted_bug_was_found() -> None:
    assert {plant.name for plant in PLANTS} == set(kept()["found"])
