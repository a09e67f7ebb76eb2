"""Runs processes of runners on a phone, alone or in turns, and brings back what they left.

What the phone is, ``target.py`` knows.

Our folder on a phone: files by content, pushed once, checked, and cleaned up.

A file in ``files/<hash>`` is complete: it is pushed to another name, checked by the phone's own
sha256sum, and renamed. Nothing outside ``ROOT`` is ever written or removed.
"""

from __future__ import annotations

import contextlib
import hashlib
import math
import re
import secrets
import uuid
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from pytest_sme2.errors import ConnectionLostError, DeviceTimeoutError, TargetError
from pytest_sme2.results import Run, RunRequest
from pytest_sme2.runners.base import TURN_DESCRIPTOR, LeftFiles, Player, ProcessFiles, Runner
from pytest_sme2.system.files import file_sha256, new_file
from pytest_sme2.system.processes import Finished
from pytest_sme2.targets.base import (
    Job,
    describe_failure,
    make_place,
    on_cores,
    one_line,
    run_failed,
)
from pytest_sme2.targets.phone.adb import AdbDevice, quote
from pytest_sme2.targets.phone.answers import (
    READ_CAPS,
    Answer,
    Core,
    ShellResult,
    clock_change,
    last_line,
    parse_answers,
    parse_free_bytes,
    parse_lines,
    parse_names,
)
from pytest_sme2.targets.phone.power import SCREEN, THROTTLES

ROOT = "/data/local/tmp/pytest-sme2"
_FILES = f"{ROOT}/files"
_PARTIAL = f"{ROOT}/partial"
RUNS = f"{ROOT}/runs"
RUN_MARK = "PYTEST_SME2_RUN"
"""The environment variable that marks a run's processes on the phone."""
# A phone with completely full storage misbehaves.
_SPARE_BYTES = 4 << 20
_OLD_DAYS = 14
_BIG_BYTES = 8 << 20
# Over a slow network. A push that takes longer has stopped.
_LEAST_BYTES_PER_SECOND = 100_000


