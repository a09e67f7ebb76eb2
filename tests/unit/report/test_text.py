"""The few words that every report is put together from."""

from __future__ import annotations

import pytest

from pytest_sme2.report.text import bullet, clipped, duration


@pytest.mark.parametrize(
    ("ns", "text"),
    [
        (0, "0.0 us"),
        (999_949, "999.9 us"),
        (1e6, "1.000 ms"),
        (9.9999e9, "9999.900 ms"),
        (1e10, "10.00 s"),
        (9.9e13, "99000.00 s"),
        (1e14, "1.00e+05 s"),
        (-2e6, "-2.000 ms"),
    ],
)
def test_durations(ns: float, text: str) -> None:
    assert duration(ns) == text


def test_names_are_cut_in_the_middle_and_paths_nowhere() -> None:
    assert (clipped("abcdefghij", 10), clipped("abcdefghijk", 10)) == ("abcdefghij", "abcd...ijk")
    path = "/" + "a" * 120
    assert path in bullet(f"it cannot be read: {path}").split()
