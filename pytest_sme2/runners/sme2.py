"""Provides our own runner, ``sme2_runner``: its arguments and its results.

A target starts processes and does not know the flags. A runner knows the flags and starts nothing.
"""

from __future__ import annotations

import functools
import hashlib
import json
import os
import re
import shutil
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Literal

from pytest_sme2.errors import BuildError, RunError, Sme2Error
from pytest_sme2.results.evidence import Toolchain
from pytest_sme2.results.run import FORWARD, Arm, CoreUse, Output, Run, RunRequest, TensorSpec
from pytest_sme2.runners.base import LOADER, LeftFiles, Player, ProcessFiles, Runner, started
from pytest_sme2.runners.sdk import (
    LIBRARIES,
    SDK_FOLDERS,
    executorch_sdk,
    find_pip,
    find_sdk,
    sdk_libraries,
    sdk_version,
)
from pytest_sme2.system.cache import (
    cache_folder,
    contents_sha256,
    find_cache,
    made_once,
    trusted,
)
from pytest_sme2.system.files import file_sha256, make_folders, read_json, structured
from pytest_sme2.system.platforms import LINUX_AARCH64, LINUX_X86_64, MACOS_ARM64
from pytest_sme2.system.processes import answer_of, run_process, whitelisted_environment
from pytest_sme2.system.provision import Compiler, find_cmake, find_compiler, find_ninja
from pytest_sme2.system.terminal import Say
from pytest_sme2.system.wording import count

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

    ``prefix`` is a wheel's package folder. ``options`` are more CMake variables, such as a
    toolchain file for another platform. The output of the tools goes to ``log``.
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
    make_folders(log.parent)
    log.write_text("")
    arguments = [cmake, "-G", "Ninja", "-S", str(RUNNER_SOURCES), "-B", str(build), *definitions]
    run_tool(arguments, "The runner could not be configured", log)
    run_tool([cmake, "--build", str(build)], "The runner could not be compiled", log)
    return build


# What compilers on a Mac, and a download while configuring need.
_PASSED_ON = (
    *("SDKROOT", "DEVELOPER_DIR", "SSL_CERT_FILE", "SSL_CERT_DIR"),
    *("HTTP_PROXY", "HTTPS_PROXY", "NO_PROXY", "http_proxy", "https_proxy", "no_proxy"),
)


def run_tool(
    arguments: Sequence[str], failure: str, log: Path, seconds: float = _BUILD_SECONDS
) -> None:
    """Run a tool of a build, whose words go to the log; where it fails, the last ones are told."""
    environment = whitelisted_environment(_PASSED_ON)
    try:
        finished = run_process(arguments, timeout_seconds=seconds, environment=environment)
    except OSError as error:
        raise BuildError(f"{failure}: {error}.") from error
    said = finished.stdout + finished.stderr
    with log.open("a", encoding="utf-8", errors="replace") as file:
        file.write(f"$ {' '.join(arguments)}\n{said}\n")
    if finished.timed_out:
        raise BuildError(f"{failure} within {seconds:.0f} s. Full log: {log}")
    if finished.returncode != 0:
        lines = [line for line in said.splitlines() if line.strip()][-_LAST_LINES:]
        raise BuildError(
            f"{failure}. The last lines were:\n"
            + "\n".join(f"  {line}" for line in lines)
            + f"\nFull log: {log}"
        )


def library_file(compiler: Compiler, name: str) -> Path:
    """Where the compiler finds a system library of its platform."""
    answer = Path(answer_of([compiler.cxx, f"-print-file-name={name}"]).strip())
    host = (Path("/lib") / name, Path("/lib64") / name)
    for candidate in (answer, *host):
        # If it finds nothing, the compiler repeats the bare name. A cross compiler must not use
        # the host's libraries.
        wrong = not candidate.is_absolute() or (compiler.cross and candidate in host)
        if not wrong and candidate.is_file():
            return candidate.resolve()
    raise BuildError(
        f"{compiler.cxx} did not find the library {name}, which the runner needs. "
        "Install the compiler with its C and C++ libraries, for example with: "
        f"apt-get install {'g++-aarch64-linux-gnu' if compiler.cross else 'g++'}"
    )


# As in cpp/failure.h.
EXIT_MEANINGS: Mapping[int, str] = {
    2: "wrong usage",
    10: "no such file",
    11: "not a program",
    12: "operator missing",
    13: "out of memory",
    14: "wrong input",
    15: "execution failed",
    16: "write failed",
    17: "no such method",
}

