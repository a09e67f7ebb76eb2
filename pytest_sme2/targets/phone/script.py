"""One process on a phone, or two in turns: the shell script, and why it failed. Pure."""

from __future__ import annotations

import math
import re
from collections.abc import Sequence
from dataclasses import dataclass

from pytest_sme2.results import RunRequest
from pytest_sme2.runners.base import ProcessFiles, Runner
from pytest_sme2.system.processes import Finished
from pytest_sme2.targets.base import describe_failure
from pytest_sme2.targets.phone.adb import quote
from pytest_sme2.targets.phone.answers import (
    RESULT_MARK,
    TRACED_MARK,
    Answer,
    ShellResult,
    last_line,
    parse_turns,
)
from pytest_sme2.targets.phone.storage import RUN_MARK

_LONGEST_LOG = 1 << 20
# A hundredth of a second each, and the time that a process takes to start.
_MOST_WAITS = 500
# How often to read the thermal status during a run; each time costs the phone about 20 ms.
_WATCH_SECONDS = 5
_THERMAL_STATUS = "dumpsys thermalservice 2>/dev/null | grep -m1 'Thermal Status'"
# The phone's own limit comes after ours; it is for a pulled cable.
_GRACE_SECONDS = 30


@dataclass(frozen=True)
class PhoneRun:
    """A process that is to be started on a phone."""

    name: str
    """The mark of its processes on the phone."""
    place: str
    """The folder for its output."""
    home: str
    """The runner's folder, where it starts."""
    command: tuple[str, ...]
    files: ProcessFiles
    longest_seconds: float
    """The phone's own time limit for it."""

    @property
    def keeps_files(self) -> bool:
        """Whether files must be copied from ``place`` after the run."""
        return self.files.etdump is not None or self.files.outputs is not None

    @property
    def log(self) -> str:
        return f"{self.place}/log"

    @property
    def heat(self) -> str:
        """The file for the thermal status during the run."""
        return f"{self.place}/heat"

    def header(self) -> bytes:
        """The first line of a log: the command, always on one line."""
        return f"$ {' '.join(map(repr, self.command))}\n".encode(errors="surrogateescape")

    def script(self, *, xnnpack_log: bool = False) -> str:
        """A whole run as one command, because every command costs a round trip."""
        lines = self.started(xnnpack_log=xnnpack_log)
        if self.files.etdump is not None:
            lines.append(f"[ -f {quote([self.files.etdump])} ] && echo {TRACED_MARK}")
        lines += [
            f"echo {RESULT_MARK}",
            f"cat {self.files.result} 2>/dev/null",
            f"{self.tail()} >&2",
        ]
        if not self.keeps_files:
            lines.append(f"rm -rf {self.place}")
        return "\n".join([*lines, "exit 0"])

    def started(self, *, xnnpack_log: bool = False) -> list[str]:
        """The lines that run it, and tell how it ended and how hot the phone was."""
        lines = [f"mkdir -p {self.place} && cd {self.home} || exit 1"]
        if xnnpack_log:
            lines.append("start=$(date '+%m-%d %H:%M:%S.000')")
        lines += [
            f"{RUN_MARK}={self.name} {quote(self.command)} > {self.log} 2>&1 < /dev/null &",
            "process=$!",
            *self._watch(),
            "wait $process",
            'echo "code $?"',
            # A short run may end before the watcher makes its file; keep that out of the log.
            f"{{ {self._stopped_watch()}; cat {self.heat}; }} 2>/dev/null",
            _THERMAL_STATUS,
        ]
        if xnnpack_log:
            lines.append(f'logcat -d -v raw -T "$start" -s XNNPACK >> {self.log} 2>&1')
        return lines

    def _watch(self) -> list[str]:
        """Read the thermal status now and then while the process runs, and end one that hangs.

        toybox's ``timeout`` cannot do that: up to version 0.8.9 it tells the code 127 of a process
        that ends at once. The watcher ends with the run, or by itself if the shell that started it
        is gone. It is a separate shell, because a mark is only visible in the environment that a
        program starts with. Its sleep is in the background, because only a ``wait`` can be
        interrupted.
        """
        looks = math.ceil(self.longest_seconds / _WATCH_SECONDS)
        watcher = (
            "trap 'kill -9 $! && wait $!; exit' TERM; echo; looks=0; "
            f"while [ $looks -lt {looks} ] && kill -0 $0; do looks=$((looks + 1)); "
            f"sleep {_WATCH_SECONDS} & wait $!; {_THERMAL_STATUS}; done; kill -9 $0"
        )
        started = f"{RUN_MARK}={self.name} {quote(['sh', '-c', watcher])} $process"
        return [f"{started} > {self.heat} 2>/dev/null < /dev/null &", "watcher=$!"]

    def _stopped_watch(self) -> str:
        """End the watcher, once it has said that it listens.

        mksh, which is Android's shell, catches a signal between fork and exec, and loses it: a run
        that ends at once would then wait for its watcher until the time is up.
        """
        return (
            f"waits=0; until [ -s {self.heat} ] || [ $waits -ge {_MOST_WAITS} ]; "
            "do waits=$((waits + 1)); sleep 0.01; done; "
            f"[ -s {self.heat} ] || kill -9 $watcher; kill $watcher; wait $watcher"
        )

    def tail(self) -> str:
        """The command that shows the log."""
        return f"tail -c {_LONGEST_LOG} {self.log}"

    def __post_init__(self) -> None:
        # We make all of these names; one that needs quotes is not ours.
        for word in (self.name, self.place, self.home, self.files.result):
            if quote([word]) != word:
                raise ValueError(f"{word!r} is not a file name of a run on a phone.")


