"""What a trial is, and how trials are counted. What is tried stands in the modules beside this."""

from __future__ import annotations

import tempfile
import time
import traceback
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path
from random import Random


class NotCleanError(Exception):
    """A trial did not end as it should; the text says in what way."""


class NotPossibleError(Exception):
    """This machine cannot stage the fault; the text says what it lacks."""


@dataclass(frozen=True)
class Subject:
    """One kind of trial: what it is called, how often it is done, and what one of them does."""

    name: str
    what: str
    full: int
    """How many trials a full run has."""
    quick: int
    """0 where one takes so long that a quick run goes without."""
    attempt: Callable[[Random, Path], None]
    """Raises NotCleanError; anything else that it raises is not a clean ending either."""


@dataclass
class Row:
    """The count of one subject."""

    name: str
    what: str
    trials: int = 0
    clean: int = 0
    seconds: float = 0.0
    not_possible: str = ""

    def document(self) -> dict[str, object]:
        counted: dict[str, object] = {
            "name": self.name,
            "what": self.what,
            "trials": self.trials,
            "clean": self.clean,
            "seconds": round(self.seconds, 1),
        }
        if self.not_possible:
            counted["not_possible"] = self.not_possible
        return counted


def expect(condition: object, problem: str) -> None:
    """Raise NotCleanError with ``problem`` unless the condition holds."""
    if not condition:
        raise NotCleanError(problem)


def chance_of(seed: int, name: str, number: int) -> Random:
    """The dice of one trial: the same for the same three, whatever ran before."""
    return Random(f"{seed}/{name}/{number}")


def count(subject: Subject, numbers: Iterable[int], seed: int, say: Callable[[str], None]) -> Row:
    """Do the trials with these numbers; what was not clean is said at once, with how to repeat."""
    row = Row(subject.name, subject.what)
    started = time.monotonic()
    for number in numbers:
        row.trials += 1
        with tempfile.TemporaryDirectory(prefix="hostile-", ignore_cleanup_errors=True) as folder:
            try:
                subject.attempt(chance_of(seed, subject.name, number), Path(folder).resolve())
            except NotPossibleError as reason:
                row.trials -= 1
                row.not_possible = str(reason)
                break
            except Exception as error:
                problem = str(error)
                if not isinstance(error, NotCleanError):
                    problem = traceback.format_exc(limit=-6).rstrip()
                say(
                    f"NOT CLEAN: {problem}\n  again: python -m benchmarks.hostile "
                    f"--only {subject.name} --seed {seed} --trial {number}"
                )
            else:
                row.clean += 1
    row.seconds = time.monotonic() - started
    return row