PROGRAM = "sme2_runner"

_SYSTEM_LIBRARIES = (
    *(LOADER, "libc.so.6", "libm.so.6", "libdl.so.2", "libpthread.so.0"),
    *("libstdc++.so.6", "libgcc_s.so.1"),
)
_RECORD = "runner.json"
_GIVE_TURNS = "--give-turns"
_BUILD_AGAIN = "Remove its folder; it is built again."
# Part of a runner's key: raise it when the content of its folder changes.
_LAYOUT = "2"


@dataclass(frozen=True)
class Sme2Runner(Runner):
    """One binary for both arms: ``sme2_runner``, from the wheel."""

    makes_marks = True
    takes_turns = True
    generates = True

    @functools.cached_property
    def toolchain(self) -> Toolchain:
        names = {path.name for path in self.files(Arm.ON)}
        libraries = sorted(names.intersection(_SYSTEM_LIBRARIES))
        # The program itself holds paths of this machine, so its compiler stands in for it.
        digests = (f"{file_sha256(self.folder / name)} {name}" for name in libraries)
        lines = "\n".join([self._compiler, *digests])
        # Where ExecuTorch is in libraries of its own, the program holds no code but ours.
        own = any(name.startswith(f"lib{LIBRARIES[0]}") for name in names)
        ours = {PROGRAM} if own else set()
        identity = hashlib.sha256(lines.encode(errors="surrogateescape")).hexdigest()
        return Toolchain(frozenset({*libraries, *ours}), identity[:12])

    @property
    def _compiler(self) -> str:
        try:
            return str(read_json(self.folder / _RECORD, remedy="")["compiler"])
        except (Sme2Error, KeyError, TypeError):
            return ""

    def turn_giver(self, turns: int, players: Sequence[Player]) -> tuple[str, ...]:
        words = [str(turns), *(player.log for player in players)]
        for player in players:
            words += ["--", "sh", "-c", 'cd "$0" && exec "$@"', player.home, *player.command]
        return (*started(self.folder, PROGRAM), _GIVE_TURNS, *words)

    def files(self, arm: Arm) -> tuple[Path, ...]:
        return tuple(
            path
            for path in sorted(self.folder.iterdir())
            if path.name != _RECORD and path.is_file()
        )

    def command(self, request: RunRequest, files: ProcessFiles) -> tuple[str, ...]:
        artifact, plan, turn = request.artifact, request.artifact.generation, request.turn
        options: dict[str, Iterable[object]] = {
            "--model": [files.model],
            "--sme2": [request.switch],
            "--threads": [request.threads],
            "--warmup": [request.warmup],
            "--runs": [request.runs],
            "--seed": [request.seed],
            "--json": [files.result],
            "--method": [artifact.method] if artifact.method not in (None, FORWARD) else (),
            "--input": files.inputs,
            "--etdump": filter(None, [files.etdump]),
            "--outputs": filter(None, [files.outputs]),
            # Such a program may take several shapes.
            "--shape": map(_shape, artifact.inputs) if plan is not None else (),
        }
        if plan is not None and request.generate:
            options |= {
                "--generate": [plan.new_tokens],
                "--prefill": [plan.prefill],
                "--prompt-shape": map(_shape, plan.prompt),
                "--prompt": files.prompt,
                "--next": (f"@{step}" if isinstance(step, int) else step for step in files.steps),
            }
        if request.counted:
            options["--marks"] = ["on"]
        if turn is not None and files.turn_descriptor is not None:
            options |= {"--turn": [turn.runs], "--lead": [turn.lead]}
            options["--turn-descriptor"] = [files.turn_descriptor]
        pairs = ((name, value) for name, values in options.items() for value in values)
        words = (str(word) for pair in pairs for word in pair)
        return (*started(self.folder, PROGRAM), *words, *request.extra_arguments)

    def explain(self, returncode: int, stderr: str) -> str | None:
        if returncode not in EXIT_MEANINGS:
            return None
        said = re.findall(rf"^{PROGRAM}: (.*)$", stderr, re.MULTILINE)
        # A counted run has its files under names with many slashes.
        return re.sub("//+", "/", said[-1]) if said else EXIT_MEANINGS[returncode]

    def read_result(self, request: RunRequest, left: LeftFiles) -> Run:
        log, result = left.log, left.result
        document = read_json(result, remedy=f"The runner's log is {log}.", error=RunError)
        try:
            measured = _measured(document, request, left.outputs)
            return self.run_with(request, left, etdump=left.etdump, **measured)
        except ValueError as error:
            raise RunError(
                f"The runner ended without an error, but its result {result} cannot be used: "
                f"{error}. Its log is {log}"
            ) from error


