"""What a row of changes must offer, whether they are commits or versions of a package."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import AbstractContextManager
from typing import Protocol

from pytest_sme2.bisect.search import Border
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
