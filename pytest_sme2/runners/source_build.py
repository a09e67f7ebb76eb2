"""Builds the stock ``executor_runner`` in a user's ExecuTorch checkout, with SME2 on and off.

Plans are pure values. Checks change nothing. Only ``build`` starts the compiler, in a separate
folder. ``sme2.py`` builds the runner from the wheel.
"""

from __future__ import annotations

import json
import platform as host_platform
import re
import shlex
import shutil
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from pytest_sme2.errors import BuildError, BusyError, ElfError
from pytest_sme2.results import Arm, KernelFamily
from pytest_sme2.runners.source_plan import (
    LOG,
    BuildStep,
    SourceBuild,
    Tools,
    build_environment,
    plan,
)
from pytest_sme2.system.elf import read_elf
from pytest_sme2.system.locks import locked
from pytest_sme2.system.processes import run_process
from pytest_sme2.trace.kernel_log import family_of, is_microkernel

LEAST_CMAKE = (3, 26)


LEAST_CLANG = 18


BROKEN_GCC = 12


LEAST_NDK = 27


FIRST_XNNLOG = (1, 4)


BYTES_PER_BUILD = 600 * 1024 * 1024


# ExecuTorch has many submodules; these are the ones this build compiles.
_NEEDED_SUBMODULES = re.compile(
    r"backends/xnnpack/third-party/.+|third-party/(?:flatbuffers|flatcc|gflags|json)"
)


def check(request: SourceBuild, tools: Tools) -> tuple[str, ...]:
    """All problems, each with its remedy."""
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
    """What the user should know, without having to act."""
    if request.kleidiai is None and "KLEIDIAI_SOURCE_DIR" not in dict(request.options):
        return (
            "configuring downloads KleidiAI; without a network, give a copy with --kleidiai DIR.",
        )
    return ()


