"""The stock ``executor_runner``, as a pair of builds with SME2 on and off.

This module knows its flags, its log lines and its ETDump. It writes no result file, so latency is
the time of Method::execute in the ETDump.

It builds the pair in a user's ExecuTorch checkout, too. Plans are pure values. Checks change
nothing. Only ``build`` starts the compiler, in a separate folder. ``sme2.py`` builds the runner
from the wheel.
"""

from __future__ import annotations

import hashlib
import os
import platform as host_platform
import re
import shlex
import shutil
import signal
import struct
import sys
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from pytest_sme2.errors import BuildError, BusyError, ElfError, EtdumpError, RunError
from pytest_sme2.results.evidence import KernelFamily
from pytest_sme2.results.run import PAIR, Arm, Run, RunRequest
from pytest_sme2.runners.base import LeftFiles, ProcessFiles, Runner, started
from pytest_sme2.runners.sme2 import run_tool
from pytest_sme2.system.cache import cache_folder, is_believed, made_once
from pytest_sme2.system.elf import read_elf
from pytest_sme2.system.files import file_sha256, make_folders
from pytest_sme2.system.locks import locked
from pytest_sme2.system.platforms import ANDROID_ARM64, LINUX_AARCH64, LINUX_X86_64, MACOS_ARM64
from pytest_sme2.system.provision import find_cmake, find_ninja
from pytest_sme2.system.wording import count
from pytest_sme2.trace.etdump import read_etdump
from pytest_sme2.trace.kernel_log import family_of, is_microkernel

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

    def copy(staged: Path) -> Path:
        for file, path in files.items():
            shutil.copy2(path, staged / file)
        for arm in PAIR:
            (staged / PairRunner.program(arm)).chmod(0o755)
        return staged

    doing = f"copying the runner to {folder}"
    made_once(folder, doing, copy, whole=lambda there: _is_whole(there, files))
    return PairRunner(kind="pair", platform=platform, executorch="unknown", folder=folder)


def _is_whole(folder: Path, files: Mapping[str, Path]) -> bool:
    """Whether the copies are there as they were made, and no other file."""
    if not is_believed(folder) or {path.name for path in folder.iterdir()} != {*files}:
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


PLATFORMS = ("mac", "linux", "android")
VARIANTS = ("timing", "xnnlog")
RUNNER = "executor_runner"
LOG = "sme2-build.log"


@dataclass(frozen=True)
class SourceBuild:
    """What the user asked for."""

    tree: Path
    platform: str
    variant: str = "timing"
    ndk: Path | None = None
    out: Path | None = None
    options: Mapping[str, str] = field(default_factory=dict)
    """The user's own CMake variables; they override ours."""

    @property
    def folder(self) -> Path:
        """The folder of the builds, never inside the checkout."""
        if self.out is not None:
            return self.out
        key = hashlib.sha256(os.fsencode(self.tree)).hexdigest()[:12]
        return cache_folder() / "source-builds" / key


@dataclass(frozen=True)
class BuildStep:
    """One build: the commands and the result."""

    arm: Arm
    folder: Path
    configure: tuple[str, ...]
    build: tuple[str, ...]

    @property
    def binary(self) -> Path:
        return self.folder / RUNNER


def plan(request: SourceBuild) -> tuple[BuildStep, ...]:
    """The commands, one build after another, because flatcc cannot be built twice at once."""
    return tuple(_step(request, arm, find_cmake()) for arm in PAIR)


def _step(request: SourceBuild, arm: Arm, cmake: str) -> BuildStep:
    folder = request.folder / f"{request.platform}-{request.variant}-sme2-{arm}"
    variables = {**_variables(request, arm), **request.options}
    configure = (cmake, "-S", str(request.tree), "-B", str(folder), "-G", "Ninja")
    return BuildStep(
        arm=arm,
        folder=folder,
        configure=(*configure, *(f"-D{name}={value}" for name, value in variables.items())),
        build=(cmake, "--build", str(folder), "--target", RUNNER),
    )


