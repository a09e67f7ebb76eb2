"""The table of what rewrites bring."""

from __future__ import annotations

import pytest

from benchmarks.rewrites import ROWS
from pytest_sme2.export.variant import NAMES

FOUND = ROWS.kept()


def test_every_rewrite_is_measured_alone() -> None:
    singles = [row.partition("+")[2] for row in ROWS.known if row.count("+") == 1]
    assert {*singles} == {*NAMES}
    assert list(FOUND) == list(ROWS.known)


@pytest.mark.parametrize("row", FOUND)
def test_what_advice_names_takes_fewer_instructions(row: str) -> None:
    before, after = FOUND[row]["before"], FOUND[row]["after"]
    assert after["instructions"] < before["instructions"]
