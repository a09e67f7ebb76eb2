"""Builds the stock ``executor_runner`` in a user's ExecuTorch checkout, with SME2 on and off.

Plans are pure values. Checks change nothing. Only ``build`` starts the compiler, in a separate
folder. ``sme2.py`` builds the runner from the wheel.
"""

from __future__ import annotations

import hashlib
import os
import platform as host_platform
import re
import shlex
import shutil
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from packaging.version import Version

from pytest_sme2.errors import BuildError, BusyError, ElfError
from pytest_sme2.results import Arm, KernelFamily
from pytest_sme2.runners.sme2 import run_tool
from pytest_sme2.system.cache import cache_folder
from pytest_sme2.system.elf import read_elf
from pytest_sme2.system.files import make_folders
from pytest_sme2.system.locks import locked
from pytest_sme2.system.processes import run_process
from pytest_sme2.system.provision import find_cmake, find_ninja
from pytest_sme2.trace.kernel_log import family_of, is_microkernel

PLATFORMS = ("mac", "linux", "android")
VARIANTS = ("timing", "xnnlog")
RUNNER = "executor_runner"
LOG = "sme2-build.log"


@dataclass(frozen=True)
class SourceBuild:
    """What the user asked for."""

    tree: Path
    platform: str
    sides: tuple[Arm, ...] = (Arm.ON, Arm.OFF)
    variant: str = "timing"
    ndk: Path | None = None
    kleidiai: Path | None = None
    python: Path = field(default_factory=lambda: Path(sys.executable))
    out: Path | None = None
    jobs: int = 1
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
class Tools:
    """The programs that a build needs, as found on this machine; None if one is missing."""

    cmake: Path | None
    ninja: Path | None
    compiler: Path | None
    problems: tuple[str, ...] = ()
    """Why CMake or Ninja is missing."""


@dataclass(frozen=True)
class BuildStep:
    """One build: the commands and the result."""

    arm: Arm
    folder: Path
    configure: tuple[str, ...]
    build: tuple[str, ...]
    binary: Path


def find_tools() -> Tools:
    """The build tools: CMake and Ninja as for our own runner, and the user's compiler."""
    found: dict[str, Path] = {}
    problems = []
    for name, find in (("cmake", find_cmake), ("ninja", find_ninja)):
        try:
            found[name] = Path(find())
        except BuildError as error:
            problems.append(str(error))
    chosen = os.environ.get("CXX")
    compilers = map(shutil.which, (chosen,) if chosen else ("clang++", "c++", "g++"))
    compiler = next(map(Path, filter(None, compilers)), None)
    return Tools(found.get("cmake"), found.get("ninja"), compiler, tuple(problems))


def plan(request: SourceBuild, tools: Tools) -> tuple[BuildStep, ...]:
    """The commands, one build after another, because flatcc cannot be built twice at once."""
    return tuple(_step(request, tools, arm) for arm in request.sides)


def _step(request: SourceBuild, tools: Tools, arm: Arm) -> BuildStep:
    folder = request.folder / f"{request.platform}-{request.variant}-sme2-{arm}"
    cmake = str(tools.cmake or "cmake")
    variables = {**_variables(request, tools, arm), **request.options}
    return BuildStep(
        arm=arm,
        folder=folder,
        configure=(
            *(cmake, "-S", str(request.tree), "-B", str(folder), "-G", "Ninja"),
            *(f"-D{name}={value}" for name, value in variables.items()),
        ),
        build=(
            *(cmake, "--build", str(folder)),
            *("--target", RUNNER, "--parallel", str(request.jobs)),
        ),
        binary=folder / RUNNER,
    )


