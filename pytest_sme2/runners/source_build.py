"""Builds the stock ``executor_runner`` in a user's ExecuTorch checkout, with SME2 on and off.

Plans are pure values; checks look without touching; only ``build`` starts the compiler, in a
folder of its own. The runner that is built from the wheel is the business of ``runners.py``.
"""

from __future__ import annotations

import hashlib
import json
import os
import platform as host_platform
import re
import shlex
import shutil
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from pytest_sme2.errors import BuildError, ElfError, UsageError
from pytest_sme2.results import Arm, KernelFamily
from pytest_sme2.system.cache import cache_folder
from pytest_sme2.system.choices import one_of
from pytest_sme2.system.elf import read_elf
from pytest_sme2.system.processes import run_process, whitelisted_environment
from pytest_sme2.system.toolchain import find_cmake, find_ninja
from pytest_sme2.trace.kernel_log import family_of, is_microkernel

PLATFORMS = ("mac", "linux", "android")
VARIANTS = ("timing", "xnnlog")
SIDES = ("on", "off", "both")

LEAST_CMAKE = (3, 26)
LEAST_CLANG = 18
BROKEN_GCC = 12
LEAST_NDK = 27
FIRST_XNNLOG = (1, 4)
BYTES_PER_BUILD = 600 * 1024 * 1024
TIMEOUT_SECONDS = 4 * 3600.0
RUNNER = "executor_runner"
LOG = "sme2-build.log"
RECORD = "sme2-build.json"

# ExecuTorch has many submodules; these are the ones this build compiles.
_NEEDED_SUBMODULES = re.compile(
    r"backends/xnnpack/third-party/.+|third-party/(?:flatbuffers|flatcc|gflags|json)"
)
# What compilers on a Mac, ccache, and a download while configuring need.
_PASSED_ON = (
    *("SDKROOT", "DEVELOPER_DIR", "CCACHE_DIR", "SSL_CERT_FILE", "SSL_CERT_DIR"),
    *("HTTP_PROXY", "HTTPS_PROXY", "NO_PROXY", "http_proxy", "https_proxy", "no_proxy"),
)


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
    """CMake variables of the user's own; they win over ours."""

    def __post_init__(self) -> None:
        one_of(self.platform, PLATFORMS, "a platform")
        one_of(self.variant, VARIANTS, "a build variant")
        if self.jobs < 1:
            raise UsageError(f"{self.jobs} is no number of jobs. Give 1 or more.")
        for name, _ in self.options:
            if not re.fullmatch(r"[A-Za-z_][A-Za-z0-9_]*", name):
                raise UsageError(f"{name!r} is no CMake variable. Write --cmake-option NAME=VALUE.")

    @property
    def folder(self) -> Path:
        """Where the builds go: never into the checkout."""
        if self.out is not None:
            return self.out
        key = hashlib.sha256(os.fsencode(self.tree)).hexdigest()[:12]
        return cache_folder() / "source-builds" / key


@dataclass(frozen=True)
class Tools:
    """The programs a build needs, as found on this machine; None where one is missing."""

    cmake: Path | None
    ninja: Path | None
    compiler: Path | None
    ccache: Path | None = None


@dataclass(frozen=True)
class Step:
    """One build: what to run, and what comes of it."""

    arm: Arm
    folder: Path
    configure: tuple[str, ...]
    build: tuple[str, ...]
    binary: Path


@dataclass(frozen=True)
class Built:
    """One finished runner."""

    arm: Arm
    binary: Path
    families: frozenset[KernelFamily] | None
    """The kernel families in the binary; None where it has no symbols to tell by."""


def parse_sides(value: str) -> tuple[Arm, ...]:
    one_of(value, SIDES, "a side of the SME2 switch")
    return (Arm.ON, Arm.OFF) if value == "both" else (Arm(value),)


def parse_option(value: str) -> tuple[str, str]:
    """``NAME=VALUE``."""
    name, equals, setting = value.partition("=")
    if not equals:
        raise UsageError(f"{value!r} is no CMake option. Write --cmake-option NAME=VALUE.")
    return name, setting


def find_tools(environment: Mapping[str, str] = os.environ) -> Tools:
    """The build tools: CMake and Ninja as for our own runner, the compiler as the user has it."""

    def find(*names: str) -> Path | None:
        found = filter(None, map(shutil.which, names))
        return next(map(Path, found), None)

    def packaged(find_it: Callable[[], str], name: str) -> Path | None:
        try:
            return Path(find_it())
        except BuildError:
            return find(name)

    chosen = environment.get("CXX")
    return Tools(
        cmake=packaged(find_cmake, "cmake"),
        ninja=packaged(find_ninja, "ninja"),
        compiler=find(chosen) if chosen else find("clang++", "c++", "g++"),
        ccache=find("ccache"),
    )


