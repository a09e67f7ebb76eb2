"""Halves a row of changes until the first bad one is found. Pure."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass


@dataclass(frozen=True)
class Border:
    """Two neighbours in a row of changes."""

    last_good: int
    first_bad: int

    @property
    def doubtful(self) -> int:
        """How many changes between the two could not be judged."""
        return self.first_bad - self.last_good - 1


def find_border(changes: int, is_bad: Callable[[int], bool | None]) -> Border:
    """The first bad change of a row whose first is good and whose last is bad.

    ``is_bad`` says None of a change that cannot be judged: then one beside it is tried. Where good
    and bad take turns, one of the borders is found.
    """
    good, bad = 0, changes - 1
    passed_over: set[int] = set()
    while True:
        left = [number for number in range(good + 1, bad) if number not in passed_over]
        if not left:
            return Border(good, bad)
        middle = (good + bad) / 2
        chosen = min(left, key=lambda number: abs(number - middle))
        answer = is_bad(chosen)
        if answer is None:
            passed_over.add(chosen)
        elif answer:
            bad = chosen
        else:
            good = chosen
