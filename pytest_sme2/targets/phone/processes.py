"""Runs processes of runners on a phone, alone or in turns, and brings back what they left.

The scripts are in ``script.py``; what the phone is, ``target.py`` knows.
"""

from __future__ import annotations

import contextlib
import secrets
import uuid
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from pytest_sme2.errors import ConnectionLostError, DeviceTimeoutError, RunError, TargetError
from pytest_sme2.results import Run, RunRequest
from pytest_sme2.runners.base import TURN_DESCRIPTOR, ProcessFiles
from pytest_sme2.targets.base import (
    ETDUMP_NAME,
    LOG_NAME,
    OUTPUTS_NAME,
    RESULT_NAME,
    Job,
    count_turns,
)
from pytest_sme2.targets.phone.adb import AdbDevice
from pytest_sme2.targets.phone.answers import Answer, ShellResult, parse_answer, parse_names
from pytest_sme2.targets.phone.script import (
    PhoneRun,
    PhoneTurns,
    explain,
    in_folder,
    on_cores,
    phone_limit,
)
from pytest_sme2.targets.phone.storage import RUNS, PhoneStorage


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
        inputs, earlier = (
            tuple(f"{self.storage.put({file.name: file})}/{file.name}" for file in those)
            for those in (artifact.input_files, artifact.earlier_files)
        )
        files = ProcessFiles(
            model=f"{model}/{artifact.pte.name}",
            inputs=inputs,
            earlier=earlier,
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
        return replace(run, throttled=answer.throttled)

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