class PhoneStorage:
    """Puts files on one phone and removes them."""

    def __init__(self, device: AdbDevice, *, progress: Callable[[str], None] | None = None) -> None:
        self.device, self.progress = device, progress
        self.pushed_bytes = 0
        """How much this process pushed; a second run pushes nothing."""
        self._hashes: dict[tuple[Path, int, int], str] = {}
        self._known: dict[str, tuple[str, ...]] = {}
        """Folders on the phone, and what is in them."""

    def put(self, files: Mapping[str, Path]) -> str:
        """The folder on the phone with ``files`` under their given names."""
        hashes = {name: self._sha256(path) for name, path in sorted(files.items())}
        listing = "".join(f"{value} {name}\n" for name, value in hashes.items())
        key = hashlib.sha256(listing.encode("utf-8", "surrogateescape")).hexdigest()[:32]
        folder = f"{_FILES}/{key}"
        if folder in self._known:
            return folder
        paths = [f"{folder}/{name}" for name in files]
        # Touched, so that files in use never count as old.
        present = self.device.shell(f"{quote(['ls', *paths])} && {quote(['touch', folder])}")
        if present.code != 0:
            self._push(files, hashes, folder)
        self._known[folder] = tuple(paths)
        return folder

    def forget(self) -> None:
        """Forget what is on the phone: after a reconnect it may be another one."""
        self._known.clear()

    def _push(self, files: Mapping[str, Path], hashes: Mapping[str, str], folder: str) -> None:
        partial = f"{_PARTIAL}/{folder.rpartition('/')[2]}"
        self._check_space(sum(path.stat().st_size for path in files.values()), files)
        self.device.check(["mkdir", "-p", _FILES, partial])
        try:
            for name, path in files.items():
                status = path.stat()
                if self.progress is not None and status.st_size > _BIG_BYTES:
                    self.progress(f"pushing {path.name!r}, {_megabytes(status.st_size)}")
                self.device.push(
                    path,
                    f"{partial}/{name}",
                    mode=0o755 if status.st_mode & 0o111 else 0o644,
                    timeout=600 + status.st_size / _LEAST_BYTES_PER_SECOND,
                )
                self.pushed_bytes += status.st_size
            self._verify(partial, hashes)
            # A folder that has lost some of its files makes room.
            self.device.check(f"{quote(['rm', '-rf', folder])} && {quote(['mv', partial, folder])}")
        except TargetError:
            with contextlib.suppress(TargetError):
                self.device.shell(["rm", "-rf", partial], timeout=10)
            raise

    def _verify(self, folder: str, hashes: Mapping[str, str]) -> None:
        # Through standard input, so that names are never part of the output.
        command = "; ".join(f"sha256sum < {quote([f'{folder}/{name}'])}" for name in hashes)
        found = parse_lines(self.device.check(command, timeout=300), len(hashes))
        for (name, wanted), line in zip(hashes.items(), found, strict=True):
            if line[:64] != wanted:
                raise TargetError(
                    f"{name!r} arrived damaged on {self.device.serial}. Try again. If it happens "
                    "twice, change the cable."
                )

    def free_bytes(self) -> int:
        command = "stat -f -c '%a %S' /data/local/tmp"
        return parse_free_bytes(self.device.serial, command, self.device.check(command))

    def _check_space(self, needed: int, files: Mapping[str, Path]) -> None:
        free = self.free_bytes()
        if needed + _SPARE_BYTES > free:
            names = ", ".join(repr(name) for name in files)
            raise TargetError(
                f"Not enough space on {self.device.serial}: {names[:200]} needs "
                f"{_megabytes(needed)} and /data/local/tmp has {_megabytes(free)} free. Free some, "
                f"or remove the files of earlier runs: sme2 clean --device android "
                f"--serial {self.device.serial}"
            )

    def _sha256(self, path: Path) -> str:
        status = path.stat()
        key = (path, status.st_mtime_ns, status.st_size)
        if key not in self._hashes:
            self._hashes[key] = file_sha256(path)
        return self._hashes[key]

    def tidy(self) -> None:
        """End and remove what an interrupted run left, and remove files not used for long."""
        self.device.check(
            f"mkdir -p {ROOT}; [ -d {RUNS} ] && {{ {_kill('')} }}; rm -rf {RUNS} {_PARTIAL}; "
            f"[ -d {_FILES} ] && find {_FILES} -mindepth 1 -maxdepth 1 -mtime +{_OLD_DAYS} "
            "-exec rm -rf {} +; true",
            timeout=120,
        )
        self._known.clear()

    def clean(self) -> None:
        """Remove all our files."""
        self.tidy()
        self.device.check(["rm", "-rf", ROOT], timeout=120)

    def kill_run(self, run: str) -> None:
        """End every process of one run."""
        self.device.check(_kill(run), timeout=30)


def _kill(run: str) -> str:
    # By a mark in their environment: a stored process id may belong to another process by now.
    mark = quote([f"{RUN_MARK}={run}"])
    return (
        f"for file in $(grep -l {mark} /proc/[0-9]*/environ 2>/dev/null); do "
        "file=${file%/environ}; kill -9 ${file#/proc/} 2>/dev/null; done; true;"
    )


