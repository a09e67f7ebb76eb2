"""A case's traced run: its kernels and its cost with it, where the device can tell."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from pytest_sme2.errors import RunError, TargetError
from pytest_sme2.profile.beside import keep_origins, keep_shapes
from pytest_sme2.profile.cost import MismatchError, build_cost
from pytest_sme2.results import (
    FORWARD,
    CountedInference,
    InferenceCost,
    KernelCensus,
    Profile,
    Run,
    RunRequest,
)
from pytest_sme2.session.failures import with_line
from pytest_sme2.session.run_directory import read_profile
from pytest_sme2.targets.base import LOG_NAME
from pytest_sme2.targets.census import remembered_run
from pytest_sme2.targets.emulated import EmulatedTarget
from pytest_sme2.trace.etdump import read_etdump

if TYPE_CHECKING:
    from pytest_sme2.runners.base import Runner
    from pytest_sme2.session.bench import Bench


@dataclass(frozen=True)
class Traced:
    """A traced run, and what the device saw of it."""

    run: Run
    census: KernelCensus | None = None
    counted: CountedInference | None = None
    remembered: bool = False
    """Whether it was made before and taken from the cache."""


def trace_case(
    bench: Bench, request: RunRequest, folder: Path, runner: Runner | None = None
) -> Traced:
    """One traced process; an emulator tells of kernels and counts in the same go: it is slow.

    ``runner`` is another one than the bench's.
    """
    runner = bench.runner if runner is None else runner
    try:
        if isinstance(bench.target, EmulatedTarget):
            made, before = remembered_run(
                bench.target, runner, request, folder, fresh=bench.settings.fresh
            )
            traced = Traced(made.run, made.census, made.counted, before)
        else:
            traced = Traced(bench.run(request, folder, runner))
    except RunError as error:
        raise with_line(error, request.artifact, folder / LOG_NAME) from error
    if traced.run.etdump is not None:
        artifact = request.artifact
        method = artifact.method or FORWARD
        plan = artifact.generation
        # Of a program that takes several shapes, the file tells the largest.
        if plan is None or plan.prefill != FORWARD:
            keep_shapes(traced.run.etdump, artifact.pte, bench.say, method)
        keep_origins(traced.run.etdump, artifact.etrecord, bench.say, method)
    return traced


def profile_of(case: str, traced: Traced, bench: Bench) -> Profile:
    """Where the time of a traced run goes."""
    etdump = traced.run.etdump
    if etdump is None:
        raise TargetError(f"{case}: the traced run left no ETDump. See {traced.run.log}.")
    fingerprint = bench.target.fingerprint()
    return read_profile(etdump, traced.census, fingerprint, bench.settings.rules)


def why_not_counted(bench: Bench, threads: int, runner: Runner | None = None) -> str:
    """Why a run on the device cannot be counted; empty where it can."""
    target, runner = bench.target, bench.runner if runner is None else runner
    if not isinstance(target, EmulatedTarget):
        return f"{target.name} does not count instructions; --device=emulated does"
    if bench.settings.no_cost:
        return "counting was switched off (--sme2-no-cost)"
    if not runner.makes_marks:
        return f"the runner ({runner.kind}) does not mark where an inference begins"
    if threads != 1:
        return f"with {threads} threads the counts depend on how the threads take turns"
    return ""


def cost_of(
    bench: Bench, traced: Traced, profile: Profile, runner: Runner | None = None
) -> InferenceCost | str:
    """The cost, or why there is none."""
    run, counted, target = traced.run, traced.counted, bench.target
    runner = bench.runner if runner is None else runner
    if counted is None or run.etdump is None or not isinstance(target, EmulatedTarget):
        return why_not_counted(bench, run.request.threads, runner) or "it was not counted"
    cpu = target.cpu.model(run.request.arm)
    try:
        columns = read_etdump(run.etdump)
        return build_cost(
            counted,
            columns,
            profile,
            cpu=cpu,
            toolchain=runner.toolchain,
            rules=bench.settings.rules,
        )
    except MismatchError as error:
        return f"the emulator's log does not fit the ETDump: {error}"
