"""A build from an ExecuTorch source tree as plain values: the request and the steps."""

from __future__ import annotations

import hashlib
import os
import re
import shlex
import shutil
import sys
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

from pytest_sme2.errors import BuildError, UsageError
from pytest_sme2.results import Arm
from pytest_sme2.system.cache import cache_folder
from pytest_sme2.system.processes import whitelisted_environment
from pytest_sme2.system.provision import find_cmake, find_ninja
from pytest_sme2.system.wording import one_of

PLATFORMS = ("mac", "linux", "android")
VARIANTS = ("timing", "xnnlog")
SIDES = ("on", "off", "both")
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
    options: tuple[tuple[str, str], ...] = ()
    """The user's own CMake variables; they override ours."""

    def __post_init__(self) -> None:
        one_of(self.platform, PLATFORMS, "a platform")
        one_of(self.variant, VARIANTS, "a build variant")
        if self.jobs < 1:
            raise UsageError(f"{self.jobs} is not a number of jobs. Give 1 or more.")
        for name, _ in self.options:
            if not re.fullmatch(r"[A-Za-z_][A-Za-z0-9_]*", name):
                raise UsageError(
                    f"{name!r} is not a CMake variable. Write --cmake-option NAME=VALUE."
                )

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


def parse_sides(value: str) -> tuple[Arm, ...]:
    one_of(value, SIDES, "a side of the SME2 switch")
    return (Arm.ON, Arm.OFF) if value == "both" else (Arm(value),)


def parse_option(value: str) -> tuple[str, str]:
    """``NAME=VALUE``."""
    name, equals, setting = value.partition("=")
    if not equals:
        raise UsageError(f"{value!r} is not a CMake option. Write --cmake-option NAME=VALUE.")
    return name, setting


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
    variables = _variables(request, tools, arm) | dict(request.options)
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


# What compilers on a Mac, and a download while configuring need.
_PASSED_ON = (
    *("SDKROOT", "DEVELOPER_DIR", "SSL_CERT_FILE", "SSL_CERT_DIR"),
    *("HTTP_PROXY", "HTTPS_PROXY", "NO_PROXY", "http_proxy", "https_proxy", "no_proxy"),
)


def build_environment() -> dict[str, str]:
    return whitelisted_environment(_PASSED_ON)
