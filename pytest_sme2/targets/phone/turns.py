"""Processes that take turns on a phone: the script that runs them, and their results. Pure.

One adb command starts a program that starts both and gives the turns, so no turn waits for a round
trip. It uses pipes without names, because Android's shell may not make named ones.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, replace

from pytest_sme2.errors import TargetError
from pytest_sme2.targets.phone.adb import ShellResult
from pytest_sme2.targets.phone.script import Answer, PhoneRun, last_line, parse_answer

_END = re.compile(rb"^(\d+) (exit|signal) (\d+)\n", re.MULTILINE)


@dataclass(frozen=True)
class PhoneTurns:
    """Processes of one run, and the program that gives them their turns."""

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
        mark = f"{self._mark}\n".encode()
        said, *logs = done.stderr.split(mark)
        told, *documents = done.stdout.split(mark)
        given = parse_answer(serial, replace(done, stdout=told, stderr=said))
        ends = _parse_ends(given.log)
        if not ends or not len(logs) == len(documents) == len(self.processes):
            problem = last_line(given.log.decode(errors="replace"))
            raise TargetError(
                f"{serial} could not run two processes in turns: the program that gives the turns "
                f"ended with exit code {given.code} ({problem})."
            )
        # XNNPACK's own lines are of the whole phone, and so of both.
        shared = _END.sub(b"", given.log)
        return [
            Answer(ends[index], given.throttled, False, document, log + shared)
            if index in ends
            else None
            for index, (document, log) in enumerate(zip(documents, logs, strict=True))
        ]


def in_folder(folder: str, command: Sequence[str]) -> tuple[str, ...]:
    """The command, started in this folder."""
    return ("sh", "-c", 'cd "$0" && exec "$@"', folder, *command)


def _parse_ends(lines: bytes) -> dict[int, int]:
    """The exit codes as a shell has them, by number of process."""
    return {
        int(index): int(code) + (128 if kind == b"signal" else 0)
        for index, kind, code in _END.findall(lines)
    }
