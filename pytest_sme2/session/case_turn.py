"""One process at a time works on one case of a run: two would write into one folder.

Tests of a case are dealt to one worker, but not in every way of dealing them out: with
``--dist each`` every worker has all of them, and a scheduler of somebody else may do anything.
"""

from __future__ import annotations

import contextlib
import uuid
from pathlib import Path

from pytest_sme2.system.files import safe_name, write_text
from pytest_sme2.system.locks import locked
from pytest_sme2.system.terminal import Say

FOLDER = ".cases"


class CaseTurn:
    """The case that is this process's until it turns to another one, or ends."""

    def __init__(self) -> None:
        self._held = contextlib.ExitStack()
        self._case: str | None = None
        self._name = uuid.uuid4().hex

    def take(self, out: Path, case: str, say: Say) -> bool:
        """Wait for the case's turn; whether another process was at it since this one was."""
        if case == self._case:
            return False
        # Never one while waiting for another: two processes could wait for each other.
        self.leave()
        lock = out / FOLDER / f"{safe_name(case)}.lock"
        self._held.enter_context(locked(lock, f"working on {case} in {out}", say=say))
        self._case = case
        last = lock.with_suffix(".last")
        before = _text(last)
        if before != self._name:
            write_text(last, self._name)
        return before not in (None, self._name)

    def leave(self) -> None:
        self._case = None
        self._held.close()


def _text(path: Path) -> str | None:
    try:
        return path.read_text("utf-8")
    except (OSError, ValueError):
        return None
