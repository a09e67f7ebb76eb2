"""Starting programs: argument lists, a whitelisted environment, a time limit, no orphans.

What a program's answer means is the caller's business.
"""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import IO

from pytest_sme2.system.leash import tie, untie

# Enough for any program to find its tools and a place for temporary files, and nothing that
# changes how it runs (LD_PRELOAD, OMP_NUM_THREADS, …).
BASIC_ENVIRONMENT = ("PATH", "HOME", "TMPDIR", "LANG", "LC_ALL")
# For a program that only has to say its version. Far more than it needs: on a busy machine it may
# wait long for its turn, and a compiler that is there must not be reported missing.
ANSWER_SECONDS = 180.0


@dataclass(frozen=True)
class Finished:
    """How a program ended and what it said."""

    arguments: tuple[str, ...]
    returncode: int
    """Negative: the number of the signal that ended it."""
    stdout: str
    """Empty where it went to a file."""
    stderr: str
    timed_out: bool


def whitelisted_environment(
    names: Iterable[str] = (), prefixes: tuple[str, ...] = ()
) -> dict[str, str]:
    """The variables of ours that a child may see: the basic ones and those named."""
    wanted = {*BASIC_ENVIRONMENT, *names}
    return {
        name: value
        for name, value in os.environ.items()
        if name in wanted or (prefixes and name.startswith(prefixes))
    }


def run_process(
    arguments: Sequence[str],
    *,
    timeout_seconds: float,
    environment: Mapping[str, str] | None = None,
    folder: Path | None = None,
    stdout: IO[bytes] | None = None,
    cpus: Sequence[int] = (),
) -> Finished:
    """Run a program to its end, or until the time is up; its whole process group ends with it.

    Raises OSError where the program cannot be started at all. ``cpus`` pins it to these cores
    (Linux).
    """
    with pinned(cpus):
        process = subprocess.Popen(
            list(arguments),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE if stdout is None else stdout,
            stderr=subprocess.PIPE,
            env=dict(whitelisted_environment() if environment is None else environment),
            cwd=folder,
            start_new_session=True,
        )
    timed_out = False
    tie(process.pid)
    try:
        # communicate() wakes as soon as the pipes close; wait(timeout) would poll.
        try:
            out, err = process.communicate(timeout=timeout_seconds)
        except subprocess.TimeoutExpired:
            timed_out = True
            end_group(process.pid)
            out, err = process.communicate()
    except BaseException:
        # Ctrl-C among others: a session of its own does not get the terminal's signals.
        end_group(process.pid)
        process.communicate()
        raise
    finally:
        untie(process.pid)
    return Finished(
        arguments=tuple(arguments),
        returncode=process.returncode,
        stdout=(out or b"").decode(errors="replace"),
        stderr=err.decode(errors="replace"),
        timed_out=timed_out,
    )


@contextlib.contextmanager
def pinned(cpus: Sequence[int]) -> Iterator[None]:
    """Pin this thread for a moment: a child inherits it from its first instruction on."""
    if not cpus:
        yield
        return
    before = os.sched_getaffinity(0)
    os.sched_setaffinity(0, cpus)
    try:
        yield
    finally:
        os.sched_setaffinity(0, before)


def end_group(leader: int) -> None:
    """End a process group, if it is still there."""
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.killpg(leader, signal.SIGKILL)
