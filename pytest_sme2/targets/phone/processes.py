"""Runs processes of runners on a phone, alone or in turns, and brings back what they left.

What the phone is, ``target.py`` knows.
"""

from __future__ import annotations

import contextlib
import math
import re
import secrets
import uuid
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from pytest_sme2.errors import ConnectionLostError, DeviceTimeoutError, RunError, TargetError
from pytest_sme2.results import Run, RunRequest
from pytest_sme2.runners.base import TURN_DESCRIPTOR, ProcessFiles, Runner
from pytest_sme2.system.processes import Finished
from pytest_sme2.targets.base import (
    ETDUMP_NAME,
    LOG_NAME,
    OUTPUTS_NAME,
    RESULT_NAME,
    Job,
    count_turns,
    describe_failure,
)
from pytest_sme2.targets.phone.adb import AdbDevice, quote
from pytest_sme2.targets.phone.answers import (
    RESULT_MARK,
    TRACED_MARK,
    Answer,
    ShellResult,
    last_line,
    parse_answer,
    parse_names,
    parse_turns,
)
from pytest_sme2.targets.phone.silicon import READ_CAPS, Core, clock_change
from pytest_sme2.targets.phone.storage import RUN_MARK, RUNS, PhoneStorage

_LONGEST_LOG = 1 << 20
# A hundredth of a second each, and the time that a process takes to start.
_MOST_WAITS = 500
# How often to read the thermal status during a run; each time costs the phone about 20 ms.
_WATCH_SECONDS = 5
# One that hangs is not waited for: dumpsys itself would wait for ten seconds.
_THERMAL_STATUS = "dumpsys -t 2 thermalservice 2>/dev/null | grep -m1 'Thermal Status'"
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
        """The lines that run it, and tell how it ended, how hot the phone was, and its caps."""
        lines = [f"mkdir -p {self.place} && cd {self.home} || exit 1"]
        if xnnpack_log:
            lines.append("start=$(date '+%m-%d %H:%M:%S.000')")
        lines += [
            READ_CAPS,
            f"{RUN_MARK}={self.name} {quote(self.command)} > {self.log} 2>&1 < /dev/null &",
            "process=$!",
            *self._watch(),
            "wait $process",
            'echo "code $?"',
            # A short run may end before the watcher makes its file; keep that out of the log.
            f"{{ {self._stopped_watch()}; cat {self.heat}; }} 2>/dev/null",
            _THERMAL_STATUS,
            READ_CAPS,
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
            f"sleep {_WATCH_SECONDS} & wait $!; {_THERMAL_STATUS}; {READ_CAPS}; done; kill -9 $0"
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
        """Between the parts of an answer. The name is random, so no output contains it."""
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


# --- running them ---------------------------------------------------------------------------------


@dataclass(frozen=True)
class PhoneProcesses:
    """What it takes to run something on one phone."""

    device: AdbDevice
    storage: PhoneStorage
    target: str
    """The target's name, for results."""
    emulated: bool
    launcher: tuple[str, ...]
    """What comes before a program: a fake phone's emulator, else nothing."""
    cores: Callable[[int], Sequence[int]]
    """The cores for a process with so many threads."""
    xnnpack_log: bool
    known: Sequence[Core] = ()
    """The phone's cores with their caps, as they were at the start."""

    def run(self, job: Job) -> Run:
        """One process; its files end up in the job's folder."""
        _empty(job.folder)
        name = uuid.uuid4().hex
        process = self._plan(job, name, f"{RUNS}/{name}")
        process = replace(process, command=self._placed(job, process.command))
        done = self._shell(process, {process: job})
        with self._removed(process.place if process.keeps_files else None):
            return self._collect(job, process, parse_answer(self.device.serial, done))

    def run_in_turns(self, jobs: Sequence[Job]) -> list[Run]:
        """One process per job; a program of the first runner gives them their turns."""
        turns = count_turns(jobs)
        for job in jobs:
            _empty(job.folder)
        name = uuid.uuid4().hex
        place = f"{RUNS}/{name}"
        processes = [
            self._plan(job, name, f"{place}/{index}", turn_descriptor=TURN_DESCRIPTOR)
            for index, job in enumerate(jobs)
        ]
        # Processes with as many threads share their cores; else each is put on its own.
        shared = len({(job.request.threads, job.request.cpus) for job in jobs}) == 1
        commands = [
            process.command if shared else self._placed(job, process.command)
            for job, process in zip(jobs, processes, strict=True)
        ]
        giver = jobs[0].runner.turn_giver(
            turns,
            [process.log for process in processes],
            [
                in_folder(process.home, command)
                for process, command in zip(processes, commands, strict=True)
            ],
        )
        command = (*self.launcher, *giver)
        command = self._placed(jobs[0], command, one_core=True) if shared else command
        group = PhoneTurns(replace(processes[0], place=place, command=command), tuple(processes))
        done = self._shell(group, dict(zip(processes, jobs, strict=True)))
        with self._removed(place if any(one.keeps_files for one in processes) else None):
            answers = group.parse(self.device.serial, done)
            # Where some have no answer, reading the one that has raises why.
            return [
                self._collect(job, process, answer)
                for job, process, answer in zip(jobs, processes, answers, strict=True)
                if answer is not None
            ]

    def _plan(
        self, job: Job, name: str, place: str, turn_descriptor: int | None = None
    ) -> PhoneRun:
        runner, request, artifact = job.runner, job.request, job.request.artifact
        model = self.storage.put({artifact.pte.name: artifact.pte})
        prompt_files, step_files = artifact.generation_files if request.generate else ((), ())

        def there(file: Path) -> str:
            return f"{self.storage.put({file.name: file})}/{file.name}"

        files = ProcessFiles(
            model=f"{model}/{artifact.pte.name}",
            inputs=tuple(map(there, artifact.input_files)),
            earlier=tuple(map(there, artifact.earlier_files)),
            prompt=tuple(map(there, prompt_files)),
            steps=tuple(step if isinstance(step, int) else there(step) for step in step_files),
            result=f"{place}/{RESULT_NAME}",
            etdump=f"{place}/{ETDUMP_NAME}" if runner.traces(request) else None,
            outputs=f"{place}/{OUTPUTS_NAME}" if request.keep_outputs else None,
            turn_descriptor=turn_descriptor,
        )
        home = self.storage.put({path.name: path for path in runner.files(request.arm)})
        command = (*self.launcher, *runner.command(request, files))
        limit = phone_limit(request.timeout_seconds)
        return PhoneRun(name, place, home, command, files, longest_seconds=limit)

    def _placed(
        self, job: Job, command: Sequence[str], *, one_core: bool = False
    ) -> tuple[str, ...]:
        """The command on its cores.

        With ``one_core``, on one of them where that is enough: on two cores, processes that take
        turns would each have different noise.
        """
        request = job.request
        cores = request.cpus or self.cores(request.threads)
        if one_core and cores and not request.cpus and request.threads == 1:
            cores = (secrets.choice(cores),)
        return on_cores(command, cores)

    def _shell(
        self, process: PhoneRun | PhoneTurns, processes: Mapping[PhoneRun, Job]
    ) -> ShellResult:
        """The answer of a script that runs processes; none of them stays when it fails."""
        seconds = max(job.request.timeout_seconds for job in processes.values())
        script = process.script(xnnpack_log=self.xnnpack_log)
        try:
            return self.device.shell(script, timeout=seconds)
        except DeviceTimeoutError as error:
            logs = self._end(processes)
            for one, job in processes.items():
                told = one.header() + logs.get(one, b"") + b"[time limit]\n"
                (job.folder / LOG_NAME).write_bytes(told)
            first = next(iter(processes.values()))
            raise RunError(
                f"{self._failed(first.request)}: it did not finish within {seconds:g} s "
                "and was stopped; allow more time if the model is that slow. "
                f"Its log is {first.folder / LOG_NAME}"
            ) from error
        except ConnectionLostError:
            raise
        except BaseException:
            # For example Ctrl-C: no process of ours may keep heating the phone.
            self._end(processes)
            raise

    def _end(self, processes: Collection[PhoneRun]) -> dict[PhoneRun, bytes]:
        """End the processes of one run on the phone, and return what each had printed."""
        logs: dict[PhoneRun, bytes] = {}
        name = next(iter(processes)).name  # which they share
        # Without a connection, the next connection ends them.
        with contextlib.suppress(TargetError):
            self.storage.kill_run(name)
            for process in processes:
                logs[process] = self.device.shell(process.tail()).stdout
            self.device.shell(["rm", "-rf", f"{RUNS}/{name}"])
        return logs

    @contextlib.contextmanager
    def _removed(self, place: str | None) -> Iterator[None]:
        """Afterwards, remove what a run left on the phone, if there is anything."""
        try:
            yield
        finally:
            if place is not None:
                self.device.shell(["rm", "-rf", place])

    def _collect(self, job: Job, process: PhoneRun, answer: Answer) -> Run:
        log, result = job.folder / LOG_NAME, job.folder / RESULT_NAME
        log.write_bytes(process.header() + answer.log + f"[exit {answer.code}]\n".encode())
        if answer.code != 0:
            # A process that was killed cannot end what it had started.
            self.storage.kill_run(process.name)
            said = answer.log.decode(errors="replace")
            problem = explain(job.runner, job.request, answer.code, said)
            raise RunError(f"{self._failed(job.request)}: {problem} Its log is {log}")
        if answer.document:
            result.write_bytes(answer.document)
        etdump = outputs = None
        if process.files.etdump is not None and answer.has_etdump:
            etdump = job.folder / ETDUMP_NAME
            self.device.pull(process.files.etdump, etdump)
        if process.files.outputs is not None:
            outputs = job.folder / OUTPUTS_NAME
            self._pull_outputs(process.files.outputs, outputs)
        run = job.runner.read_result(
            job.request,
            target=self.target,
            emulated=self.emulated,
            result=result,
            etdump=etdump,
            outputs=outputs,
            log=log,
        )
        used = job.request.cpus or self.cores(job.request.threads)
        change = clock_change(self.known, answer.caps, used)
        return replace(run, throttled=answer.throttled, clock_change=change)

    def _pull_outputs(self, remote: str, local: Path) -> None:
        local.mkdir(exist_ok=True)
        # The runner names them itself: output_0.bin and so on.
        said = self.device.check(["ls", "-1", remote])
        for name in parse_names(self.device.serial, said):
            self.device.pull(f"{remote}/{name}", local / name)

    def _failed(self, request: RunRequest) -> str:
        artifact = request.artifact
        return (
            f"{artifact.model} ({artifact.variant}) failed on {self.device.serial} "
            f"with SME2 {request.arm}"
        )


def _empty(folder: Path) -> None:
    """Files of an earlier run must not be taken for this one's."""
    folder.mkdir(parents=True, exist_ok=True)
    for stale in (RESULT_NAME, ETDUMP_NAME, LOG_NAME):
        (folder / stale).unlink(missing_ok=True)
