"""What a target is, and how a runner's process is run on this machine.

A runner knows its flags; a target knows how to reach its device.

Noisy phases of a shared machine are longer than a turn. So two programs that alternate have the
same noise, and their ratio is stable even if their times are not.
"""

from __future__ import annotations

import errno
import os
import shutil
import signal
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import NamedTuple, Protocol, runtime_checkable

from pytest_sme2.errors import RunError, Sme2Error, TargetError
from pytest_sme2.results.run import Arm, Capabilities, Fingerprint, Run, RunRequest
from pytest_sme2.runners.base import (
    TURN_DESCRIPTOR,
    LeftFiles,
    Player,
    ProcessFiles,
    Runner,
    read_ends,
)
from pytest_sme2.system.files import new_file, unwritable
from pytest_sme2.system.processes import Finished, run_process, whitelisted_environment
from pytest_sme2.targets.phone.answers import Core

RESULT_NAME = "runner.json"
LOG_NAME = "runner.log"
ETDUMP_NAME = "run.etdump"
OUTPUTS_NAME = "outputs"

_TAIL_BYTES = 4096
_NAME_LENGTH = 256
_FULL = os.strerror(errno.ENOSPC)

_SIGNALS: Mapping[int, str] = {
    signal.SIGSEGV: "it crashed on an invalid memory access (SIGSEGV)",
    signal.SIGBUS: "it crashed on an invalid memory access (SIGBUS)",
    signal.SIGABRT: "it aborted (SIGABRT)",
    signal.SIGKILL: "it was killed (SIGKILL), probably because memory ran out",
    signal.SIGILL: "it used an instruction that this CPU does not have (SIGILL)",
    signal.SIGFPE: "it crashed with an arithmetic error (SIGFPE)",
    signal.SIGTERM: "it was terminated (SIGTERM)",
}


class Thermal(NamedTuple):
    """What heat does to a device now; None where it does not tell."""

    celsius: float | None = None
    cap_ghz: float | None = None
    """The highest clock that it allows."""
    critical: bool = False
    """Whether it must be left alone at once."""


class Target(Protocol):
    """Something that can run programs. One that derives from it needs no preparation, and tells
    nothing of its cores, its heat and its state.
    """

    pauses: bool = True
    """Whether it waits for heat to pass before it runs something; not under a sustained load."""

    @property
    def name(self) -> str: ...

    @property
    def platform(self) -> str:
        """Which runners it can run."""
        ...

    def capabilities(self) -> Capabilities:
        """What it can measure."""
        ...

    def prepare(self) -> None:
        """Prepare it for measuring; ``restore`` undoes that."""
        return

    def run(self, runner: Runner, request: RunRequest, folder: Path) -> Run:
        """One process of the runner. Its files go into ``folder``, which belongs to this run.

        Raises RunError if the process fails; the log stays in ``folder``.
        """
        ...

    def restore(self) -> None:
        """Restore its settings; may be called at any time, more than once."""
        return

    def fingerprint(self) -> Fingerprint:
        """Everything about it that changes times."""
        ...

    def conditions(self) -> Mapping[str, str]:
        """What may change its speed from day to day: clock, governor, temperature, system."""
        return {}

    @property
    def cores(self) -> Sequence[Core]:
        """Those that a process may run on; empty where it does not tell."""
        return ()

    def pinned(self, threads: int, *, mixed: bool = False) -> tuple[int, ...]:
        """The fastest ones for so many threads, of one kind unless they may be ``mixed``; none
        means that the system chooses.
        """
        return ()

    def cool_down(self) -> None:
        """Wait until heat does not slow it down."""
        return

    def thermal(self) -> Thermal:
        return Thermal()

    @property
    def waited_seconds(self) -> float:
        """How long it has waited for heat to pass so far: no measurement's time budget pays."""
        return 0.0

    def state(self) -> Mapping[str, str]:
        """Heat, battery, screen: for the run's manifest."""
        return {}


def check_request(target: Target, job: Job, platform: str | None = None) -> None:
    """Refuse a runner of another platform, and SME2 on without SME2."""
    platform = platform or target.platform
    if job.runner.platform != platform:
        raise TargetError(
            f"The runner is for {job.runner.platform}, but the target {target.name!r} is "
            f"{platform}. Use a runner for {platform}."
        )
    capabilities = target.capabilities()
    if job.request.arm is not Arm.OFF and not capabilities.switches:
        raise TargetError(
            f"The target {target.name!r} cannot run with SME2 on: {capabilities.reason} "
            "Run the off arm only, or choose another device."
        )