def _megabytes(size: int) -> str:
    return f"{size / 1e6:.1f} MB"


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
    players: tuple[PhoneRun, ...] = ()
    """The processes that it starts itself, and gives their turns.

    One adb command starts all of them, so no turn waits for a round trip. The program that gives
    the turns uses pipes without names, because Android's shell may not make named ones.
    """

    @property
    def processes(self) -> tuple[PhoneRun, ...]:
        """Those of the runner: this one, or the ones that take turns."""
        return self.players or (self,)

    @property
    def keeps_files(self) -> bool:
        """Whether files must be copied from ``place`` after the run."""
        files = [process.files for process in self.processes]
        return any(each.etdump is not None or each.outputs is not None for each in files)

    @property
    def log(self) -> str:
        return f"{self.place}/log"

    def tail(self) -> str:
        """The command that shows the log."""
        return f"tail -c {_LONGEST_LOG} {self.log}"

    @property
    def _heat(self) -> str:
        """The file for the thermal status during the run."""
        return f"{self.place}/heat"

    @property
    def _mark(self) -> str:
        """Between the parts of an answer. The name is random, so no output contains it."""
        return f"=={self.name}=="

    def script(self) -> str:
        """A whole run as one command, because every command costs a round trip.

        It tells how the process ended, how hot the phone was, and its caps; then what each process
        of the runner left.
        """
        places = " ".join(process.place for process in self.processes)
        lines = [
            f"mkdir -p {places} && cd {self.home} || exit 1",
            READ_CAPS,
            f"{RUN_MARK}={self.name} {quote(self.command)} > {self.log} 2>&1 < /dev/null &",
            "process=$!",
            *self._watch(),
            "wait $process",
            'echo "code $?"',
            # A short run may end before the watcher makes its file; keep that out of the log.
            f"{{ {self._stopped_watch()}; cat {self._heat}; }} 2>/dev/null",
            _THERMAL_STATUS,
            READ_CAPS,
            SCREEN,
        ]
        if self.players:
            lines.append(f"{self.tail()} >&2")
        for process in self.processes:
            lines += [f"echo {self._mark}", f"cat {process.files.result} 2>/dev/null"]
            lines += [f"echo {self._mark} >&2", f"{process.tail()} >&2"]
        if not self.keeps_files:
            lines.append(f"rm -rf {self.place}")
        return "\n".join([*lines, "exit 0"])

    def parse(self, serial: str, done: ShellResult) -> list[Answer | None]:
        """What each process left; None for those that were stopped because another one failed.

        Raises TargetError if nothing could be started.
        """
        return parse_answers(serial, done, mark=self._mark, count=len(self.players))

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
        return [f"{started} > {self._heat} 2>/dev/null < /dev/null &", "watcher=$!"]

    def _stopped_watch(self) -> str:
        """End the watcher, once it has said that it listens.

        mksh, which is Android's shell, catches a signal between fork and exec, and loses it: a run
        that ends at once would then wait for its watcher until the time is up.
        """
        return (
            f"waits=0; until [ -s {self._heat} ] || [ $waits -ge {_MOST_WAITS} ]; "
            "do waits=$((waits + 1)); sleep 0.01; done; "
            f"[ -s {self._heat} ] || kill -9 $watcher; kill $watcher; wait $watcher"
        )

    def __post_init__(self) -> None:
        # We make all of these names; one that needs quotes is not ours.
        for word in (self.name, self.place, self.home, self.files.result):
            if quote([word]) != word:
                raise ValueError(f"{word!r} is not a file name of a run on a phone.")


