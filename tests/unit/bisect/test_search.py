"""Halving a row of changes."""

from __future__ import annotations

import math

import pytest

from pytest_sme2.bisect.row import Border, find_border


@pytest.mark.parametrize("changes", [2, 3, 10, 64, 65])
def test_every_step_is_found_in_few_looks(changes: int) -> None:
    for step in range(1, changes):
        asked: list[int] = []

        def is_bad(number: int, step: int = step, asked: list[int] = asked) -> bool:
            asked.append(number)
            return number >= step

        assert find_border(changes, is_bad) == Border(step - 1, step)
        assert len(asked) <= math.ceil(math.log2(changes - 1)) if changes > 2 else not asked
        assert len(set(asked)) == len(asked)


def test_what_cannot_be_judged_is_passed_over() -> None:
    broken = {4, 5, 6}
    found = find_border(11, lambda number: None if number in broken else number >= 8)
    assert (found, found.doubtful) == (Border(7, 8), 0)


def test_where_the_border_is_among_them_it_is_said_so() -> None:
    broken = {4, 5, 6}
    found = find_border(11, lambda number: None if number in broken else number >= 5)
    assert (found, found.doubtful) == (Border(3, 7), 3)


def test_neighbours_need_no_look() -> None:
    def never(number: int) -> bool:
        raise AssertionError(number)

    assert find_border(2, never) == Border(0, 1)