# --- The plan -------------------------------------------------------------------------------------


def plan(request: SourceBuild, tools: Tools) -> tuple[Step, ...]:
    """The commands, one build after another: flatcc's build is not safe beside itself."""
    return tuple(_step(request, tools, arm) for arm in request.sides)


def _step(request: SourceBuild, tools: Tools, arm: Arm) -> Step:
    folder = request.folder / f"{request.platform}-{request.variant}-sme2-{arm}"
    cmake = str(tools.cmake or "cmake")
    variables = {**_variables(request, tools, arm), **dict(request.options)}
    return Step(
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
        # Release compiles the log out, and with it the load time and the iterations.
        "EXECUTORCH_ENABLE_LOGGING": "ON",
        # Both: with SME2 alone off, XNNPACK falls back to SME kernels.
        "XNNPACK_ENABLE_ARM_SME": switch,
        "XNNPACK_ENABLE_ARM_SME2": switch,
    }
    if request.variant == "xnnlog":
        # 4 lists the kernels that may run, 5 also says which operators did.
        variables["EXECUTORCH_XNNPACK_LOG_LEVEL"] = "5"
    if request.kleidiai is not None:
        variables["KLEIDIAI_SOURCE_DIR"] = str(request.kleidiai)
    if tools.ninja is not None:
        variables["CMAKE_MAKE_PROGRAM"] = str(tools.ninja)
    if tools.ccache is not None:
        variables["CMAKE_C_COMPILER_LAUNCHER"] = str(tools.ccache)
        variables["CMAKE_CXX_COMPILER_LAUNCHER"] = str(tools.ccache)
    if request.platform == "android":
        ndk = request.ndk or Path("ANDROID_NDK")
        variables["CMAKE_TOOLCHAIN_FILE"] = str(ndk / "build/cmake/android.toolchain.cmake")
        variables["ANDROID_ABI"] = "arm64-v8a"
        variables["ANDROID_PLATFORM"] = "android-28"
    elif request.platform == "mac":
        variables["CMAKE_OSX_ARCHITECTURES"] = "arm64"
    if request.platform == "linux" and tools.compiler is not None:
        variables["CMAKE_CXX_COMPILER"] = str(tools.compiler)
        c_compiler = _c_compiler(tools.compiler)
        if c_compiler is not None:
            variables["CMAKE_C_COMPILER"] = str(c_compiler)
    return variables


def _c_compiler(compiler: Path) -> Path | None:
    """The C compiler that belongs to a C++ compiler, by their names."""
    for plus, plain in (("clang++", "clang"), ("g++", "gcc"), ("c++", "cc")):
        if plus in compiler.name:
            beside = compiler.with_name(compiler.name.replace(plus, plain))
            return beside if beside.exists() else None
    return None


def dry_run(request: SourceBuild, tools: Tools) -> str:
    """The commands as a shell would take them."""
    lines = []
    for step in plan(request, tools):
        lines.append(f"# {request.platform}, {request.variant}, SME2 {step.arm}: {step.binary}")
        lines.append(" \\\n    ".join(_one_option_a_line(step.configure)))
        lines.append(shlex.join(step.build))
        lines.append("")
    lines.append(f"# then: {usage_line(request, plan(request, tools))}")
    return "\n".join(lines) + "\n"


def _one_option_a_line(command: Sequence[str]) -> list[str]:
    first = next(
        (index for index, word in enumerate(command) if word.startswith("-D")), len(command)
    )
    return [shlex.join(command[:first]), *(shlex.quote(word) for word in command[first:])]


def usage_line(request: SourceBuild, steps: Sequence[Step]) -> str:
    """The command line that uses what was built."""
    words = ["pytest", f"--device={request.platform}"]
    for step in steps:
        words += [f"--runner-{step.arm}", str(step.binary)]
    return shlex.join(words)


# --- The check beforehand -------------------------------------------------------------------------


def check(request: SourceBuild, tools: Tools) -> tuple[str, ...]:
    """Everything that stands in the way, in one list, each with its remedy."""
    return (
        *_check_tree(request.tree),
        *_check_version(request),
        *_check_tools(tools),
        *_check_host(request),
        *_check_compiler(request, tools),
        *_check_python(request.python),
        *_check_kleidiai(request),
        *_check_disk(request),
    )