@dataclass(frozen=True)
class Job:
    """One process to run: its runner, its request, and the folder for its files."""

    runner: Runner
    request: RunRequest
    folder: Path

    def files(
        self, read: Callable[[Path], str], written: Callable[[str], str], turn: int | None
    ) -> ProcessFiles:
        """The files of the process, by what those that it reads and writes are called there."""
        request, artifact = self.request, self.request.artifact
        prompt, steps = artifact.generation_files if request.generate else ((), ())
        return ProcessFiles(
            model=read(artifact.pte),
            inputs=tuple(map(read, artifact.input_files)),
            result=written(RESULT_NAME),
            etdump=written(ETDUMP_NAME) if self.runner.traces(request) else None,
            outputs=written(OUTPUTS_NAME) if request.keep_outputs else None,
            turn_descriptor=turn,
            prompt=tuple(map(read, prompt)),
            steps=tuple(step if isinstance(step, int) else read(step) for step in steps),
        )


@runtime_checkable
class TakesTurns(Protocol):
    """A target where processes can take turns, run by run."""

    def run_in_turns(self, jobs: Sequence[Job]) -> list[Run]: ...


def on_cores(command: Sequence[str], cores: Sequence[int]) -> tuple[str, ...]:
    """The command on these cores, or on any if there are none."""
    # Every Android's taskset accepts hexadecimal without a prefix.
    mask = ("taskset", f"{sum(1 << core for core in cores):x}") if cores else ()
    return (*mask, *command)


def command_here(job: Job, turn_descriptor: int | None = None) -> tuple[str, ...]:
    def named(path: Path) -> str:
        return _pad_path(path.absolute()) if job.request.counted else str(path.absolute())

    files = job.files(named, lambda name: named(job.folder / name), turn_descriptor)
    return job.runner.command(job.request, files)


def _pad_path(path: Path) -> str:
    """The same file under a name whose length does not depend on where it lies.

    Arguments lie on the stack and names on the heap, so their lengths move what comes after them,
    and a copy of bytes that are aligned otherwise takes another number of instructions.
    """
    text = str(path)
    return "/" * (-len(text) % _NAME_LENGTH) + text


def make_place(job: Job, target: str, *, emulated: bool) -> LeftFiles:
    """The job's folder, without files of an earlier run, which could be taken for new ones."""
    folder = job.folder.absolute()
    outputs = folder / OUTPUTS_NAME
    try:
        folder.mkdir(parents=True, exist_ok=True)
        # A link in a run directory that came from somewhere else would lead our files out of it.
        if folder.is_symlink():
            raise OSError(errno.ELOOP, "it is a link, not a folder")
        for stale in (folder / RESULT_NAME, folder / ETDUMP_NAME):
            stale.unlink(missing_ok=True)
        if outputs.is_symlink():
            outputs.unlink()
        elif outputs.exists():
            shutil.rmtree(outputs)
    except OSError as error:
        raise unwritable(folder, error) from error
    return LeftFiles(
        target,
        emulated,
        result=folder / RESULT_NAME,
        log=folder / LOG_NAME,
        etdump=folder / ETDUMP_NAME if job.runner.traces(job.request) else None,
        outputs=outputs if job.request.keep_outputs else None,
    )


def run_here(
    target: str,
    job: Job,
    *,
    emulated: bool,
    launcher: Sequence[str] = (),
    environment: Mapping[str, str] | None = None,
) -> Run:
    """Run one process of the runner on this machine, behind ``launcher`` if there is one."""
    place = make_place(job, target, emulated=emulated)
    finished = run_logged(
        [*launcher, *command_here(job)],
        place.log,
        folder=job.runner.folder,
        timeout_seconds=job.request.timeout_seconds,
        environment=environment,
        cpus=job.request.cpus,
    )
    return _read_run(job, place, finished)


def _read_run(job: Job, place: LeftFiles, finished: Finished) -> Run:
    """The results of a finished process; RunError if it failed."""
    problem = describe_failure(finished, job.runner, job.request)
    if problem is not None:
        raise run_failed(place.target, job, place, problem)
    return job.runner.read_result(job.request, place)


def run_failed(where: str, job: Job, place: LeftFiles, problem: str) -> RunError:
    artifact, arm = job.request.artifact, job.request.arm
    return RunError(
        f"{artifact.model} ({artifact.variant}) failed on {where} with SME2 {arm}: {problem} "
        f"Its log is {place.log}"
    )