def _variables(request: SourceBuild, tools: Tools, arm: Arm) -> dict[str, str]:
    switch = "ON" if arm is Arm.ON else "OFF"
    variables = {
        "CMAKE_BUILD_TYPE": "Release",
        "PYTHON_EXECUTABLE": str(request.python),
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
    }
    if request.variant == "xnnlog":
        # 4 lists the kernels that may run, 5 also the operators that ran.
        variables["EXECUTORCH_XNNPACK_LOG_LEVEL"] = "5"
    if request.kleidiai is not None:
        variables["KLEIDIAI_SOURCE_DIR"] = str(request.kleidiai)
    if tools.ninja is not None:
        variables["CMAKE_MAKE_PROGRAM"] = str(tools.ninja)
    if request.platform == "android":
        ndk = request.ndk or Path("ANDROID_NDK")
        variables["CMAKE_TOOLCHAIN_FILE"] = str(ndk / "build/cmake/android.toolchain.cmake")
        variables["ANDROID_ABI"] = "arm64-v8a"
        variables["ANDROID_PLATFORM"] = "android-28"
        # Phones from Android 15 on may have pages of 16 KB.
        variables["ANDROID_SUPPORT_FLEXIBLE_PAGE_SIZES"] = "ON"
    elif request.platform == "mac":
        variables["CMAKE_OSX_ARCHITECTURES"] = "arm64"
    elif tools.compiler is not None:
        variables["CMAKE_CXX_COMPILER"] = str(tools.compiler)
        # The C compiler that belongs to it has nearly the same name.
        for plus, plain in (("clang++", "clang"), ("g++", "gcc"), ("c++", "cc")):
            beside = tools.compiler.with_name(tools.compiler.name.replace(plus, plain))
            if beside != tools.compiler and beside.exists():
                variables["CMAKE_C_COMPILER"] = str(beside)
                break
    return variables


def dry_run(request: SourceBuild, tools: Tools) -> str:
    """The commands in shell syntax."""
    lines = []
    for step in plan(request, tools):
        plain = [word for word in step.configure if not word.startswith("-D")]
        options = map(shlex.quote, step.configure[len(plain) :])
        lines += [
            f"# {request.platform}, {request.variant}, SME2 {step.arm}: {step.binary}",
            " \\\n    ".join([shlex.join(plain), *options]),
            f"{shlex.join(step.build)}\n",
        ]
    lines.append(f"# then: {usage_line(request, plan(request, tools))}")
    return "\n".join(lines) + "\n"


def usage_line(request: SourceBuild, steps: Sequence[BuildStep]) -> str:
    """The command line that uses the built runners."""
    built = {step.arm: str(step.binary) for step in steps}
    pair = ",".join(built.get(arm, str(arm).upper()) for arm in (Arm.ON, Arm.OFF))
    return shlex.join(["pytest", f"--device={request.platform}", "--sme2-runner", pair])


TIMEOUT_SECONDS = 4 * 3600.0
LEAST_CLANG = 18
# Apple has its own version numbers: 17 is the first built from LLVM 18 or newer.
LEAST_APPLE_CLANG = 17
BROKEN_GCC = 12
LEAST_NDK = 27
_TOOLCHAIN = "CMAKE_TOOLCHAIN_FILE"
# ExecuTorch has many submodules; these are the ones this build compiles.
_NEEDED_SUBMODULES = re.compile(
    r"backends/xnnpack/third-party/.+|third-party/(?:flatbuffers|flatcc|gflags|json)"
)


def check(request: SourceBuild, tools: Tools) -> tuple[str, ...]:
    """All problems, each with its remedy."""
    return (
        *_check_tree(request),
        *tools.problems,
        *_check_host(request),
        *_check_compiler(request, tools),
    )


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
    modules = re.findall(r"^\s*path\s*=\s*(\S+)\s*$", _text(tree / ".gitmodules"), re.MULTILINE)
    needed = sorted(path for path in modules if _NEEDED_SUBMODULES.fullmatch(path))
    empty = [path for path in needed if not any((tree / path).glob("*"))]
    if empty:
        yield (
            f"{len(empty)} of ExecuTorch's submodules are not checked out "
            f"({', '.join(empty)}). Run: "
            + shlex.join(["git", "-C", str(tree), "submodule", "update", "--init", "--recursive"])
        )


def _text(file: Path) -> str:
    """What a file says; nothing where there is none."""
    try:
        return file.read_text(errors="replace")
    except OSError:
        return ""


def _check_host(request: SourceBuild) -> Iterator[str]:
    system, machine = host_platform.system(), host_platform.machine().lower()
    arm = machine in ("arm64", "aarch64")
    if request.platform == "mac" and not (system == "Darwin" and arm):
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


