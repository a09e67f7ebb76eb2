"""The stock ``executor_runner``, as a pair of builds with SME2 on and off.

This module knows its flags, its log lines and its ETDump. It writes no result file, so latency is
the time of Method::execute in the ETDump.
"""

from __future__ import annotations

import hashlib
import re
import shutil
import signal
import struct
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from pytest_sme2.errors import BuildError, EtdumpError, RunError
from pytest_sme2.results import PAIR, Arm, Run, RunRequest
from pytest_sme2.runners.base import LeftFiles, ProcessFiles, Runner, started
from pytest_sme2.system.cache import cache_folder, is_believed, put_in_place, working_folder
from pytest_sme2.system.files import file_sha256
from pytest_sme2.system.locks import locked
from pytest_sme2.system.platforms import ANDROID_ARM64, LINUX_AARCH64, LINUX_X86_64, MACOS_ARM64
from pytest_sme2.system.wording import count
from pytest_sme2.trace.etdump import read_etdump

LIBRARY = re.compile(r".+\.so(?:\.\d+)*|.+\.dylib")
_EXECUTE = "Method::execute"
_LOADED = re.compile(r"Model loaded in (\d+(?:\.\d+)?) ms")
_UNKNOWN_FLAG = re.compile(r"unknown command line flag '([^']*)'")
# SIGABRT, as Python and as a shell report it.
_ABORTED = (-signal.SIGABRT, 128 + signal.SIGABRT)

_ELF_MACHINES = {183: LINUX_AARCH64, 62: LINUX_X86_64}
_ANDROID_LOADER = b"/system/bin/linker64\0"
_MACH_O_ARM64 = struct.pack("<II", 0xFEEDFACF, 0x0100000C)


@dataclass(frozen=True)
class PairRunner(Runner):
    """Two builds of ``executor_runner``, side by side in one folder."""

    @staticmethod
    def program(arm: Arm) -> str:
        return f"executor_runner-{arm}"

    def files(self, arm: Arm) -> tuple[Path, ...]:
        other = self.program(Arm.OFF if arm is Arm.ON else Arm.ON)
        return tuple(path for path in sorted(self.folder.iterdir()) if path.name != other)

    def traces(self, request: RunRequest) -> bool:
        # The only output with times that always exists.
        return True

    def command(self, request: RunRequest, files: ProcessFiles) -> tuple[str, ...]:
        if request.switch is Arm.SME1:
            raise RunError(
                "The stock runners are two builds, with SME2 and without SME: neither hides SME2 "
                "alone. Leave --sme2-runner out."
            )
        if files.earlier:
            raise RunError(
                "The stock runner gives every execution the same inputs, so it cannot fill a cache "
                "first. Leave --sme2-runner out."
            )
        for name in files.inputs:
            if "," in name:
                raise RunError(
                    f"The stock runner separates its inputs by commas, so it cannot read {name!r}. "
                    "Move the artifact to a folder without a comma in its name."
                )
        return (
            *started(self.folder, self.program(request.arm)),
            f"--model_path={files.model}",
            # It has no warm-up: the first executions are dropped when the ETDump is read.
            f"--num_executions={request.warmup + request.runs}",
            f"--cpu_threads={request.threads}",
            f"--etdump_path={files.etdump}",
            *((f"--inputs={','.join(files.inputs)}",) if files.inputs else ()),
            # Without it, the first one of the program runs.
            *([f"--method_name={method}"] if (method := request.artifact.method) else ()),
            *request.extra_arguments,
        )

    def explain(self, returncode: int, stderr: str) -> str | None:
        unknown = _UNKNOWN_FLAG.search(stderr)
        if returncode == 1 and unknown:
            return (
                f"this executor_runner does not know the flag --{unknown[1]}; build it from "
                "ExecuTorch 1.3 or newer with `sme2 build`"
            )
        if returncode in _ABORTED:
            fatal = [line.strip() for line in stderr.splitlines() if line.startswith("F ")]
            return f"it aborted (SIGABRT): {fatal[-1]}" if fatal else "it aborted (SIGABRT)"
        return None

    def read_result(self, request: RunRequest, left: LeftFiles) -> Run:
        etdump, log = left.etdump, left.log
        if etdump is None or not etdump.is_file():
            raise RunError(
                "The stock runner succeeded but wrote no ETDump: it was built without the event "
                f"tracer. Build it with `sme2 build`. Its log is {log}"
            )
        try:
            durations = _executions(etdump)
        except EtdumpError as error:
            raise RunError(f"The stock runner's ETDump cannot be used: {error}") from error
        expected = request.warmup + request.runs
        if len(durations) != expected:
            raise RunError(
                f"The ETDump {etdump} has {count(len(durations), 'execution')}, not {expected}. "
                f"Its log is {log}"
            )
        return self.run_with(
            request,
            left,
            # It does not report the CPU; the operators in its ETDump do.
            sme2_effective=None,
            wall_ns=durations[request.warmup :],
            load_ns=_load_ns(log),
            etdump=etdump,
            warmup_wall_ns=durations[: request.warmup],
        )


