"""A row of changes, commits or versions of a package, and how it is halved. Pure."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import Protocol

from pytest_sme2.session.settings import Settings


class Candidate(Protocol):
    """One step of a row."""

    @property
    def key(self) -> str:
        """The name of its folder in the run directory."""
        ...

    @property
    def short(self) -> str:
        """Its name for people."""
        ...

    @property
    def subject(self) -> str:
        """What it says of itself; may be empty."""
        ...


class Row(Protocol):
    """Changes in order, the good one first, the bad one last."""

    @property
    def noun(self) -> str:
        """What one of them is called."""
        ...

    @property
    def backwards(self) -> bool:
        """Whether it goes back in time: then a search finds what made the case better."""
        ...

    @property
    def changes(self) -> Sequence[Candidate]: ...

    def shown(self, number: int) -> AbstractContextManager[Settings]:
        """Within it, the model is as this change has it."""
        ...

    def commands(self, border: Border, run: str) -> Sequence[str]:
        """For a shell, with what they show; ``run`` is the command that runs the case."""
        ...


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