def _check_tree(tree: Path) -> list[str]:
    if not tree.is_dir():
        return [f"{tree} is not a folder. Give the ExecuTorch checkout with --executorch DIR."]
    problems = []
    missing = [
        name
        for name in ("CMakeLists.txt", "backends/xnnpack/CMakeLists.txt")
        if not (tree / name).is_file()
    ]
    if missing:
        return [
            f"{tree} is not an ExecuTorch checkout: it has no {' and no '.join(missing)}. "
            "Give the folder with ExecuTorch's own CMakeLists.txt."
        ]
    if tree.name != "executorch":
        problems.append(
            f"the checkout's folder is named {tree.name!r}, but ExecuTorch builds only in a folder "
            "named 'executorch'. Rename it, or make a link with that name."
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
    version = tree_version(request.tree)
    if version is None or request.variant != "xnnlog":
        return []
    found = _version(version, r"^(\d+)\.(\d+)")
    if found is not None and found < FIRST_XNNLOG:
        return [
            f"{request.tree} is ExecuTorch {version}, which cannot log XNNPACK. "
            f"Check out {_dotted(FIRST_XNNLOG)} or newer, or build the timing variant."
        ]
    return []


def tree_version(tree: Path) -> str | None:
    """The version of a checkout, such as ``1.5.0`` or ``1.6.0a0``."""
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
        problems.append(f"{tools.cmake} does not print its version. Run: pip install cmake")
    elif version < LEAST_CMAKE:
        problems.append(
            f"{tools.cmake} is version {_dotted(version)}, but ExecuTorch needs "
            f"{_dotted(LEAST_CMAKE)} or newer. Run: pip install --upgrade cmake"
        )
    return problems


def _check_host(request: SourceBuild) -> list[str]:
    system, machine = host_platform.system(), host_platform.machine().lower()
    arm = machine in ("arm64", "aarch64")
    if request.platform == "mac" and not (system == "Darwin" and arm):
        return [
            f"a runner for a Mac must be built on an Apple Silicon Mac, but this is {system} on "
            f"{machine}. Run the command on a Mac, or choose another --platform."
        ]
    if request.platform == "linux" and system != "Linux":
        return [
            f"a runner for Linux must be built on Linux, but this is {system}. Run the command on "
            "Linux, or choose another --platform."
        ]
    if request.platform == "linux" and not arm and not _cross_compiles(request):
        return [
            f"this machine is {machine}, but only Arm has SME2. Cross-compile with "
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
        return ["no C++ compiler was found. Install clang 18 or newer."]
    text = _output([str(compiler), "--version"])
    if "Apple clang" in text:
        # Apple has its own version numbers: 17 is the first built from LLVM 18 or newer.
        version = _version(text, r"version (\d+)()")
        least, name = 17, "Apple clang"
    elif "clang" in text:
        version = _version(text, r"version (\d+)\.(\d+)")
        least, name = LEAST_CLANG, "clang"
    else:
        version = _version(text, r"\) (\d+)\.(\d+)")
        if version is None:
            return [f"{compiler} does not print its version. Install clang 18 or newer."]
        if version[0] <= BROKEN_GCC:
            return [
                f"{compiler} is gcc {_dotted(version)}, which fails with an internal error in "
                "KleidiAI. Install clang 18 or newer and choose it with CXX=clang++."
            ]
        return []
    if version is None or (Arm.ON in request.sides and version[0] < least):
        return [
            f"{compiler} is {name} {_dotted(version) if version else 'of an unknown version'}, "
            f"but XNNPACK builds SME2 kernels only with {least} or newer. Install a newer one."
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
            f"{request.ndk} is not an Android NDK: it has no build/cmake/android.toolchain.cmake. "
            "Give the folder with source.properties."
        ]
    try:
        text = (request.ndk / "source.properties").read_text(errors="replace")
    except OSError:
        text = ""
    version = _version(text, r"Pkg\.Revision\s*=\s*(\d+)\.(\d+)")
    if version is None:
        return [f"{request.ndk} does not say its version. Give NDK {LEAST_NDK} or newer."]
    if version[0] < LEAST_NDK and Arm.ON in request.sides:
        return [
            f"{request.ndk} is NDK {_dotted(version)}, whose clang is older than {LEAST_CLANG}: "
            f"XNNPACK would build no SME2 kernels. Give NDK {LEAST_NDK} or newer."
        ]
    return []


def _check_python(python: Path) -> list[str]:
    question = (
        "import importlib.util as u; "
        "print(' '.join(n for n in ('torch', 'yaml') if u.find_spec(n) is None) or 'all')"
    )
    answer = _output([str(python), "-c", question]).strip()
    if not answer:
        return [f"{python} is not a working Python. Give one that has torch with --python FILE."]
    if answer != "all":
        return [
            f"ExecuTorch's build runs Python code that imports {' and '.join(answer.split())}, "
            f"but {python} does not have that. Give another Python with --python FILE, or run "
            "ExecuTorch's own install_executorch.sh."
        ]
    return []


def _check_kleidiai(request: SourceBuild) -> list[str]:
    folder = request.kleidiai
    if folder is not None and not (folder / "CMakeLists.txt").is_file():
        return [f"{folder} is not KleidiAI: it has no CMakeLists.txt."]
    return []


def _check_disk(request: SourceBuild) -> list[str]:
    folder = request.folder
    while not folder.exists():
        folder = folder.parent
    needed = BYTES_PER_BUILD * len(request.sides)
    free = shutil.disk_usage(folder).free
    if free < needed:
        return [
            f"{folder} has {free // 2**20} MiB free, but {len(request.sides)} builds may need "
            f"{needed // 2**20} MiB. Free space, or choose another folder with --out DIR."
        ]
    return []


def _output(command: Sequence[str]) -> str:
    try:
        finished = run_process(command, timeout_seconds=60, environment=build_environment())
    except OSError:
        return ""
    return finished.stdout


def _version(text: str, pattern: str) -> tuple[int, int] | None:
    match = re.search(pattern, text)
    return (int(match[1]), int(match[2] or 0)) if match else None


def _dotted(version: tuple[int, int]) -> str:
    return f"{version[0]}.{version[1]}"


TIMEOUT_SECONDS = 4 * 3600.0
RECORD = "sme2-build.json"


@dataclass(frozen=True)
class Built:
    """One finished runner."""

    arm: Arm
    binary: Path
    families: frozenset[KernelFamily] | None
    """The kernel families in the binary; None if it has no symbols."""


def build(
    request: SourceBuild,
    tools: Tools,
    *,
    progress: Callable[[str], None] = lambda line: None,
    timeout_seconds: float = TIMEOUT_SECONDS,
) -> tuple[Built, ...]:
    """Configure and compile each side; the log of each stays in its build folder."""
    built = []
    try:
        with locked(request.folder / ".lock", "building there", timeout_seconds=0):
            for step in plan(request, tools):
                built.append(_build_step(request, step, progress, timeout_seconds))
    except BusyError as error:
        raise BuildError(
            f"Another process is building in {request.folder}. Wait for it, or choose "
            "another place with --out DIR."
        ) from error
    return tuple(built)


def _build_step(
    request: SourceBuild,
    step: BuildStep,
    progress: Callable[[str], None],
    timeout_seconds: float,
) -> Built:
    step.folder.mkdir(parents=True, exist_ok=True)
    log = step.folder / LOG
    with log.open("wb") as file:
        for what, command in (("configuring", step.configure), ("compiling", step.build)):
            progress(f"{what} {step.binary} (log: {log})")
            finished = run_process(
                command,
                timeout_seconds=timeout_seconds,
                environment=build_environment(),
                stdout=file,
            )
            file.write(finished.stderr.encode())
            file.flush()
            if finished.timed_out:
                raise BuildError(
                    f"{what} the SME2 {step.arm} runner took more than {timeout_seconds:.0f} s and "
                    f"was stopped. See {log}."
                )
            if finished.returncode != 0:
                raise BuildError(
                    f"{what} the SME2 {step.arm} runner failed with exit code "
                    f"{finished.returncode}: {_first_error(log)} See {log}."
                )
    if not step.binary.is_file():
        raise BuildError(
            f"the build succeeded but made no {step.binary}. Is {request.tree} ExecuTorch 1.4 or "
            "newer?"
        )
    families = families_in(step.binary)
    _check_switch(step, families)
    record = {
        "tree": str(request.tree),
        "executorch": tree_version(request.tree),
        "platform": request.platform,
        "variant": request.variant,
        "sme2": str(step.arm),
        "configure": list(step.configure),
    }
    (step.folder / RECORD).write_text(json.dumps(record, indent=2) + "\n")
    return Built(step.arm, step.binary, families)


def _first_error(log: Path) -> str:
    """The most useful line of a build log."""
    lines = log.read_text(errors="replace").splitlines()
    for pattern in (r"^CMake Error", r"\berror:", r"^FAILED:"):
        for index, line in enumerate(lines):
            if re.search(pattern, line):
                # CMake prints the place on the first line and the problem on the second.
                shown = lines[index : index + 2] if line.startswith("CMake Error") else [line]
                return " ".join(part.strip() for part in shown).strip()[:300] + "."
    return f"{lines[-1].strip()[:300]}." if lines else "it printed nothing."


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