def _executions(etdump: Path) -> tuple[int, ...]:
    """How long each Method::execute took, in the order they ran, in nanoseconds."""
    columns = read_etdump(etdump)
    if _EXECUTE not in columns.names:
        return ()
    # A delegate may give its events any name.
    rows = (
        (columns.name == columns.names.index(_EXECUTE))
        & (columns.delegate_id == -1)
        & (columns.delegate_name == -1)
    )
    return tuple(int(value) for value in columns.end[rows] - columns.start[rows])


def _load_ns(log: Path) -> int | None:
    """The load time, if the runner printed it."""
    found = _LOADED.search(log.read_text("utf-8", "replace"))
    return round(float(found[1]) * 1e6) if found else None


def pair_runner(on: Path, off: Path, *, cache: Path | None = None) -> PairRunner:
    """The pair of these two binaries, in one folder with the libraries beside them."""
    platforms = [binary_platform(path.expanduser()) for path in (on, off)]
    if platforms[0] != platforms[1]:
        raise BuildError(
            f"The runners are not a pair: {on} is for {platforms[0]}, {off} is for "
            f"{platforms[1]}. Build both for one platform."
        )
    if file_sha256(on.expanduser()) == file_sha256(off.expanduser()):
        raise BuildError(
            f"{on} and {off} are the same program, so they cannot be SME2 on and off. "
            "Build the two with `sme2 build`."
        )
    return _staged("pair", {Arm.ON: on, Arm.OFF: off}, platforms[0], cache)


def single_runner(binary: Path, *, cache: Path | None = None) -> PairRunner:
    """One binary; its ETDumps say for which arm it was built."""
    platform = binary_platform(binary.expanduser())
    return _staged("single", dict.fromkeys(PAIR, binary), platform, cache)


def _staged(
    name: str, binaries: Mapping[Arm, Path], platform: str, cache: Path | None
) -> PairRunner:
    """Both programs and their libraries in one folder of the cache."""
    files = _gather({arm: path.expanduser().absolute() for arm, path in binaries.items()})
    digests = sorted((name, file_sha256(path)) for name, path in files.items())
    key = hashlib.sha256(repr(digests).encode()).hexdigest()[:12]
    folder = (cache or cache_folder()) / "runners" / f"{name}-{key}"
    with locked(Path(f"{folder}.lock"), f"copying the runner to {folder}"):
        if not _is_whole(folder, files, cache):
            with working_folder(folder) as staged:
                for file, path in files.items():
                    shutil.copy2(path, staged / file)
                for arm in PAIR:
                    (staged / PairRunner.program(arm)).chmod(0o755)
                put_in_place(staged, folder)
    return PairRunner(kind="pair", platform=platform, executorch="unknown", folder=folder)


def _is_whole(folder: Path, files: Mapping[str, Path], cache: Path | None) -> bool:
    """Whether the copies are there as they were made, and no other file."""
    if not is_believed(folder, cache) or {path.name for path in folder.iterdir()} != {*files}:
        return False
    return all(file_sha256(folder / name) == file_sha256(path) for name, path in files.items())


def _gather(binaries: Mapping[Arm, Path]) -> dict[str, Path]:
    """All files of the pair by their names in one folder, which goes to the device."""
    files = {PairRunner.program(arm): path for arm, path in binaries.items()}
    for path in binaries.values():
        for library in sorted(path.parent.iterdir()):
            if not LIBRARY.fullmatch(library.name) or not library.is_file():
                continue
            known = files.setdefault(library.name, library)
            if known != library and file_sha256(known) != file_sha256(library):
                raise BuildError(
                    f"The two runners have different libraries with the same name: {known} and "
                    f"{library}. Build both from the same ExecuTorch, or link them statically."
                )
    return files


def binary_platform(path: Path) -> str:
    """The platform of a program, from its header."""
    try:
        with path.open("rb") as file:
            head = file.read(4096)
    except OSError as error:
        raise BuildError(f"The runner {path} cannot be read: {error.strerror}.") from error
    if head.startswith(_MACH_O_ARM64):
        return MACOS_ARM64
    if head[:6] == b"\x7fELF\x02\x01" and len(head) >= 64:
        (machine,) = struct.unpack_from("<H", head, 18)
        if machine in _ELF_MACHINES:
            android = _ANDROID_LOADER in head and machine == 183
            return ANDROID_ARM64 if android else _ELF_MACHINES[machine]
    raise BuildError(
        f"{path} is not a program for aarch64 Linux, Android, x86_64 Linux or an Apple Silicon "
        "Mac. Give an executor_runner for the device."
    )
