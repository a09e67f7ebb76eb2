"""What the runner costs: its build, and a process of it beyond the inference itself.

    python -m benchmarks.runner [--program FILE] [--starts N] [--qemu FILE] [--json FILE]

Limits: a build within 15 s; a process within 100 ms over its inference. The program is a small one
of the tests unless another is named. A build begins with an empty cache, but with ExecuTorch's
libraries at hand: what a download takes says nothing about the runner. A process is timed as a
target runs it, from the call to the result that was read, less the inference that it reports.
"""

from __future__ import annotations

import argparse
import resource
import statistics
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path

from benchmarks.claims import Claim, finish
from pytest_sme2.results import Arm, Artifact, RunRequest
from pytest_sme2.runners.base import Runner
from pytest_sme2.runners.sdk import executorch_sdk
from pytest_sme2.runners.sme2 import wheel_runner
from pytest_sme2.session.device import choose_target
from pytest_sme2.session.settings import Settings
from pytest_sme2.system.cache import cache_folder
from pytest_sme2.system.platforms import host_platform
from pytest_sme2.targets.base import Target
from pytest_sme2.targets.local import LocalTarget
from tests.support.programs import program_files

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


def main(argv: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--program", type=Path)
    parser.add_argument("--starts", type=int, default=20)
    parser.add_argument("--qemu", type=Path)
    parser.add_argument("--json", type=Path, metavar="FILE")
    arguments = parser.parse_args(argv)
    program = arguments.program or program_files(cache_folder())["toy_fp32"]
    claims = []
    local: Target = LocalTarget()
    other = choose_target(Settings(device="auto", qemu=arguments.qemu))
    for platform in dict.fromkeys((host_platform(), other.platform)):
        seconds, cpu_seconds = build_seconds(platform)
        what = f"build of the runner for {platform}"
        claims += [
            Claim(f"build {platform}", what, seconds, "s", limit=BUILD_SECONDS),
            Claim(f"build CPU {platform}", f"{what}, CPU time", cpu_seconds, "s"),
        ]
    runner = wheel_runner(local.platform)
    start = time.perf_counter()
    wheel_runner(local.platform)
    cached = (time.perf_counter() - start) * 1e3
    claims.append(Claim("cached", "a runner that was built before", cached, "ms"))
    for target in (local, other) if other.name != local.name else (local,):
        beyond = start_milliseconds(
            target,
            runner if target is local else wheel_runner(target.platform),
            program,
            arguments.starts,
        )
        what = f"a process on `{target.name}` beyond its inference"
        limit = START_MILLISECONDS if target is local else None
        claims.append(Claim(f"start {target.name}", what, beyond, "ms", limit=limit))
    return finish(claims, arguments.json, {"starts": arguments.starts})


if __name__ == "__main__":
    sys.exit(main())
