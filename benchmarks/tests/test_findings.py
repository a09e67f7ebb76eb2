"""The tables of results agree with the stored baselines."""

from __future__ import annotations

import pytest

from benchmarks import architectures, findings
from benchmarks.harness import Table
from pytest_sme2.report.case_summary import LIMITS_OF_COST


@pytest.mark.parametrize(
    "one",
    [architectures.TABLE, findings.OVERVIEW, findings.HARDWARE],
    ids=lambda one: one.name,
)
def test_tables_agree_with_what_is_stored(one: Table) -> None:
    text = one.path.read_text("utf-8")
    assert one.put(text) == text, f"{one.command}, then read the page"


def test_the_known_gap_is_in_the_table() -> None:
    rows = findings.overview()
    assert rows[0] == "| model | fp32 | fp16 | int8 | int8_dynamic | int4 |"
    assert any("| 5.5x, 81 of 81 | as many, 2 of 81 | 2.8x, 81 of 81 |" in row for row in rows)
    # Only the kernel census proves these: QP8 is a name that NEON kernels share.
    assert any(row.endswith("9 of 9 | 1.1x, 2 of 9 |") for row in rows)


def test_the_note_beside_every_count_has_the_range_of_the_table() -> None:
    times = [row["off_ms"] / row["on_ms"] for row in findings.PUBLISHED.values()]
    counts = [row["off"] / row["on"] for row in findings.PUBLISHED.values()]
    ends = [f"{min(found):.1f} to {max(found):.1f} times" for found in (times, counts)]
    told = "SME2 cut the time {}, and the instructions of the same work {}"
    assert told.format(*ends) in LIMITS_OF_COST