def _variables(request: SourceBuild, arm: Arm) -> dict[str, str]:
    switch = "ON" if arm is Arm.ON else "OFF"
    variables = {
        "CMAKE_BUILD_TYPE": "Release",
        "PYTHON_EXECUTABLE": sys.executable,
        "EXECUTORCH_BUILD_EXECUTOR_RUNNER": "ON",
        "EXECUTORCH_BUILD_EXTENSION_EVALUE_UTIL": "ON",
        "EXECUTORCH_BUILD_EXTENSION_RUNNER_UTIL": "ON",
        "EXECUTORCH_BUILD_XNNPACK": "ON",
        "EXECUTORCH_XNNPACK_ENABLE_KLEIDI": "ON",
        "EXECUTORCH_BUILD_DEVTOOLS": "ON",
        "EXECUTORCH_ENABLE_EVENT_TRACER": "ON",
        "EXECUTORCH_BUILD_KERNELS_OPTIMIZED": "ON",
        "EXECUTORCH_BUILD_KERNELS_QUANTIZED": "ON",
        # Release removes the log, and with it the load time and the iterations.
        "EXECUTORCH_ENABLE_LOGGING": "ON",
        # Both: with only SME2 off, XNNPACK uses SME kernels.
        "XNNPACK_ENABLE_ARM_SME": switch,
        "XNNPACK_ENABLE_ARM_SME2": switch,
        "CMAKE_MAKE_PROGRAM": find_ninja(),
    }
    if request.variant == "xnnlog":
        # 4 lists the kernels that may run, 5 also the operators that ran.
        variables["EXECUTORCH_XNNPACK_LOG_LEVEL"] = "5"
    if request.platform == "android":
        ndk = request.ndk or Path("ANDROID_NDK")
        variables["CMAKE_TOOLCHAIN_FILE"] = str(ndk / _NDK_TOOLCHAIN)
        variables["ANDROID_ABI"] = "arm64-v8a"
        variables["ANDROID_PLATFORM"] = "android-28"
        # Phones from Android 15 on may have pages of 16 KB.
        variables["ANDROID_SUPPORT_FLEXIBLE_PAGE_SIZES"] = "ON"
    elif request.platform == "mac":
        variables["CMAKE_OSX_ARCHITECTURES"] = "arm64"
    elif shutil.which("clang++") is not None:
        # gcc 12 fails in KleidiAI.
        variables |= {"CMAKE_C_COMPILER": "clang", "CMAKE_CXX_COMPILER": "clang++"}
    return variables


def dry_run(request: SourceBuild) -> str:
    """The commands in shell syntax."""
    lines = []
    for step in plan(request):
        plain = [word for word in step.configure if not word.startswith("-D")]
        options = map(shlex.quote, step.configure[len(plain) :])
        lines += [
            f"# {request.platform}, {request.variant}, SME2 {step.arm}: {step.binary}",
            " \\\n    ".join([shlex.join(plain), *options]),
            f"{shlex.join(step.build)}\n",
        ]
    lines.append(f"# then: {usage_line(request)}")
    return "\n".join(lines) + "\n"


def usage_line(request: SourceBuild) -> str:
    """The command line that uses the built runners."""
    pair = ",".join(str(step.binary) for step in plan(request))
    return shlex.join(["pytest", f"--device={request.platform}", "--sme2-runner", pair])


_SECONDS = 4 * 3600.0
_NDK_TOOLCHAIN = "build/cmake/android.toolchain.cmake"
_TOOLCHAIN = "CMAKE_TOOLCHAIN_FILE"
# ExecuTorch has many submodules; these are the ones this build compiles.
_NEEDED_SUBMODULES = re.compile(
    r"backends/xnnpack/third-party/.+|third-party/(?:flatbuffers|flatcc|gflags|json)"
)


def check(request: SourceBuild) -> tuple[str, ...]:
    """What is missing, each with its remedy. How old a compiler is, the finished build tells."""
    return (*_check_tree(request), *_check_host(request))


def _check_tree(request: SourceBuild) -> Iterator[str]:
    tree = request.tree
    parts = ("CMakeLists.txt", "backends/xnnpack/CMakeLists.txt")
    missing = [name for name in parts if not (tree / name).is_file()]
    if not tree.is_dir():
        yield f"{tree} is not a folder. Give the ExecuTorch checkout with --executorch DIR."
        return
    if missing:
        yield (
            f"{tree} is not an ExecuTorch checkout: it has no {' and no '.join(missing)}. "
            "Give the folder with ExecuTorch's own CMakeLists.txt."
        )
        return
    if tree.name != "executorch":
        yield (
            f"the checkout's folder is named {tree.name!r}, but ExecuTorch builds only in a folder "
            "named 'executorch'. Rename it, or make a link with that name."
        )
    listed = tree / ".gitmodules"
    text = listed.read_text(errors="replace") if listed.is_file() else ""
    modules = re.findall(r"^\s*path\s*=\s*(\S+)\s*$", text, re.MULTILINE)
    needed = sorted(path for path in modules if _NEEDED_SUBMODULES.fullmatch(path))
    empty = [path for path in needed if not any((tree / path).glob("*"))]
    if empty:
        yield (
            f"{len(empty)} of ExecuTorch's submodules are not checked out "
            f"({', '.join(empty)}). Run: "
            + shlex.join(["git", "-C", str(tree), "submodule", "update", "--init", "--recursive"])
        )


