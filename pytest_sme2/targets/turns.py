"""Processes of this machine that take turns: one runs while the others wait.

Noisy phases of a shared machine are longer than a turn. So two programs that alternate have the
same noise, and their ratio is stable even if their times are not. The program decides what it does
in a turn; here a turn is one byte to it, and one back.
"""

from __future__ import annotations

import contextlib
import os
import select
import subprocess
import tempfile
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import IO

from pytest_sme2.system.processes import Finished, end_group, pinned, whitelisted_environment


@dataclass(frozen=True)
class Participant:
    """One program to start. Its arguments contain the number of its descriptor."""

    arguments: Callable[[int], Sequence[str]]
    folder: os.PathLike[str]
    output: IO[bytes]
    """Where its standard output goes."""
    cpus: Sequence[int] = ()
    """The cores that it is kept on; empty means any."""


class _Started:
    """A participant's process, which writes to a pipe when it waits."""

    def __init__(self, participant: Participant) -> None:
        self.resting, descriptor = os.pipe()
        waiting, self.giving = os.pipe()
        self.errors = tempfile.TemporaryFile()  # noqa: SIM115 - closed by close()
        try:
            self.arguments = tuple(participant.arguments(descriptor))
            with pinned(participant.cpus):
                self.process = subprocess.Popen(
                    self.arguments,
                    stdin=waiting,
                    stdout=participant.output,
                    stderr=self.errors,
                    env=whitelisted_environment(),
                    cwd=participant.folder,
                    pass_fds=(descriptor,),
                    start_new_session=True,
                )
        except BaseException:
            self._let_go()
            raise
        finally:
            os.close(descriptor)
            os.close(waiting)

    def waits(self, deadline: float) -> bool | None:
        """Whether it waits next, or has ended; None if neither before the time is up."""
        seconds = max(0.0, deadline - time.monotonic())
        readable, _, _ = select.select([self.resting], [], [], seconds)
        return bool(os.read(self.resting, 1)) if readable else None

    def go(self) -> None:
        """Let it continue; a lost process is noticed when we wait for it."""
        with contextlib.suppress(BrokenPipeError):
            os.write(self.giving, b".")

    def finish(self, deadline: float) -> Finished:
        """How it ended; it is stopped when the time is up."""
        timed_out = False
        try:
            self.process.wait(max(0.0, deadline - time.monotonic()))
        except subprocess.TimeoutExpired:
            timed_out = True
            end_group(self.process.pid)
            self.process.wait()
        self.errors.seek(0)
        text = self.errors.read().decode(errors="replace")
        return Finished(self.arguments, self.process.returncode, "", text, timed_out)

    def close(self) -> None:
        """End it if it still runs."""
        end_group(self.process.pid)
        self.process.wait()
        self._let_go()

    def _let_go(self) -> None:
        os.close(self.resting)
        os.close(self.giving)
        self.errors.close()


def run_in_turns(
    participants: Sequence[Participant], turns: int, *, timeout_seconds: float
) -> list[Finished | None]:
    """Run programs that take turns, and say how each ended, in the given order.

    A program starts when the one before has warmed up, so that warm-ups do not overlap. The first
    program of a round alternates, so that a steady drift of the machine favours none. If one ends
    too early or too late, all are stopped, and only that one has an answer. Raises OSError if one
    cannot be started.
    """
    deadline = time.monotonic() + timeout_seconds
    started: list[_Started] = []
    try:
        culprit = _play(participants, turns, started, deadline)
        answers = [one.finish(deadline) if culprit in (None, one) else None for one in started]
        return [*answers, *[None] * (len(participants) - len(started))]
    finally:
        for one in started:
            one.close()


def _play(
    participants: Sequence[Participant], turns: int, started: list[_Started], deadline: float
) -> _Started | None:
    """Start all and give the turns; return the one that failed, if any."""
    for participant in participants:
        started.append(_Started(participant))
        if not started[-1].waits(deadline):
            return started[-1]
    for turn in range(turns):
        for one in started if turn % 2 == 0 else reversed(started):
            one.go()
            if one.waits(deadline) is not (turn + 1 < turns):
                return one
    return None