def _check_compiler(request: SourceBuild, tools: Tools) -> Iterator[str]:
    options = request.options
    if request.platform == "android":
        yield from _check_ndk(request.ndk, request.sides)
        return
    if _TOOLCHAIN in options:
        if not Path(options[_TOOLCHAIN]).is_file():
            yield f"the toolchain file {options[_TOOLCHAIN]} does not exist."
        return
    compiler = options.get("CMAKE_CXX_COMPILER") or tools.compiler
    if compiler is None:
        yield f"no C++ compiler was found. Install clang {LEAST_CLANG} or newer."
        return
    text = _output([str(compiler), "--version"])
    name = next((name for name in ("Apple clang", "clang") if name in text), "gcc")
    version = _version(text, r"\) " if name == "gcc" else "version ")
    least = LEAST_APPLE_CLANG if name == "Apple clang" else LEAST_CLANG
    if version is None:
        yield f"{compiler} does not print its version. Install clang {LEAST_CLANG} or newer."
    elif name == "gcc" and version.major <= BROKEN_GCC:
        yield (
            f"{compiler} is gcc {version}, which fails with an internal error in "
            f"KleidiAI. Install clang {LEAST_CLANG} or newer and choose it with CXX=clang++."
        )
    elif name != "gcc" and Arm.ON in request.sides and version.major < least:
        yield (
            f"{compiler} is {name} {version}, but XNNPACK builds SME2 kernels only with "
            f"{least} or newer. Install a newer one."
        )


def _check_ndk(ndk: Path | None, sides: Sequence[Arm]) -> Iterator[str]:
    if ndk is None:
        yield (
            "building for Android needs the NDK. Give it with --ndk DIR or in ANDROID_NDK; "
            f"version {LEAST_NDK} or newer."
        )
        return
    version = _version(_text(ndk / "source.properties"), r"Pkg\.Revision\s*=\s*")
    if not (ndk / "build/cmake/android.toolchain.cmake").is_file():
        yield (
            f"{ndk} is not an Android NDK: it has no build/cmake/android.toolchain.cmake. "
            "Give the folder with source.properties."
        )
    elif version is None:
        yield f"{ndk} does not say its version. Give NDK {LEAST_NDK} or newer."
    elif version.major < LEAST_NDK and Arm.ON in sides:
        yield (
            f"{ndk} is NDK {version}, whose clang is older than {LEAST_CLANG}: "
            f"XNNPACK would build no SME2 kernels. Give NDK {LEAST_NDK} or newer."
        )


def _output(command: Sequence[str]) -> str:
    try:
        return run_process(command, timeout_seconds=60).stdout
    except OSError:
        return ""


def _version(text: str, before: str) -> Version | None:
    match = re.search(rf"{before}(\d+\.\d+)", text)
    return Version(match[1]) if match else None


def build(
    request: SourceBuild,
    tools: Tools,
    *,
    progress: Callable[[str], None] = lambda line: None,
    timeout_seconds: float = TIMEOUT_SECONDS,
) -> dict[BuildStep, frozenset[KernelFamily] | None]:
    """The kernel families of each side, once it is compiled; its log stays in its build folder."""
    try:
        with locked(request.folder / ".lock", "building there", timeout_seconds=0):
            steps = plan(request, tools)
            return {step: _build(request, step, progress, timeout_seconds) for step in steps}
    except BusyError as error:
        raise BuildError(
            f"Another process is building in {request.folder}. Wait for it, or choose "
            "another place with --out DIR."
        ) from error


def _build(
    request: SourceBuild, step: BuildStep, progress: Callable[[str], None], timeout_seconds: float
) -> frozenset[KernelFamily] | None:
    make_folders(step.folder)
    log = step.folder / LOG
    log.write_text("")
    for verb, command in (("configured", step.configure), ("compiled", step.build)):
        progress(f"{step.binary} is being {verb} (log: {log})")
        run_tool(command, f"The SME2 {step.arm} runner could not be {verb}", log, timeout_seconds)
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