@dataclass(frozen=True)
class PhoneTurns:
    """Processes that take turns, and the program that gives them.

    One adb command starts the program that starts both, so no turn waits for a round trip. It uses
    pipes without names, because Android's shell may not make named ones.
    """

    giver: PhoneRun
    processes: tuple[PhoneRun, ...]

    @property
    def _mark(self) -> str:
        """Between the parts of an answer. Nobody else knows it, so no output can contain it."""
        return f"=={self.giver.name}=="

    def script(self, *, xnnpack_log: bool = False) -> str:
        """A whole run as one command."""
        places = " ".join(process.place for process in self.processes)
        after = [f"{self.giver.tail()} >&2"]
        for process in self.processes:
            after += [f"echo {self._mark}", f"cat {process.files.result} 2>/dev/null"]
            after += [f"echo {self._mark} >&2", f"{process.tail()} >&2"]
        if not any(process.keeps_files for process in self.processes):
            after.append(f"rm -rf {self.giver.place}")
        return "\n".join(
            [
                f"mkdir -p {places} || exit 1",
                *self.giver.started(xnnpack_log=xnnpack_log),
                *after,
                "exit 0",
            ]
        )

    def parse(self, serial: str, done: ShellResult) -> list[Answer | None]:
        """What each process left; None for those that were stopped because another one failed.

        Raises TargetError if nothing could be started.
        """
        return parse_turns(serial, done, mark=self._mark, count=len(self.processes))


def in_folder(folder: str, command: Sequence[str]) -> tuple[str, ...]:
    """The command, started in this folder."""
    return ("sh", "-c", 'cd "$0" && exec "$@"', folder, *command)


def on_cores(command: Sequence[str], cores: Sequence[int]) -> tuple[str, ...]:
    """The command on these cores of the phone, or on any if there are none."""
    # Every Android's taskset accepts hexadecimal without a prefix.
    mask = ("taskset", f"{sum(1 << core for core in cores):x}") if cores else ()
    return (*mask, *command)


def phone_limit(timeout_seconds: float) -> int:
    """The phone's own time limit, in whole seconds."""
    return math.ceil(timeout_seconds) + _GRACE_SECONDS


def explain(runner: Runner, request: RunRequest, code: int, said: str) -> str:
    """One sentence about a process that failed, including failures that only phones have."""
    missing = re.search(
        r'loading shared libraries: (\S+?):|library "([^"]+)" (?:not found|needed)', said
    )
    if missing:
        return (
            f"it needs the library {missing[1] or missing[2]}, which the phone does not have. "
            "Put it beside the runner, or use the self-contained bundle."
        )
    if re.search(r"smaller than system page size|alignment not page-aligned", said):
        return (
            f"it is aligned for smaller pages than this phone has ({last_line(said)}). Build it "
            "with `sme2 build --platform android`, or use the self-contained bundle."
        )
    if code == 126 or re.search(r"not executable|[Ee]xec format|syntax error", said):
        return f"it is not a program for this phone ({last_line(said)})."
    if code == 127:
        return f"it or its loader was not found on the phone ({last_line(said)})."
    # A shell reports a signal by adding 128, Python by a negative number.
    returncode = 128 - code if code > 128 else code
    finished = Finished((), returncode, stdout="", stderr=said, timed_out=False)
    return describe_failure(finished, runner, request) or "it failed."
