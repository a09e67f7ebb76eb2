"""A case's traced run: its kernels and its cost with it, where the device can tell; or the line of
the model that does not run.
"""

from __future__ import annotations

import contextlib
import itertools
import re
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from pytest_sme2.errors import EtdumpError, RunError, TargetError
from pytest_sme2.profile.beside import keep_origins, keep_shapes
from pytest_sme2.profile.cost import (
    MismatchError,
    build_cost,
    executed_families,
    product_kernel,
)
from pytest_sme2.profile.coverage import check_pair
from pytest_sme2.profile.known_names import keep_names, seen_names
from pytest_sme2.results.evidence import Evidence, InferenceCost
from pytest_sme2.results.profile import Profile
from pytest_sme2.results.run import FORWARD, Arm, Artifact, Origin, RunRequest
from pytest_sme2.session.run_directory import read_profile
from pytest_sme2.system.files import from_here
from pytest_sme2.targets.base import LOG_NAME
from pytest_sme2.targets.emulated import EmulatedTarget, Traced, remembered_run
from pytest_sme2.trace.etdump import read_etdump
from pytest_sme2.trace.etrecord import read_attribution

if TYPE_CHECKING:
    from pytest_sme2.runners.base import Runner
    from pytest_sme2.session.device import HeldDevice

# ExecuTorch's words in a runner's log.
_OPERATOR = re.compile(
    r"kernel '([\w:.]{1,200})' not found|in operator ([\w:.]{1,200}): "
    r"|Failed to create ([\w ]{1,100}) node \d"
)
# What the XNNPACK delegate calls the operators that it takes; of several in a model, the first is
# named.
_IN_XNNPACK = {
    "BMM": "aten.bmm",
    "StaticConstantPad": "aten.constant_pad_nd",
    "StaticResizeBilinear2DNode": "aten.upsample_bilinear2d",
    "average pooling": "aten.avg_pool2d",
    **{f"cat{count}": "aten.cat" for count in range(2, 6)},
    "convolution": "aten.convolution",
    "deconvolution": "aten.convolution",
    "depthwise convolution": "aten.convolution",
    "global average pooling": "aten.mean",
    "linear": "aten.linear",
    "maxpool2d": "aten.max_pool2d",
    "softmax": "aten._softmax",
    "static slice": "aten.slice_copy",
    "static transpose": "aten.permute_copy",
}
_LONGEST_LOG = 1 << 20


def trace_case(
    bench: HeldDevice, request: RunRequest, folder: Path, runner: Runner | None = None
) -> Traced:
    """One traced process; an emulator tells of kernels and counts in the same go: it is slow."""
    runner = bench.runner if runner is None else runner
    try:
        if isinstance(bench.target, EmulatedTarget):
            fresh = bench.settings.fresh
            traced = remembered_run(bench.target, runner, request, folder, fresh=fresh)
        else:
            traced = Traced(bench.run(request, folder, runner))
    except RunError as error:
        raise with_line(error, request.artifact, folder / LOG_NAME) from error
    if traced.run.etdump is not None:
        artifact, plan = request.artifact, request.artifact.generation
        method = artifact.method or FORWARD
        # Of a program that takes several shapes, the file tells the largest.
        if plan is None or plan.prefill != FORWARD:
            keep_shapes(traced.run.etdump, artifact.pte, bench.say, method)
        keep_origins(traced.run.etdump, artifact.etrecord, bench.say, method)
    return traced


def profile_of(
    case: str, traced: Traced, bench: HeldDevice, runner: Runner | None = None
) -> Profile:
    """Where the time of a traced run goes."""
    etdump = traced.run.etdump
    if etdump is None:
        raise TargetError(f"{case}: the traced run left no ETDump. See {traced.run.log}.")
    fingerprint, executed = bench.target.fingerprint(), None
    if traced.counted is not None:
        # Where the log does not fit, nothing is claimed from it; `cost_of` says why.
        with contextlib.suppress(MismatchError):
            executed = executed_families(traced.counted, read_etdump(etdump))
    executorch = (bench.runner if runner is None else runner).executorch
    return read_profile(etdump, traced.census, fingerprint, executed, executorch)