@dataclass(frozen=True)
class _Switch:
    requested: str
    effective: bool | None
    vector_bits: int | None = None


@dataclass(frozen=True)
class _Clock:
    cycles: int
    ns: int
    refused: str


@dataclass(frozen=True)
class _Result:
    """What the runner writes: see ``cpp/main.cpp``."""

    schema: Literal[1]
    sme2: _Switch
    cpu_features: tuple[str, ...]
    load_ns: int
    warmup_wall_ns: tuple[int, ...]
    wall_ns: tuple[int, ...]
    cpu_ns: tuple[int, ...]
    peak_rss_load_bytes: int | None
    peak_rss_bytes: int | None
    outputs: tuple[Output, ...]
    core: tuple[int, ...] = ()
    waited_ns: tuple[int, ...] = ()
    step_wall_ns: tuple[int, ...] = ()
    step_peak_rss_bytes: tuple[int, ...] = ()
    cores: CoreUse | None = None
    clock: _Clock | None = None


def _measured(document: Any, request: RunRequest, outputs: Path | None) -> dict[str, Any]:
    """ValueError where the document is not what was asked for."""
    found: _Result = structured(document, _Result)
    if found.sme2.requested != str(request.switch):
        raise ValueError("it belongs to the other arm")
    if not len(found.wall_ns) == len(found.cpu_ns) == request.runs:
        raise ValueError(f"it does not have {count(request.runs, 'run')}")
    if len(found.step_wall_ns) != (request.inferences if request.generate else 0):
        raise ValueError("it does not have the steps of all its runs")
    amounts = [found.load_ns, found.peak_rss_load_bytes or 0, found.peak_rss_bytes or 0]
    amounts += (*found.warmup_wall_ns, *found.wall_ns, *found.cpu_ns, *found.step_wall_ns)
    if not all(0 <= value < 2**63 for value in (*amounts, *found.step_peak_rss_bytes)):
        raise ValueError("it has a number that is neither a time nor a size")
    if not all(found.wall_ns):
        raise ValueError("a run took no time")
    # Where the system does not tell them, they are not there, or below 0.
    told = {"ran_on": found.core, "waited_ns": found.waited_ns}
    clock = found.clock
    return dict(
        sme2_effective=found.sme2.effective,
        vector_bits=found.sme2.vector_bits,
        wall_ns=found.wall_ns,
        cpu_ns=found.cpu_ns,
        **{
            name: values if len(values) == request.runs and min(values) >= 0 else ()
            for name, values in told.items()
        },
        warmup_wall_ns=found.warmup_wall_ns,
        load_ns=found.load_ns,
        peak_rss_load_bytes=found.peak_rss_load_bytes,
        peak_rss_bytes=found.peak_rss_bytes,
        # A name out of a result never leads out of the folder.
        outputs=tuple(
            replace(each, file=outputs and each.file and outputs / each.file.name)
            for each in found.outputs
        ),
        cpu_features=found.cpu_features,
        cores=found.cores,
        clock_ghz=clock.cycles / clock.ns if clock and clock.cycles > 0 < clock.ns else None,
        uncounted="" if clock is None else clock.refused[:200],
        step_wall_ns=found.step_wall_ns,
        step_peak_bytes=found.step_peak_rss_bytes,
    )


def _shape(spec: TensorSpec) -> str:
    return "x".join(map(str, spec.shape))


def wheel_runner(
    platform: str,
    *,
    executorch: str | None = None,
    cache: Path | None = None,
    progress: Say | None = None,
    fresh: bool = False,
) -> Sme2Runner:
    """The runner from the wheel's SDK: from the cache, else built now, by one process.

    ``fresh``: built by this process in any case.
    """
    version, compiler = _planned(platform, executorch)
    sdk = executorch_sdk(platform, version, cache=cache, progress=progress)
    runner = _runner_of(sdk, platform, version, compiler, cache)
    log = runner.folder.parent / "logs" / f"{runner.folder.name}.log"
    made_once(
        runner.folder,
        f"building the runner for {platform} with ExecuTorch {version}",
        functools.partial(_build_in, sdk, platform, version, compiler, log),
        whole=_is_whole,
        fresh=fresh,
        say=progress,
    )
    return runner


