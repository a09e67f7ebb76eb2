"""Builds the runner with CMake and an ExecuTorch prefix."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

from pytest_sme2.errors import BuildError
from pytest_sme2.system.processes import (
    Finished,
    run_process,
    whitelisted_environment,
)
from pytest_sme2.system.toolchain import Compiler, find_cmake, find_ninja, first_answer

RUNNER_SOURCES = Path(__file__).parent / "cpp"


_BUILD_SECONDS = 600.0


_LAST_LINES = 15


def build_runner(
    prefix: Path,
    build: Path,
    *,
    log: Path,
    compiler: Compiler | None = None,
    options: Mapping[str, str] | None = None,
) -> Path:
    """Build ``sme2_runner`` with an ExecuTorch prefix, and return its folder.

    ``prefix`` is a wheel's package folder or a source tree's install prefix. ``options`` are
    more CMake variables, such as a toolchain file for another platform. The output of the tools
    goes to ``log``.
    """
    variables = {
        "CMAKE_BUILD_TYPE": "Release",
        "CMAKE_PREFIX_PATH": str(prefix),
        "CMAKE_MAKE_PROGRAM": find_ninja(),
        # Ninja gives other jobs their own process group, which ending ours would not reach.
        "CMAKE_JOB_POOL_COMPILE": "console",
        "CMAKE_JOB_POOL_LINK": "console",
    }
    if compiler is not None:
        variables["CMAKE_CXX_COMPILER"] = compiler.cxx
        if compiler.cross:
            variables |= {"CMAKE_SYSTEM_NAME": "Linux", "CMAKE_SYSTEM_PROCESSOR": "aarch64"}
    variables |= options or {}
    cmake = find_cmake()
    definitions = [f"-D{name}={value}" for name, value in variables.items()]
    log.parent.mkdir(parents=True, exist_ok=True)
    log.write_text("")
    _step(
        [cmake, "-G", "Ninja", "-S", str(RUNNER_SOURCES), "-B", str(build), *definitions],
        "configured",
        log,
    )
    _step([cmake, "--build", str(build)], "compiled", log)
    return build


def _step(arguments: Sequence[str], verb: str, log: Path) -> Finished:
    environment = whitelisted_environment(("SDKROOT", "DEVELOPER_DIR"))
    try:
        finished = run_process(arguments, timeout_seconds=_BUILD_SECONDS, environment=environment)
    except OSError as error:
        raise BuildError(f"The runner could not be {verb}: {error}.") from error
    said = finished.stdout + finished.stderr
    with log.open("a", encoding="utf-8", errors="replace") as file:
        file.write(f"$ {' '.join(arguments)}\n{said}\n")
    if finished.timed_out:
        raise BuildError(
            f"The runner could not be {verb} within {_BUILD_SECONDS:.0f} s. Full log: {log}"
        )
    if finished.returncode != 0:
        lines = [line for line in said.splitlines() if line.strip()][-_LAST_LINES:]
        raise BuildError(
            f"The runner could not be {verb}. The last lines were:\n"
            + "\n".join(f"  {line}" for line in lines)
            + f"\nFull log: {log}"
        )
    return finished


def library_file(compiler: Compiler, name: str) -> Path:
    """Where the compiler finds a system library of its platform."""
    answer = first_answer([compiler.cxx, f"-print-file-name={name}"]).strip()
    for candidate in (Path(answer), Path("/lib") / name, Path("/lib64") / name):
        # If it finds nothing, the compiler repeats the bare name. A cross compiler must not use
        # the host's libraries.
        if candidate.is_absolute() and candidate.is_file():
            if compiler.cross and candidate.parent in (Path("/lib"), Path("/lib64")):
                continue
            return candidate.resolve()
    raise BuildError(
        f"{compiler.cxx} did not find the library {name}, which the runner needs. "
        "Install the compiler with its C and C++ libraries, for example with: "
        f"apt-get install {'g++-aarch64-linux-gnu' if compiler.cross else 'g++'}"
    )
