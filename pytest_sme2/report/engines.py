"""What an operator ran on: SME2, SME1, NEON (the rest of XNNPACK) or portable code. Pure.

What the parts are shares of: time on hardware, executed instructions on an emulator that counted
them, else the number of operators.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from pytest_sme2.profile.coverage import sme2_states
from pytest_sme2.results import Arm, CaseResult, Executor, KernelCensus

ENGINES = ("SME2", "NEON", "portable", "SME1")
SME2, NEON, PORTABLE, SME1 = range(4)


def engine_names(results: Sequence[CaseResult]) -> tuple[str, ...]:
    """ENGINES, the last only where it ran; where a CPU is not an Arm, what is not SME2 is not NEON
    either.
    """
    foreign = any(
        "x86" in value
        for measured in results
        for name, value in measured.fingerprint.facts
        if name == "platform"
    )
    if any(found.sme1 for measured in results for found in measured.structures.values()):
        return ENGINES
    return ("SME2", "XNNPACK", "portable") if foreign else ENGINES[:SME1]


def engines_of(measured: CaseResult, arm: Arm) -> list[int]:
    """For each operator of an arm its place in ENGINES."""
    profile = measured.profiles[arm]
    return [
        PORTABLE
        if member.operator.executor is Executor.PORTABLE
        else (SME1 if member.operator.sme1 else SME2)
        if member.operator.matrix and on_sme2
        else NEON
        for member, on_sme2 in zip(profile.operators, sme2_states(profile), strict=True)
    ]


def engine_shares(measured: CaseResult) -> tuple[str, list[float]] | None:
    """What the shares are of, and how much each of ENGINES has; None where nothing was traced.

    The last has a share only where it ran.
    """
    arm = measured.arm
    profile = measured.profiles.get(arm)
    if profile is None or not profile.operators:
        return None
    cost = measured.costs.get(arm)
    if not measured.emulated:
        unit, weights = "time", [member.time_ns for member in profile.operators]
    elif cost is not None and len(cost.operators) == len(profile.operators):
        unit, weights = "instructions", [entry.counts.instructions for entry in cost.operators]
    else:
        unit, weights = "operators", [1.0] * len(profile.operators)
    sums = [0.0] * len(ENGINES)
    for engine, weight in zip(engines_of(measured, arm), weights, strict=True):
        sums[engine] += weight
    whole = sum(sums)
    sums = sums if sums[SME1] else sums[:SME1]
    return (unit, [value / whole for value in sums]) if whole else None


def kernel_operators(measured: CaseResult) -> Mapping[str, str]:
    """By kernel the name of the operator that executed most of it; only where cost was counted."""
    most: dict[str, dict[str, int]] = {}
    for cost in measured.costs.values():
        for entry in cost.operators:
            for kernel, instructions in entry.kernels:
                sums = most.setdefault(kernel, {})
                sums[entry.name] = sums.get(entry.name, 0) + instructions
    return {kernel: max(sums, key=lambda name: sums[name]) for kernel, sums in most.items()}


def unnamed_kernels(censuses: Mapping[Arm, KernelCensus]) -> frozenset[str]:
    """The kernels of which only a place in a library is known."""
    return frozenset(
        kernel.name for census in censuses.values() for kernel in census.kernels if not kernel.named
    )