def notes(request: SourceBuild) -> tuple[str, ...]:
    """What the user should know and need not act on."""
    if request.kleidiai is None and "KLEIDIAI_SOURCE_DIR" not in dict(request.options):
        return (
            "configuring downloads KleidiAI; without a network, give a copy with --kleidiai DIR.",
        )
    return ()


def _check_tree(tree: Path) -> list[str]:
    if not tree.is_dir():
        return [f"{tree} is no folder. Give the ExecuTorch checkout with --executorch DIR."]
    problems = []
    missing = [
        name
        for name in ("CMakeLists.txt", "backends/xnnpack/CMakeLists.txt")
        if not (tree / name).is_file()
    ]
    if missing:
        return [
            f"{tree} is no ExecuTorch checkout: it has no {' and no '.join(missing)}. "
            "Give the folder that holds ExecuTorch's own CMakeLists.txt."
        ]
    if tree.name != "executorch":
        problems.append(
            f"the checkout's folder is named {tree.name!r}, and ExecuTorch builds only in one "
            "named 'executorch'. Rename it, or link to it under that name."
        )
    empty = [path for path in _submodules(tree) if _is_empty(tree / path)]
    if empty:
        problems.append(
            f"{len(empty)} of ExecuTorch's submodules are not checked out "
            f"({', '.join(empty)}). Run: "
            + shlex.join(["git", "-C", str(tree), "submodule", "update", "--init", "--recursive"])
        )
    return problems


def _check_version(request: SourceBuild) -> list[str]:
    version = executorch_version(request.tree)
    if version is None or request.variant != "xnnlog":
        return []
    found = _version(version, r"^(\d+)\.(\d+)")
    if found is not None and found < FIRST_XNNLOG:
        return [
            f"{request.tree} is ExecuTorch {version}, which cannot be told to log XNNPACK. "
            f"Check out {_dotted(FIRST_XNNLOG)} or newer, or build the timing variant."
        ]
    return []


def executorch_version(tree: Path) -> str | None:
    """The version a checkout says it is, such as ``1.5.0`` or ``1.6.0a0``."""
    try:
        lines = (tree / "version.txt").read_text(errors="replace").split()
    except OSError:
        return None
    return lines[0][:40] if lines else None


def _submodules(tree: Path) -> list[str]:
    try:
        text = (tree / ".gitmodules").read_text(errors="replace")
    except OSError:
        return []
    paths = re.findall(r"^\s*path\s*=\s*(\S+)\s*$", text, re.MULTILINE)
    return sorted(path for path in paths if _NEEDED_SUBMODULES.fullmatch(path))


def _is_empty(folder: Path) -> bool:
    return not folder.is_dir() or next(folder.iterdir(), None) is None


def _check_tools(tools: Tools) -> list[str]:
    problems = []
    if tools.ninja is None:
        problems.append("ninja is not installed. Run: pip install ninja")
    if tools.cmake is None:
        problems.append("CMake is not installed. Run: pip install cmake")
        return problems
    version = _version(_output([str(tools.cmake), "--version"]), r"version (\d+)\.(\d+)")
    if version is None:
        problems.append(f"{tools.cmake} does not tell its version. Run: pip install cmake")
    elif version < LEAST_CMAKE:
        problems.append(
            f"{tools.cmake} is version {_dotted(version)}, and ExecuTorch needs "
            f"{_dotted(LEAST_CMAKE)} or newer. Run: pip install --upgrade cmake"
        )
    return problems


def _check_host(request: SourceBuild) -> list[str]:
    system, machine = host_platform.system(), host_platform.machine().lower()
    arm = machine in ("arm64", "aarch64")
    if request.platform == "mac" and not (system == "Darwin" and arm):
        return [
            f"a runner for a Mac is built on an Apple Silicon Mac, and this is {system} on "
            f"{machine}. Run the command there, or choose another --platform."
        ]
    if request.platform == "linux" and system != "Linux":
        return [
            f"a runner for Linux is built on Linux, and this is {system}. Run the command there, "
            "or choose another --platform."
        ]
    if request.platform == "linux" and not arm and not _cross_compiles(request):
        return [
            f"this machine is {machine}, and SME2 is Arm's. Cross-compile with "
            "--cmake-option CMAKE_TOOLCHAIN_FILE=FILE, or build on an aarch64 machine."
        ]
    return []


