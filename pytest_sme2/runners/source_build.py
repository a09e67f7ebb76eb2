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
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from pytest_sme2.errors import BuildError, BusyError, ElfError
from pytest_sme2.results import PAIR, Arm, KernelFamily
from pytest_sme2.runners.sme2 import run_tool
from pytest_sme2.system.cache import cache_folder
from pytest_sme2.system.elf import read_elf
from pytest_sme2.system.files import make_folders
from pytest_sme2.system.locks import locked
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
