"""Processes of this machine that take turns: one runs while the others rest.

The noise of a shared machine comes in spells that are longer than a turn, so two programs that
alternate meet the same spells, and their ratio is steady where their times are not. What a turn
holds is the program's business; here a turn is one byte to it, and one back.
"""

from __future__ import annotations

import contextlib
import enum
import os
import select
import subprocess
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import IO

from pytest_sme2.system.processes import Finished, end_group, pinned, whitelisted_environment


class State(enum.Enum):
    """What a process was found at."""

    RESTING = enum.auto()
    ENDED = enum.auto()
    RUNNING = enum.auto()


@dataclass(frozen=True)
class Player:
    """One program to be started. Its arguments are told the number of its descriptor."""

    arguments: Callable[[int], Sequence[str]]
    folder: os.PathLike[str]
    output: IO[bytes]
    """Where its standard output goes."""


class _Started:
    """A player's process, which says on a pipe when it rests."""

    def __init__(self, player: Player, environment: Mapping[str, str], cpus: Sequence[int]) -> None:
        self.resting, descriptor = os.pipe()
        waiting, self.giving = os.pipe()
        self.errors = tempfile.TemporaryFile()  # noqa: SIM115 - closed by close()
        try:
            self.arguments = tuple(player.arguments(descriptor))
            with pinned(cpus):
                self.process = subprocess.Popen(
                    self.arguments,
                    stdin=waiting,
                    stdout=player.output,
                    stderr=self.errors,
                    env=dict(environment),
                    cwd=player.folder,
                    pass_fds=(descriptor,),
                    start_new_session=True,
                )
        except BaseException:
            self._let_go()
            raise
        finally:
            os.close(descriptor)
            os.close(waiting)

    def wait(self, deadline: float) -> State:
        """What it does next: rest, end, or neither before time is up."""
        seconds = max(0.0, deadline - time.monotonic())
        readable, _, _ = select.select([self.resting], [], [], seconds)
        if not readable:
            return State.RUNNING
        return State.RESTING if os.read(self.resting, 1) else State.ENDED

    def go(self) -> None:
        """Let it go on; one that is gone is found out when it is waited for."""
        with contextlib.suppress(BrokenPipeError):
            os.write(self.giving, b".")

    def finish(self, deadline: float) -> Finished:
        """How it ended; when time is up it is ended."""
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
    players: Sequence[Player],
    turns: int,
    *,
    timeout_seconds: float,
    environment: Mapping[str, str] | None = None,
    cpus: Sequence[int] = (),
) -> list[Finished | None]:
    """Run programs that take so many turns each, and say how each ended, in the order given.

    The next is started when the one before has warmed up, so that warm-ups do not overlap. Who goes
    first in a round alternates, so that a steady drift of the machine favours nobody. Where one
    ends too early or too late all are ended, and only that one has an answer. Raises OSError where
    one cannot be started.
    """
    deadline = time.monotonic() + timeout_seconds
    environment = whitelisted_environment() if environment is None else environment
    started: list[_Started] = []
    try:
        culprit = _play(players, turns, started, deadline, environment, cpus)
        answers = [one.finish(deadline) if culprit in (None, one) else None for one in started]
        return [*answers, *[None] * (len(players) - len(started))]
    finally:
        for one in started:
            one.close()


def _play(
    players: Sequence[Player],
    turns: int,
    started: list[_Started],
    deadline: float,
    environment: Mapping[str, str],
    cpus: Sequence[int],
) -> _Started | None:
    """Start all and give the turns; the one that did not do as it should, if any."""
    for player in players:
        started.append(_Started(player, environment, cpus))
        if started[-1].wait(deadline) is not State.RESTING:
            return started[-1]
    for turn in range(turns):
        expected = State.RESTING if turn + 1 < turns else State.ENDED
        for one in started if turn % 2 == 0 else reversed(started):
            one.go()
            if one.wait(deadline) is not expected:
                return one
    return None