def _cross_compiles(request: SourceBuild) -> bool:
    return "CMAKE_TOOLCHAIN_FILE" in dict(request.options)


def _check_compiler(request: SourceBuild, tools: Tools) -> list[str]:
    if request.platform == "android":
        return _check_ndk(request)
    if _cross_compiles(request):
        file = Path(dict(request.options)["CMAKE_TOOLCHAIN_FILE"])
        return [] if file.is_file() else [f"the toolchain file {file} does not exist."]
    chosen = dict(request.options).get("CMAKE_CXX_COMPILER")
    compiler = chosen or tools.compiler
    if compiler is None:
        return ["there is no C++ compiler. Install clang 18 or newer."]
    text = _output([str(compiler), "--version"])
    if "Apple clang" in text:
        # Apple counts its own way: 17 is the first built from LLVM 18 or newer.
        version = _version(text, r"version (\d+)()")
        least, name = 17, "Apple clang"
    elif "clang" in text:
        version = _version(text, r"version (\d+)\.(\d+)")
        least, name = LEAST_CLANG, "clang"
    else:
        version = _version(text, r"\) (\d+)\.(\d+)")
        if version is None:
            return [f"{compiler} does not tell its version. Install clang 18 or newer."]
        if version[0] <= BROKEN_GCC:
            return [
                f"{compiler} is gcc {_dotted(version)}, which dies with an internal error in "
                "KleidiAI. Install clang 18 or newer and choose it with CXX=clang++."
            ]
        return []
    if version is None or (Arm.ON in request.sides and version[0] < least):
        return [
            f"{compiler} is {name} {_dotted(version) if version else 'of an unknown version'}, "
            f"and XNNPACK leaves SME2 out for anything below {least}. Install a newer one."
        ]
    return []


def _check_ndk(request: SourceBuild) -> list[str]:
    if request.ndk is None:
        return [
            "building for Android needs the NDK. Give it with --ndk DIR or in ANDROID_NDK; "
            f"version {LEAST_NDK} or newer."
        ]
    if not (request.ndk / "build/cmake/android.toolchain.cmake").is_file():
        return [
            f"{request.ndk} is no Android NDK: it has no build/cmake/android.toolchain.cmake. "
            "Give the folder that holds source.properties."
        ]
    try:
        text = (request.ndk / "source.properties").read_text(errors="replace")
    except OSError:
        text = ""
    version = _version(text, r"Pkg\.Revision\s*=\s*(\d+)\.(\d+)")
    if version is None:
        return [f"{request.ndk} does not tell its version. Give NDK {LEAST_NDK} or newer."]
    if version[0] < LEAST_NDK and Arm.ON in request.sides:
        return [
            f"{request.ndk} is NDK {_dotted(version)}, whose clang is older than {LEAST_CLANG}: "
            f"XNNPACK would leave SME2 out. Give NDK {LEAST_NDK} or newer."
        ]
    return []


def _check_python(python: Path) -> list[str]:
    question = (
        "import importlib.util as u; "
        "print(' '.join(n for n in ('torch', 'yaml') if u.find_spec(n) is None) or 'all')"
    )
    answer = _output([str(python), "-c", question]).strip()
    if not answer:
        return [f"{python} is no Python that runs. Give one that has torch with --python FILE."]
    if answer != "all":
        return [
            f"ExecuTorch's build runs Python code that imports {' and '.join(answer.split())}, "
            f"and {python} does not have that. Give another Python with --python FILE, or run "
            "ExecuTorch's own install_executorch.sh."
        ]
    return []


def _check_kleidiai(request: SourceBuild) -> list[str]:
    folder = request.kleidiai
    if folder is not None and not (folder / "CMakeLists.txt").is_file():
        return [f"{folder} holds no KleidiAI: it has no CMakeLists.txt."]
    return []


def _check_disk(request: SourceBuild) -> list[str]:
    folder = request.folder
    while not folder.exists():
        folder = folder.parent
    needed = BYTES_PER_BUILD * len(request.sides)
    free = shutil.disk_usage(folder).free
    if free < needed:
        return [
            f"{folder} has {free // 2**20} MiB free, and {len(request.sides)} builds may need "
            f"{needed // 2**20} MiB. Make room, or choose another place with --out DIR."
        ]
    return []


def _output(command: Sequence[str]) -> str:
    try:
        finished = run_process(command, timeout_seconds=60, environment=_environment())
    except OSError:
        return ""
    return finished.stdout