def count_turns(jobs: Sequence[Job]) -> int:
    """How many turns each process takes; they must take equal ones."""
    request = jobs[0].request
    if request.turn is None or any(job.request.turn != request.turn for job in jobs):
        raise ValueError("processes that take turns must take equal ones")
    if not request.generate:
        return -(-request.runs // request.turn.runs)
    return request.runs * -(-request.steps // request.turn.runs)


def run_here_in_turns(target: str, jobs: Sequence[Job], *, cpus: Sequence[int] = ()) -> list[Run]:
    """One process per job on this machine, on these cores or those of its request; a program of the
    first runner gives them their turns.
    """
    turns, runner, places = count_turns(jobs), jobs[0].runner, []
    cores = [tuple(cpus or job.request.cpus) for job in jobs]
    alike = len({*cores}) == 1
    try:
        players = []
        for job, own in zip(jobs, cores, strict=True):
            places.append(make_place(job, target, emulated=False))
            command = command_here(job, TURN_DESCRIPTOR)
            with new_file(places[-1].log) as log:
                log.write(one_line(command))
            placed = command if alike else on_cores(command, own)
            players.append(Player(str(places[-1].log), str(job.runner.folder), placed))
        given = run_process(
            runner.turn_giver(turns, players),
            timeout_seconds=jobs[0].request.timeout_seconds,
            folder=runner.folder,
            cpus=cores[0] if alike else (),
        )
        ends, _ = read_ends(given.stdout.encode())
        if given.timed_out:
            ends = dict.fromkeys(range(len(jobs)), 0)
        answers = {
            number: _left_in(places[number].log, code, given) for number, code in ends.items()
        }
    except OSError as error:
        raise _not_started(error, *(place.log for place in places)) from error
    # Where some have no answer, reading the one that has raises why; so does reading the giver's.
    return [
        _read_run(jobs[number], places[number], answer)
        for number, answer in (answers or {0: given}).items()
    ]


def _left_in(log: Path, code: int, given: Finished) -> Finished:
    """How a process that took turns ended: the log has its words, and gets its end."""
    said = log.read_text("utf-8", "replace").partition("\n")[2]
    finished = replace(given, returncode=code, stdout="", stderr=said)
    with log.open("ab") as file:
        file.write(_ending(finished))
    return finished


def run_logged(
    arguments: Sequence[str],
    log: Path,
    *,
    folder: Path,
    timeout_seconds: float,
    environment: Mapping[str, str] | None = None,
    cpus: Sequence[int] = (),
) -> Finished:
    """Run a program; ``log`` gets its command, output and end in any case.

    The answer has only the end of its standard output; the log has all of it.
    """
    try:
        with new_file(log) as file:
            file.write(one_line(arguments))
            file.flush()
            start = file.tell()
            finished = run_process(
                arguments,
                timeout_seconds=timeout_seconds,
                environment={**whitelisted_environment(), **(environment or {})},
                folder=folder,
                stdout=file,
                cpus=cpus,
            )
            # The child wrote to the same file.
            end = file.seek(0, os.SEEK_END)
            file.seek(max(start, end - _TAIL_BYTES))
            finished = replace(finished, stdout=file.read().decode(errors="replace"))
            file.write(finished.stderr.encode(errors="replace") + _ending(finished))
    except OSError as error:
        raise _not_started(error, log) from error
    return finished


def _not_started(error: OSError, *logs: Path) -> Sme2Error:
    """The error for a program that cannot be started, or a log that cannot be written."""
    named = None if error.filename is None else Path(os.fsdecode(error.filename))
    if named is not None and named not in logs:
        return RunError(f"The runner could not be started: {error}. Its log is {logs[0]}")
    return unwritable(named or logs[0], error)


def _ending(finished: Finished) -> bytes:
    ending = "time limit" if finished.timed_out else f"exit {finished.returncode}"
    return f"[{ending}]\n".encode()


def one_line(arguments: Sequence[str]) -> bytes:
    """The first line of a log: the command, always on one line."""
    return f"$ {' '.join(map(repr, arguments))}\n".encode(errors="surrogateescape")


def describe_failure(finished: Finished, runner: Runner, request: RunRequest) -> str | None:
    """One sentence about a failed process; None for a successful one."""
    if finished.timed_out:
        return (
            f"it did not finish within {request.timeout_seconds:g} s and was stopped; "
            "allow more time if the model is that slow."
        )
    if finished.returncode == 0:
        return None
    code = finished.returncode
    told = runner.explain(code, finished.stderr)
    if told is not None:
        remedy = " Free space there, or choose another folder." if _FULL in told else ""
        return f"{told}.{remedy}"
    # Most programs use stderr; QEMU prints to stdout if it cannot load a program.
    lines = [*finished.stdout.splitlines(), *finished.stderr.splitlines()]
    last = next((line for line in reversed(lines) if line.strip()), "")
    text = f"it ended with exit code {code}"
    if code < 0:
        text = _SIGNALS.get(-code, f"signal {-code} ended it")
    return f"{text}; its last message: {last}" if last else f"{text}."
