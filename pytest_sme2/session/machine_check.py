"""Whether a device does what will be asked of it: a small program, with SME2 on and off.

It is what to run first on a new machine or phone, and what to send in from one that we do not have.
"""

from __future__ import annotations

import statistics
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path

from pytest_sme2.errors import TargetError
from pytest_sme2.profile.build import build_profile
from pytest_sme2.profile.coverage import check_pair
from pytest_sme2.results import PAIR, Arm, Profile, Run, RunRequest
from pytest_sme2.runners.base import Runner
from pytest_sme2.runners.sme2 import wheel_runner
from pytest_sme2.session.bench import Bench
from pytest_sme2.system import platforms
from pytest_sme2.system.platforms import MACOS_ARM64
from pytest_sme2.system.terminal import Say
from pytest_sme2.targets.base import Target
from pytest_sme2.targets.local import LocalTarget, sme_vector_bits
from pytest_sme2.timing.selfcheck import selfcheck_artifact
from pytest_sme2.trace.etdump import read_etdump

RUNS, WARMUP = 50, 5
LEAST_PERFORMANCE_SHARE = 0.99


@dataclass(frozen=True)
class ArmCheck:
    """What one arm did."""

    median_us: float | None
    """None where the times mean nothing."""
    sme2_seen: bool | None
    """What the process itself reports."""
    matrix_operators: int
    sme2_operators: int
    performance_share: float | None
    """The part of its CPU time on performance cores; None where the system does not tell."""
    energy_nj: int | None
    """Of one inference, as the system estimates it."""
    cpu_features: tuple[str, ...]


@dataclass(frozen=True)
class MachineCheck:
    """What was found; ``problems`` is empty where everything is as it should be."""

    device: str
    machine: Mapping[str, str]
    executorch: str
    runner_sha256: str
    arms: Mapping[str, ArmCheck]
    evidence: str
    proven: bool | None
    """Whether the pair shows what it claims; None where only one arm could be run."""
    problems: tuple[str, ...]


def check_this_machine(target: LocalTarget, folder: Path, say: Say) -> MachineCheck:
    """Build the runner, and run the program that comes with the package; files go to ``folder``."""
    runner = wheel_runner(target.platform, progress=say)
    try:
        target.prepare()
        found = _try_out(target, runner, folder, say, lambda: describe(target))
    finally:
        target.restore()
    if target.platform != MACOS_ARM64:
        return found
    warnings = (f"{text[0].upper()}{text[1:]}." for text in platforms.read_power().warnings)
    return replace(found, problems=(*found.problems, *warnings))


def check_phone(bench: Bench, folder: Path, say: Say) -> MachineCheck:
    """The same on a phone, with what it lets us read and set."""
    from pytest_sme2.targets.phone.target import AndroidTarget, phone_facts

    try:
        target = bench.target
        if not isinstance(target, AndroidTarget):
            raise TargetError(f"{target.name} is not a phone.")
        found = _try_out(target, bench.runner, folder, say, lambda: phone_facts(target))
        told = (f"The phone {event}." for event in target.events)
        return replace(found, problems=(*found.problems, *told))
    finally:
        bench.close()


def _try_out(
    target: Target,
    runner: Runner,
    folder: Path,
    say: Say,
    facts: Callable[[], Mapping[str, str]],
) -> MachineCheck:
    """Both arms on a target that is prepared; one inference each where times mean nothing."""
    able = target.capabilities()
    runs: dict[Arm, Run] = {}
    profiles: dict[Arm, Profile] = {}
    warmup, count = (WARMUP, RUNS) if able.timing else (0, 1)
    sme1 = able.sme1 and not able.timing
    for arm in PAIR if able.switches else (Arm.OFF,):
        say(f"running with SME2 {arm}")
        request = RunRequest(selfcheck_artifact(), arm, warmup=warmup, runs=count, sme1=sme1)
        runs[arm] = target.run(runner, request, folder / f"timed_{arm}")
        traced = replace(request, warmup=0, runs=1, traced=True)
        etdump = target.run(runner, traced, folder / f"traced_{arm}").etdump
        profiles[arm] = build_profile(read_etdump(etdump or folder))
    problems = [] if able.switches else [f"Only the off arm was run: {able.reason}"]
    evidence, proven = "none: it takes both arms", None
    if able.switches:
        found = check_pair(
            profiles[Arm.ON],
            profiles[Arm.OFF],
            effective_on=runs[Arm.ON].sme2_effective,
            effective_off=runs[Arm.OFF].sme2_effective,
            sme1=able.sme1,
        )
        evidence, proven = found.message, found.valid
        problems += [] if found.valid else [found.message]
    checks = {str(arm): _of_arm(run, profiles[arm]) for arm, run in runs.items()}
    for name, check in checks.items():
        share = check.performance_share
        if share is not None and share < LEAST_PERFORMANCE_SHARE:
            problems.append(
                f"With SME2 {name}, {1 - share:.0%} of the CPU time was on efficiency cores. Stop "
                "what else runs on the machine."
            )
    runtime = runner.executorch, runner.sha256
    return MachineCheck(target.name, facts(), *runtime, checks, evidence, proven, tuple(problems))


def _of_arm(run: Run, profile: Profile) -> ArmCheck:
    cores = run.cores
    return ArmCheck(
        None if run.emulated else statistics.median(run.wall_ns) / 1e3,
        run.sme2_effective,
        profile.coverage.matrix_operators,
        profile.coverage.sme2_operators,
        None if cores is None else 1 - cores.efficiency_share,
        None if cores is None else cores.energy_nj // len(run.wall_ns),
        run.cpu_features,
    )


def describe(target: LocalTarget) -> dict[str, str]:
    """The chip, the system, and what may slow them down."""
    bits = platforms.vector_bits() if target.platform == MACOS_ARM64 else sme_vector_bits()
    facts = {**dict(target.fingerprint().facts), **target.conditions()}
    if target.platform == MACOS_ARM64:
        facts["os"] = f"macOS {platforms.macos_version()}"
        facts["virtual machine"] = "yes" if platforms.is_virtual_machine() else "no"
    facts["SME vector length"] = f"{bits} bits" if bits else "unknown"
    return facts