def _version(text: str, pattern: str) -> tuple[int, int] | None:
    match = re.search(pattern, text)
    return (int(match[1]), int(match[2] or 0)) if match else None


def _dotted(version: tuple[int, int]) -> str:
    return f"{version[0]}.{version[1]}"


def _environment() -> dict[str, str]:
    return whitelisted_environment(_PASSED_ON)


# --- The build ------------------------------------------------------------------------------------


def build(
    request: SourceBuild,
    tools: Tools,
    *,
    progress: Callable[[str], None] = lambda line: None,
    timeout_seconds: float = TIMEOUT_SECONDS,
) -> tuple[Built, ...]:
    """Configure and compile each side; the log of each stays in its build folder."""
    import filelock

    request.folder.mkdir(parents=True, exist_ok=True)
    built = []
    lock = filelock.FileLock(request.folder / ".lock", timeout=0)
    try:
        with lock:
            for step in plan(request, tools):
                built.append(_build_step(request, step, progress, timeout_seconds))
    except filelock.Timeout as error:
        raise BuildError(
            f"another build is at work in {request.folder}. Wait for it, or choose another place "
            "with --out DIR."
        ) from error
    return tuple(built)


def _build_step(
    request: SourceBuild,
    step: Step,
    progress: Callable[[str], None],
    timeout_seconds: float,
) -> Built:
    step.folder.mkdir(parents=True, exist_ok=True)
    log = step.folder / LOG
    with log.open("wb") as file:
        for what, command in (("configuring", step.configure), ("compiling", step.build)):
            progress(f"{what} {step.binary} (log: {log})")
            finished = run_process(
                command, timeout_seconds=timeout_seconds, environment=_environment(), stdout=file
            )
            file.write(finished.stderr.encode())
            file.flush()
            if finished.timed_out:
                raise BuildError(
                    f"{what} the SME2 {step.arm} runner took over {timeout_seconds:.0f} s and was "
                    f"ended. See {log}."
                )
            if finished.returncode != 0:
                raise BuildError(
                    f"{what} the SME2 {step.arm} runner failed with exit code "
                    f"{finished.returncode}: {_first_error(log)} See {log}."
                )
    if not step.binary.is_file():
        raise BuildError(
            f"the build succeeded and left no {step.binary}. Is {request.tree} an ExecuTorch "
            "release from 1.4 on?"
        )
    families = families_in(step.binary)
    _check_switch(step, families)
    record = {
        "tree": str(request.tree),
        "executorch": executorch_version(request.tree),
        "platform": request.platform,
        "variant": request.variant,
        "sme2": str(step.arm),
        "configure": list(step.configure),
    }
    (step.folder / RECORD).write_text(json.dumps(record, indent=2) + "\n")
    return Built(step.arm, step.binary, families)


def _first_error(log: Path) -> str:
    """The line of a build log a user would look for."""
    lines = log.read_text(errors="replace").splitlines()
    for pattern in (r"^CMake Error", r"\berror:", r"^FAILED:"):
        for index, line in enumerate(lines):
            if re.search(pattern, line):
                # CMake says where on the first line and what on the second.
                shown = lines[index : index + 2] if line.startswith("CMake Error") else [line]
                return " ".join(part.strip() for part in shown).strip()[:300] + "."
    return f"{lines[-1].strip()[:300]}." if lines else "it printed nothing."


def families_in(binary: Path) -> frozenset[KernelFamily] | None:
    """The kernel families a binary carries; None where it is stripped, or of another format."""
    try:
        symbols = read_elf(binary).symbols
    except ElfError:
        return None
    kernels = {symbol.name for symbol in symbols if is_microkernel(symbol.name)}
    return frozenset(family_of(name) for name in kernels) if kernels else None


def _check_switch(step: Step, families: frozenset[KernelFamily] | None) -> None:
    if families is None:
        return
    if step.arm is Arm.ON and KernelFamily.SME2 not in families:
        raise BuildError(
            f"{step.binary} was built with SME2 on and holds no SME2 kernel: the compiler is too "
            f"old for them, or XNNPACK is. See {step.folder / LOG}."
        )
    wrong = families & {KernelFamily.SME, KernelFamily.SME2}
    if step.arm is Arm.OFF and wrong:
        raise BuildError(
            f"{step.binary} was built with SME2 off and holds "
            f"{' and '.join(sorted(family.value.upper() for family in wrong))} kernels: this "
            "ExecuTorch does not know XNNPACK_ENABLE_ARM_SME and XNNPACK_ENABLE_ARM_SME2."
        )
