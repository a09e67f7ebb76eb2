"""The table of planted bugs."""

from __future__ import annotations

from benchmarks.sweep import TABLE


def test_the_page_has_the_table() -> None:
    text = TABLE.path.read_text("utf-8")
    assert TABLE.put(text) == text, "python -m benchmarks.sweep --write, then read the page"
