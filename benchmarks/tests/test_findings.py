"""The tables of results agree with the stored baselines."""

from __future__ import annotations

import pytest

from benchmarks.findings import TABLES, overview
from benchmarks.harness import Table


@pytest.mark.parametrize("one", TABLES, ids=lambda one: one.name)
def test_tables_agree_with_the_baselines(one: Table) -> None:
    text = one.path.read_text("utf-8")
    assert one.put(text) == text, "python -m benchmarks.findings --write, then read the page"


def test_the_known_gap_is_in_the_table() -> None:
    rows = overview()
    assert rows[0] == "| model | fp32 | fp16 | int8 | int8_dynamic | int4 |"
    assert any("| 5.5x, 81 of 81 | 1.0x, 2 of 81 | 2.8x, 81 of 81 |" in row for row in rows)
    # Only the kernel census proves these: QP8 is a name that NEON kernels share.
    assert any(row.endswith("9 of 9 | 1.1x, 2 of 9 |") for row in rows)
