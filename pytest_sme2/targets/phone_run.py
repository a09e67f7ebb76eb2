"""One process on a phone: the shell script that runs it, and what comes back. Pure."""

from __future__ import annotations

import math
import re
from collections.abc import Sequence
from dataclasses import dataclass

from pytest_sme2.errors import TargetError
from pytest_sme2.processes import Finished
from pytest_sme2.results import RunRequest
from pytest_sme2.runners import ProcessFiles, Runner
from pytest_sme2.targets.adb import ShellResult, quote
from pytest_sme2.targets.base import describe_failure
from pytest_sme2.targets.phone_power import parse_thermal_status
from pytest_sme2.targets.phone_storage import RUN_MARK

_RESULT_MARK = "==pytest-sme2-result=="
_TRACED_MARK = "==pytest-sme2-etdump=="
_LONGEST_LOG = 1 << 20
# The phone's own limit comes after ours: it is there for a cable that was pulled.
_GRACE_SECONDS = 30


@dataclass(frozen=True)
class PhoneRun:
    """A process that is to be started on a phone."""

    name: str
    """By which its processes are known there."""
    place: str
    """The folder for what it writes."""
    home: str
    """The runner's folder, which it starts in."""
    command: tuple[str, ...]
    files: ProcessFiles

    @property
    def keeps_files(self) -> bool:
        """Whether something must be fetched from ``place`` after the run."""
        return self.files.etdump is not None or self.files.outputs is not None

    @property
    def log(self) -> str:
        return f"{self.place}/log"

    def header(self) -> bytes:
        """What a log starts with: the command, in one line whatever is in it."""
        return f"$ {' '.join(map(repr, self.command))}\n".encode(errors="surrogateescape")

    def script(self, *, xnnpack_log: bool = False) -> str:
        """All of a run in one command, as every command costs a round trip."""
        lines = [f"mkdir -p {self.place} && cd {self.home} || exit 1"]
        if xnnpack_log:
            lines.append("start=$(date '+%m-%d %H:%M:%S.000')")
        lines += [
            f"{RUN_MARK}={self.name} {quote(self.command)} > {self.log} 2>&1 < /dev/null",
            'echo "code $?"',
            "dumpsys thermalservice 2>/dev/null | grep -m1 'Thermal Status'",
        ]
        if xnnpack_log:
            lines.append(f'logcat -d -v raw -T "$start" -s XNNPACK >> {self.log} 2>&1')
        if self.files.etdump is not None:
            lines.append(f"[ -f {quote([self.files.etdump])} ] && echo {_TRACED_MARK}")
        lines += [
            f"echo {_RESULT_MARK}",
            f"cat {self.files.result} 2>/dev/null",
            f"{self.tail()} >&2",
        ]
        if not self.keeps_files:
            lines.append(f"rm -rf {self.place}")
        return "\n".join([*lines, "exit 0"])

    def tail(self) -> str:
        """The command that shows the log."""
        return f"tail -c {_LONGEST_LOG} {self.log}"

    def __post_init__(self) -> None:
        # All of them are made by us; what would need quotes in the script did not come from here.
        for word in (self.name, self.place, self.home, self.files.result):
            if quote([word]) != word:
                raise ValueError(f"{word!r} is no place that a run on a phone has.")


@dataclass(frozen=True)
class Answer:
    """What a run's script gave back."""

    code: int
    thermal_status: int | None
    has_etdump: bool
    document: bytes
    """The runner's own result; empty where it wrote none."""
    log: bytes


def phone_command(
    command: Sequence[str], *, cores: Sequence[int] = (), timeout_seconds: float
) -> tuple[str, ...]:
    """A command with its cores and its last time limit on the phone."""
    if cores:
        # Hexadecimal without a prefix is what every Android's taskset takes.
        command = ["taskset", f"{sum(1 << core for core in cores):x}", *command]
    limit = math.ceil(timeout_seconds) + _GRACE_SECONDS
    return ("timeout", "-s", "KILL", str(limit), *command)


def parse_answer(serial: str, done: ShellResult) -> Answer:
    head, _, document = done.stdout.partition(f"{_RESULT_MARK}\n".encode())
    code = re.search(rb"^code (\d+)$", head, re.MULTILINE)
    if code is None:
        said = done.error_text[-300:] or "no message"
        raise TargetError(
            f"{serial} could not start the run: {said}. Is its storage full? "
            f"Try: sme2 clean --device android --serial {serial}"
        )
    return Answer(
        code=int(code[1]),
        thermal_status=parse_thermal_status(head.decode("utf-8", "replace")),
        has_etdump=_TRACED_MARK.encode() in head,
        document=document,
        log=done.stderr,
    )


def explain(runner: Runner, request: RunRequest, code: int, said: str) -> str:
    """One sentence about a process that did not end well, the phone's own ways included."""
    missing = re.search(
        r'loading shared libraries: (\S+?):|library "([^"]+)" (?:not found|needed)', said
    )
    if missing:
        return (
            f"it needs the library {missing[1] or missing[2]}, which the phone does not have. "
            "Put it beside the runner, or use the self-contained bundle."
        )
    if code == 126 or re.search(r"not executable|[Ee]xec format|syntax error", said):
        return f"it is not a program for this phone ({_last_line(said)})."
    if code == 127:
        return f"it or its loader was not found on the phone ({_last_line(said)})."
    # A shell tells of a signal by adding 128; Python by making it negative.
    returncode = 128 - code if code > 128 else code
    finished = Finished((), returncode, stdout="", stderr=said, timed_out=False)
    return describe_failure(finished, runner, request) or "it failed."


def _last_line(text: str) -> str:
    lines = text.strip().splitlines()
    return lines[-1][:300] if lines else "it said nothing"