def _check_host(request: SourceBuild) -> Iterator[str]:
    system, machine = host_platform.system(), host_platform.machine().lower()
    arm = machine in ("arm64", "aarch64")
    if request.platform == "android":
        if request.ndk is None or not (request.ndk / _NDK_TOOLCHAIN).is_file():
            yield (
                "building for Android needs the NDK, version 27 or newer. Give its folder with "
                "--ndk DIR or in ANDROID_NDK."
            )
    elif request.platform == "mac" and not (system == "Darwin" and arm):
        yield (
            f"a runner for a Mac must be built on an Apple Silicon Mac, but this is {system} on "
            f"{machine}. Run the command on a Mac, or choose another --platform."
        )
    elif request.platform == "linux" and system != "Linux":
        yield (
            f"a runner for Linux must be built on Linux, but this is {system}. Run the command on "
            "Linux, or choose another --platform."
        )
    elif request.platform == "linux" and not arm and _TOOLCHAIN not in request.options:
        yield (
            f"this machine is {machine}, but only Arm has SME2. Cross-compile with "
            f"--cmake-option {_TOOLCHAIN}=FILE, or build on an aarch64 machine."
        )


def build(
    request: SourceBuild,
    *,
    progress: Callable[[str], None] = lambda line: None,
) -> dict[BuildStep, frozenset[KernelFamily] | None]:
    """The kernel families of each side, once it is compiled; its log stays in its build folder."""
    steps = plan(request)
    try:
        with locked(request.folder / ".lock", "building there", timeout_seconds=0):
            return {step: _build(request, step, progress) for step in steps}
    except BusyError as error:
        raise BuildError(
            f"Another process is building in {request.folder}. Wait for it, or choose "
            "another place with --out DIR."
        ) from error


def _build(
    request: SourceBuild, step: BuildStep, progress: Callable[[str], None]
) -> frozenset[KernelFamily] | None:
    make_folders(step.folder)
    log = step.folder / LOG
    log.write_text("")
    for verb, command in (("configured", step.configure), ("compiled", step.build)):
        progress(f"{step.binary} is being {verb} (log: {log})")
        run_tool(command, f"The SME2 {step.arm} runner could not be {verb}", log, _SECONDS)
    if not step.binary.is_file():
        raise BuildError(
            f"the build succeeded but made no {step.binary}. Is {request.tree} ExecuTorch 1.4 or "
            "newer?"
        )
    families = families_in(step.binary)
    _check_switch(step, families)
    return families


def families_in(binary: Path) -> frozenset[KernelFamily] | None:
    """The kernel families in a binary; None if it is stripped or has another format."""
    try:
        symbols = read_elf(binary).symbols
    except ElfError:
        return None
    kernels = {symbol.name for symbol in symbols if is_microkernel(symbol.name)}
    return frozenset(family_of(name) for name in kernels) if kernels else None


def _check_switch(step: BuildStep, families: frozenset[KernelFamily] | None) -> None:
    if families is None:
        return
    if step.arm is Arm.ON and KernelFamily.SME2 not in families:
        raise BuildError(
            f"{step.binary} was built with SME2 on but has no SME2 kernel: the compiler or XNNPACK "
            f"is too old. See {step.folder / LOG}."
        )
    wrong = families & {KernelFamily.SME, KernelFamily.SME2}
    if step.arm is Arm.OFF and wrong:
        raise BuildError(
            f"{step.binary} was built with SME2 off but has "
            f"{' and '.join(sorted(family.value.upper() for family in wrong))} kernels: this "
            "ExecuTorch does not know XNNPACK_ENABLE_ARM_SME and XNNPACK_ENABLE_ARM_SME2."
        )