def why_not_counted(bench: HeldDevice, threads: int, runner: Runner | None = None) -> str:
    """Why a run on the device cannot be counted; empty where it can."""
    target, runner = bench.target, bench.runner if runner is None else runner
    if not isinstance(target, EmulatedTarget):
        return f"{target.name} does not count instructions; --device=emulated does"
    if bench.settings.no_cost:
        return "counting was switched off"
    if not runner.makes_marks:
        return f"the runner ({runner.kind}) does not mark where an inference begins"
    if threads != 1:
        return f"with {threads} threads the counts depend on how the threads take turns"
    return ""


def cost_of(
    bench: HeldDevice, traced: Traced, profile: Profile, runner: Runner | None = None
) -> InferenceCost | str:
    """The cost, or why there is none."""
    run, counted, target = traced.run, traced.counted, bench.target
    runner = bench.runner if runner is None else runner
    if counted is None or run.etdump is None or not isinstance(target, EmulatedTarget):
        return why_not_counted(bench, run.request.threads, runner) or "it was not counted"
    cpu, toolchain = target.cpu.model(run.request.arm), runner.toolchain
    try:
        columns = read_etdump(run.etdump)
        return build_cost(counted, columns, profile, cpu=cpu, toolchain=toolchain)
    except MismatchError as error:
        return f"the emulator's log does not fit the ETDump: {error}"


def evidence_of(
    bench: HeldDevice, seen: Mapping[Arm, tuple[Traced, Profile, InferenceCost | str]]
) -> Evidence:
    """Whether a pair shows SME2 on and off. Where it was counted, devices may trust its names."""
    traced = {arm: one for arm, (one, _, _) in seen.items()}
    profiles = {arm: profile for arm, (_, profile, _) in seen.items()}
    operators = {
        arm: [
            (member.operator, product_kernel(cost.operators[member.index], cost))
            for member in profile.operators
        ]
        for arm, (_, profile, cost) in seen.items()
        if isinstance(cost, InferenceCost)
    }
    keep_names(bench.runner.executorch, seen_names(operators))
    return check_pair(
        on=profiles[Arm.ON],
        off=profiles[Arm.OFF],
        effective_on=traced[Arm.ON].run.sme2_effective,
        effective_off=traced[Arm.OFF].run.sme2_effective,
        sme1=bench.target.capabilities().sme1,
        third=profiles.get(Arm.SME1),
        census_off=traced[Arm.OFF].census,
    )


def with_line(error: RunError, artifact: Artifact, log: Path) -> RunError:
    """The error, with the operator that failed, its line in the model, and what to use instead."""
    text = str(error)
    with contextlib.suppress(OSError), log.open("rb") as file:
        text += file.read(_LONGEST_LOG).decode(errors="replace")
    found = _OPERATOR.search(text)
    if found is None:
        return error
    operator = (found[1] or found[2] or "").replace("::", ".").rpartition(".")[0]
    operator = operator or _IN_XNNPACK.get(found[3], f"XNNPACK's {found[3]}")
    parts = [f"{str(error).rstrip('.')}.", f"Operator: {operator}."]
    place = _origin(artifact, operator)
    if place is not None:
        module = f" of the module {place.module}" if place.module else ""
        parts.append(f"At {from_here(Path(place.file))}:{place.line} `{place.code}`{module}.")
    if found[1]:
        parts.append("ExecuTorch has no kernel for it. Write it with others, or name a runner")
        parts.append("that has one.")
    elif found[3]:
        parts.append("XNNPACK refuses it. Try another data type, or write it with other operators.")
    return RunError(" ".join(parts))


def _origin(artifact: Artifact, operator: str) -> Origin | None:
    """Where the model has it, by its ETRecord."""
    if artifact.etrecord is None:
        return None
    try:
        members = read_attribution(artifact.etrecord, artifact.method or FORWARD).nodes.values()
    except EtdumpError:
        return None
    for name, origin in itertools.chain(*members):
        if name.startswith(f"{operator}.") and origin.file:
            return origin
    return None
