"""What every runner offers: argument vectors to start, and results read from its files."""

from __future__ import annotations

import abc
import functools
import hashlib
import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar, NamedTuple

from pytest_sme2.results.evidence import Toolchain
from pytest_sme2.results.run import PAIR, Arm, Run, RunRequest
from pytest_sme2.system.files import file_sha256


@dataclass(frozen=True)
class ProcessFiles:
    """The files of one process, under the names by which it is to find them.

    On this machine they are paths of ours; on a device they are the device's. The folder of the
    runner is the process's working directory, so all other names must be absolute.
    """

    model: str
    inputs: tuple[str, ...]
    result: str
    etdump: str | None
    """Given where ``Runner.traces`` says so."""
    outputs: str | None
    """A folder; given where the request keeps outputs."""
    turn_descriptor: int | None = None
    """Given where the request takes turns."""
    prompt: tuple[str, ...] = ()
    """Of a generation: the inputs of the prompt, where the request generates."""
    steps: tuple[str | int, ...] = ()
    """And those of its steps, or which output of the step before each of them is."""


LOADER = "ld-linux-aarch64.so.1"


def started(folder: Path, program: str) -> tuple[str, ...]:
    """The words that start a program of a folder from there."""
    # If its own C library is beside it, only the loader of that library may start it.
    loader = (f"./{LOADER}", "--library-path", ".") if (folder / LOADER).exists() else ()
    return (*loader, f"./{program}")


@dataclass(frozen=True)
class LeftFiles:
    """Where on this machine the files of a process go, and where it ran."""

    target: str
    emulated: bool
    result: Path
    log: Path
    etdump: Path | None
    outputs: Path | None


TURN_DESCRIPTOR = 3
"""The turn descriptor of a process that a ``turn_giver`` starts."""
_END = re.compile(rb"^([0-9]{1,4}) (exit|signal) ([0-9]{1,3})\n", re.MULTILINE)


class Player(NamedTuple):
    """One of the processes that take turns, by the names of the device."""

    log: str
    """Where its words go, behind what is there."""
    home: str
    """Where it starts: the folder of its runner."""
    command: Sequence[str]


def read_ends(said: bytes) -> tuple[dict[int, int], bytes]:
    """How each player ended that did so by itself, as Python has exit codes, and the other words of
    the giver. Where one fails, it alone is told.
    """
    ends = _END.findall(said)
    codes = {int(index): int(end) * (-1 if kind == b"signal" else 1) for index, kind, end in ends}
    return codes, _END.sub(b"", said)


@dataclass(frozen=True)
class Runner(abc.ABC):
    """Something that runs a program and can be asked to do it with SME2 on and off."""

    kind: str
    """``wheel`` or ``pair``."""
    platform: str
    executorch: str
    """The version of ExecuTorch it was built from."""
    folder: Path
    """All it needs; the working directory of its processes."""
    makes_marks: ClassVar[bool] = False
    """Whether it can mark an inference for an emulator that counts instructions."""
    takes_turns: ClassVar[bool] = False
    """Whether two of its processes can take turns, run by run, and one can give them."""
    generates: ClassVar[bool] = False
    """Whether one of its processes can run a whole generation."""

    @abc.abstractmethod
    def files(self, arm: Arm) -> tuple[Path, ...]:
        """What of the folder must be on the device for this arm."""

    @functools.cached_property
    def sha256(self) -> str:
        """Of all its files: two runners that share it run the same code."""
        paths = {path.name: path for arm in PAIR for path in self.files(arm)}
        lines = (f"{file_sha256(path)} {name}\n" for name, path in sorted(paths.items()))
        return hashlib.sha256("".join(lines).encode(errors="surrogateescape")).hexdigest()

    @property
    def toolchain(self) -> Toolchain:
        """What of it came with the compiler that built it; nothing where that is not known."""
        return Toolchain()

    def turn_giver(self, turns: int, players: Sequence[Player]) -> tuple[str, ...]:
        """The argument vector of a process that starts these and gives them their turns.

        One starts when the one before has warmed up, so that warm-ups do not overlap. Each finds
        its turn descriptor under the number ``TURN_DESCRIPTOR``. Only for runners that take turns.
        """
        raise NotImplementedError(f"a {self.kind} runner gives no turns")

    def traces(self, request: RunRequest) -> bool:
        """Whether a process for this request writes an ETDump."""
        return request.traced

    @abc.abstractmethod
    def command(self, request: RunRequest, files: ProcessFiles) -> tuple[str, ...]:
        """The argument vector, to be started in the runner's folder."""

    @abc.abstractmethod
    def explain(self, returncode: int, stderr: str) -> str | None:
        """What went wrong, in one line, where the runner itself said so."""

    @abc.abstractmethod
    def read_result(self, request: RunRequest, left: LeftFiles) -> Run:
        """The run, from what a process that ended well has left."""

    def run_with(self, request: RunRequest, left: LeftFiles, **measured: Any) -> Run:
        """A run with what is known of it before its files are read."""
        return Run(request, left.target, self.kind, left.emulated, log=left.log, **measured)
