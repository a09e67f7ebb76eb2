"""What the runner costs: its build, and a process of it beyond the inference itself.

    python benchmarks/runner.py [--program FILE] [--starts N] [--qemu FILE]

Targets: a build within 15 s; a process within 100 ms over its inference. Exit code 1 beyond them.
The program is a small one of the tests unless another is named.
"""

from __future__ import annotations

import argparse
import importlib
import resource
import statistics
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path

from pytest_sme2.platforms import host_platform
from pytest_sme2.results import Arm, Artifact, RunRequest
from pytest_sme2.runners import Runner, wheel_runner
from pytest_sme2.sdk import executorch_sdk
from pytest_sme2.settings import Settings, cache_folder
from pytest_sme2.targets import LocalTarget, Target, choose_target

BUILD_SECONDS = 15.0
START_MILLISECONDS = 100.0


def build_seconds(platform: str) -> tuple[float, float]:
    """Wall and CPU time of a build into an empty cache, the SDK already at hand."""
    sdk = executorch_sdk(platform)
    with tempfile.TemporaryDirectory() as temporary:
        # A downloaded SDK is taken along, so that the build alone is timed.
        if sdk.parent.name == "sdk":
            (Path(temporary) / "sdk").mkdir()
            (Path(temporary) / "sdk" / sdk.name).symlink_to(sdk)
        start, start_cpu = time.perf_counter(), children_cpu_seconds()
        wheel_runner(platform, cache=Path(temporary))
        return time.perf_counter() - start, children_cpu_seconds() - start_cpu


def children_cpu_seconds() -> float:
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def start_milliseconds(target: Target, runner: Runner, program: Path, starts: int) -> float:
    """The median over processes of the time beyond the one inference."""
    artifact = Artifact("benchmark", "fp32", program.parent, program, "", (), ())
    request = RunRequest(artifact, Arm.OFF, warmup=0, runs=1)
    beyond = []
    with tempfile.TemporaryDirectory() as temporary:
        for _ in range(starts):
            start = time.perf_counter()
            run = target.run(runner, request, Path(temporary))
            beyond.append(time.perf_counter() - start - run.wall_ns[0] / 1e9)
    return statistics.median(beyond) * 1e3


def report(what: str, value: float, unit: str, limit: float | None) -> bool:
    fits = limit is None or value <= limit
    bound = "" if limit is None else f"  (at most {limit:g} {unit}: {'yes' if fits else 'NO'})"
    print(f"{what:<44}{value:>9.1f} {unit}{bound}")
    return fits


def main(argv: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--program", type=Path)
    parser.add_argument("--starts", type=int, default=20)
    parser.add_argument("--qemu", type=Path)
    arguments = parser.parse_args(argv)
    program = arguments.program
    if program is None:
        sys.path.insert(0, str(Path(__file__).parents[1] / "tests"))
        programs = importlib.import_module("programs")
        program = programs.program_files(cache_folder())["toy_fp32"]
    fine = True
    local: Target = LocalTarget()
    other = choose_target(Settings(device="auto", qemu=arguments.qemu))
    for platform in dict.fromkeys((host_platform(), other.platform)):
        seconds, cpu_seconds = build_seconds(platform)
        fine &= report(f"build for {platform}", seconds, "s", BUILD_SECONDS)
        report(f"build for {platform}, CPU time", cpu_seconds, "s", None)
    runner = wheel_runner(local.platform)
    start = time.perf_counter()
    wheel_runner(local.platform)
    report("runner from the cache", (time.perf_counter() - start) * 1e3, "ms", None)
    beyond = start_milliseconds(local, runner, program, arguments.starts)
    fine &= report(f"a process on {local.name}", beyond, "ms", START_MILLISECONDS)
    if other.name != local.name:
        beyond = start_milliseconds(other, wheel_runner(other.platform), program, arguments.starts)
        report(f"a process on {other.name}", beyond, "ms", None)
    return 0 if fine else 1


if __name__ == "__main__":
    sys.exit(main())
