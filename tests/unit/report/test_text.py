"""The few words that every report is put together from."""

from __future__ import annotations

import pytest

from pytest_sme2.report.text import bullet, clipped, duration, percent, times


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


def test_a_long_name_keeps_both_ends() -> None:
    assert clipped("abcdefghij", 10) == "abcdefghij"
    assert clipped("abcdefghijk", 10) == "abcd...ijk"


def test_figures() -> None:
    assert percent(0.1234) == "12.3 %"
    assert times(1.856) == "1.86x"
    assert times(None) == "-"


def test_a_long_path_is_not_cut() -> None:
    path = "/" + "a" * 120
    assert path in bullet(f"it cannot be read: {path}").split()
