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
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

from pytest_sme2.errors import TargetError
from pytest_sme2.results.run import RunRequest
from pytest_sme2.runners.base import LeftFiles, ProcessFiles, Runner
from pytest_sme2.system.files import file_sha256, new_file
from pytest_sme2.system.processes import Finished
from pytest_sme2.targets.base import (
    describe_failure,
    one_line,
)
from pytest_sme2.targets.phone.adb import AdbDevice, quote
from pytest_sme2.targets.phone.answers import (
    READ_CAPS,
    Answer,
    ShellResult,
    last_line,
    parse_answers,
    parse_free_bytes,
    parse_lines,
)
from pytest_sme2.targets.phone.power import SCREEN

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
GRACE_SECONDS = 30


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


def write_log(place: LeftFiles, process: PhoneRun, said: bytes, ending: str) -> None:
    with new_file(place.log) as file:
        file.write(one_line(process.command) + said + f"[{ending}]\n".encode())