def check_wheel_runner(
    platform: str, *, executorch: str | None = None, cache: Path | None = None
) -> None:
    """An error where a runner cannot be had, for want of a compiler, of pip or of a wheel."""
    version, _ = _planned(platform, executorch)
    if find_sdk(platform, version, cache=cache) is None:
        find_pip(f"ExecuTorch {version} for {platform}")


def _planned(platform: str, executorch: str | None) -> tuple[str, Compiler]:
    """The version that the runner is linked with, and what builds it."""
    if platform not in (LINUX_AARCH64, LINUX_X86_64, MACOS_ARM64):
        raise BuildError(
            f"No runner for {platform} can be built from a wheel. Build one from an ExecuTorch "
            "source tree, or give a pair of runners."
        )
    return sdk_version(executorch), find_compiler(platform)


def _runner_of(
    sdk: Path, platform: str, version: str, compiler: Compiler, cache: Path | None
) -> Sme2Runner:
    """The runner, which need not be there yet."""
    digest = hashlib.sha256()
    # The same version may have been built again.
    linked = contents_sha256(*(sdk / name for name in SDK_FOLDERS))
    for part in (_LAYOUT, platform, version, linked, compiler.cxx, compiler.version):
        digest.update(os.fsencode(part) + b"\0")
    for path in sorted(RUNNER_SOURCES.iterdir()):
        if path.is_file():
            digest.update(os.fsencode(path.name) + b"\0" + path.read_bytes() + b"\0")
    name = f"{platform}-{version}-{digest.hexdigest()[:12]}"
    folder = (cache or cache_folder()) / "runners" / name
    return Sme2Runner(kind="wheel", platform=platform, executorch=version, folder=folder)


def find_runner(platform: str, sha256: str, *, cache: Path | None = None) -> Sme2Runner | None:
    """The runner with this content, if it is still in the cache."""
    for record in sorted(((cache or find_cache()) / "runners").glob(f"{platform}-*/{_RECORD}")):
        try:
            version = str(read_json(record, remedy=_BUILD_AGAIN)["executorch"])
            runner = Sme2Runner("wheel", platform, version, record.parent)
            if runner.sha256 == sha256:
                trusted(record.parent, cache or find_cache())
                return runner
        except (OSError, ValueError, KeyError, TypeError, Sme2Error):
            # A damaged runner counts as missing.
            continue
    return None


def _is_whole(folder: Path) -> bool:
    """Whether the runner is there as it was built, and only this user could have put it there."""
    try:
        files = read_json(folder / _RECORD, remedy=_BUILD_AGAIN)["files"]
        return {path.name for path in folder.iterdir()} == {_RECORD, *files} and all(
            file_sha256(trusted(folder / name, folder.parent.parent)) == digest
            for name, digest in files.items()
        )
    except (OSError, ValueError, KeyError, TypeError, AttributeError, Sme2Error):
        return False


def _build_in(
    sdk: Path, platform: str, version: str, compiler: Compiler, log: Path, work: Path
) -> Path:
    staged = work / "runner"
    build = build_runner(sdk, work / "build", log=log, compiler=compiler)
    _assemble(build, sdk, staged, platform, compiler)
    record = {
        "platform": platform,
        "executorch": version,
        "compiler": compiler.version,
        "files": {path.name: file_sha256(path) for path in sorted(staged.iterdir())},
    }
    (staged / _RECORD).write_text(json.dumps(record, indent=2) + "\n", encoding="utf-8")
    return staged


def _assemble(build: Path, sdk: Path, folder: Path, platform: str, compiler: Compiler) -> None:
    """Copy the runner and only the libraries that it needs into one folder."""
    folder.mkdir()
    shutil.copy2(build / PROGRAM, folder / PROGRAM)
    for library in sdk_libraries(sdk, platform):
        shutil.copyfile(library, folder / library.name)
    if platform == MACOS_ARM64:
        shutil.copy2(build / "libsme2_off.dylib", folder)
    if platform == LINUX_AARCH64:
        # The same folder then runs here, under an emulator, and on a phone.
        for name in _SYSTEM_LIBRARIES:
            shutil.copyfile(library_file(compiler, name), folder / name)
        (folder / LOADER).chmod(0o755)