def explain(runner: Runner, request: RunRequest, finished: Finished) -> str:
    """One sentence about a process that failed, including failures that only phones have."""
    code, said = finished.returncode, finished.stderr
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
    return describe_failure(finished, runner, request) or "it failed."


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
    known: Sequence[Core] = ()
    """The phone's cores with their caps, as they were at the start."""
    screen: str = "unknown"
    """How the phone's screen was at the start."""
    tell: Callable[[str], object] = lambda said: None
    """Gets what belongs into the report."""

    def run(self, jobs: Sequence[Job], turns: int | None = None) -> list[Run]:
        """One process per job, whose files end up in the job's folder.

        With ``turns``, they take so many turns, which a program of the first runner gives them.
        """
        places = [make_place(job, self.target, emulated=self.emulated) for job in jobs]
        name = uuid.uuid4().hex
        if turns is None:
            started = self._plan(jobs[0], name, f"{RUNS}/{name}")
            started = replace(started, command=self._placed(jobs[0], started.command))
        else:
            started = self._giver(jobs, turns, name)
        done = self._shell(started, jobs, places)
        try:
            runs, answers = started.processes, started.parse(self.device.serial, done)
            # Where some have no answer, reading the one that has raises why.
            return [
                self._collect(job, place, run, answer)
                for job, place, run, answer in zip(jobs, places, runs, answers, strict=True)
                if answer is not None
            ]
        finally:
            if started.keeps_files:
                self.device.shell(["rm", "-rf", started.place])

    def _giver(self, jobs: Sequence[Job], turns: int, name: str) -> PhoneRun:
        """The program that starts the processes and gives them their turns."""
        place = f"{RUNS}/{name}"
        players = [
            self._plan(job, name, f"{place}/{index}", turn_descriptor=TURN_DESCRIPTOR)
            for index, job in enumerate(jobs)
        ]
        # Processes with as many threads share their cores; else each is put on its own.
        shared = len({(job.request.threads, job.request.cpus) for job in jobs}) == 1
        given = []
        for job, player in zip(jobs, players, strict=True):
            command = player.command if shared else self._placed(job, player.command)
            given.append(Player(player.log, player.home, command))
        command = (*self.launcher, *jobs[0].runner.turn_giver(turns, given))
        command = self._placed(jobs[0], command, one_core=True) if shared else command
        return replace(players[0], place=place, command=command, players=tuple(players))

    def _plan(
        self, job: Job, name: str, place: str, turn_descriptor: int | None = None
    ) -> PhoneRun:
        runner, request = job.runner, job.request

        def there(file: Path) -> str:
            return f"{self.storage.put({file.name: file})}/{file.name}"

        files = job.files(there, lambda name: f"{place}/{name}", turn_descriptor)
        home = self.storage.put({path.name: path for path in runner.files(request.arm)})
        command = (*self.launcher, *runner.command(request, files))
        limit = math.ceil(request.timeout_seconds) + _GRACE_SECONDS
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
        self, started: PhoneRun, jobs: Sequence[Job], places: Sequence[LeftFiles]
    ) -> ShellResult:
        """The answer of a script that runs processes; none of them stays when it fails."""
        seconds = max(job.request.timeout_seconds for job in jobs)
        try:
            return self.device.shell(started.script(), timeout=seconds)
        except DeviceTimeoutError as error:
            logs = self._end(started)
            for process, place, log in zip(started.processes, places, logs, strict=True):
                _write_log(place, process, log, "time limit")
            late = Finished((), 0, "", "", timed_out=True)
            raise self._failure(jobs[0], places[0], late) from error
        except ConnectionLostError:
            raise
        except BaseException:
            # For example Ctrl-C: no process of ours may keep heating the phone.
            self._end(started)
            raise

    def _end(self, started: PhoneRun) -> list[bytes]:
        """End the processes of one run on the phone, and return what each had printed."""
        # Without a connection, the next connection ends them.
        with contextlib.suppress(TargetError):
            self.storage.kill_run(started.name)
            logs = [self.device.shell(process.tail()).stdout for process in started.processes]
            self.device.shell(["rm", "-rf", started.place])
            return logs
        return [b"" for _ in started.processes]

    def _collect(self, job: Job, place: LeftFiles, process: PhoneRun, answer: Answer) -> Run:
        _write_log(place, process, answer.log, f"exit {answer.code}")
        if answer.code != 0:
            # A process that was killed cannot end what it had started.
            self.storage.kill_run(process.name)
            said = answer.log.decode(errors="replace")
            raise self._failure(job, place, Finished((), answer.code, "", said, timed_out=False))
        if answer.document:
            place.result.write_bytes(answer.document)
        if place.etdump is not None and process.files.etdump is not None:
            if self.device.shell(["ls", process.files.etdump]).code == 0:
                self.device.pull(process.files.etdump, place.etdump)
            else:
                place = replace(place, etdump=None)
        if place.outputs is not None and process.files.outputs is not None:
            self._pull_outputs(process.files.outputs, place.outputs)
        run = job.runner.read_result(job.request, place)
        used = job.request.cpus or self.cores(job.request.threads)
        change = clock_change(self.known, answer.caps, used)
        if 0 < answer.status < THROTTLES:
            self.tell(f"was warm meanwhile (thermal status {answer.status}), and not slowed down")
        screen = answer.screen
        return replace(
            run,
            throttled=answer.status >= THROTTLES,
            clock_change=change,
            meant_for=tuple(used),
            spoiled=""
            if "unknown" in (screen, self.screen) or screen == self.screen
            else f"the screen was {screen}, and {self.screen} at the start",
        )

    def _pull_outputs(self, remote: str, local: Path) -> None:
        local.mkdir(exist_ok=True)
        # The runner names them itself: output_0.bin and so on.
        said = self.device.check(["ls", "-1", remote])
        for name in parse_names(self.device.serial, said):
            self.device.pull(f"{remote}/{name}", local / name)

    def _failure(self, job: Job, place: LeftFiles, finished: Finished) -> Exception:
        problem = explain(job.runner, job.request, finished)
        return run_failed(self.device.serial, job, place, problem)


def _write_log(place: LeftFiles, process: PhoneRun, said: bytes, ending: str) -> None:
    with new_file(place.log) as file:
        file.write(one_line(process.command) + said + f"[{ending}]\n".encode())
