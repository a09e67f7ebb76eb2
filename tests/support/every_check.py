"""Every check that a target has an answer to, in one go."""

from __future__ import annotations

from pytest_sme2.results import PAIR, Arm, Baseline, CaseResult, Check, Limits
from pytest_sme2.verdict.numerics import check_outputs
from pytest_sme2.verdict.ratios import check_memory, check_share, check_size, check_speedup
from pytest_sme2.verdict.structure import (
    check_coverage,
    check_delegation,
    check_evidence,
    check_kernels,
    check_operators,
)
from pytest_sme2.verdict.times import check_latency, check_load


def check_all(measured: CaseResult, baseline: Baseline | None, limits: Limits) -> tuple[Check, ...]:
    """Every check that this target can measure. What it cannot is left out, never passed."""
    checks: list[Check] = []
    if Arm.ON in measured.structures:
        checks += [check_evidence(measured), check_coverage(measured, baseline, limits)]
    for arm in (arm for arm in PAIR if arm in measured.structures):
        checks += [
            check_operators(measured, baseline, arm),
            check_delegation(measured, baseline, arm),
        ]
        if arm in measured.kernels:
            checks.append(check_kernels(measured, baseline, arm))
    if measured.pte_bytes is not None:
        checks.append(check_size(measured, baseline, limits))
    checks += [
        check_outputs(measured, limits, against)
        for against in ("off", "reference")
        if measured.nan_arms or any(entry.against == against for entry in measured.agreements)
    ]
    return (*checks, *([] if measured.emulated else _timed(measured, baseline, limits)))


def _timed(measured: CaseResult, baseline: Baseline | None, limits: Limits) -> list[Check]:
    checks: list[Check] = []
    for arm, medians in (measured.medians_ns or {}).items():
        if medians:
            checks.append(check_latency(measured, baseline, limits, arm))
    if measured.speedup is not None:
        checks.append(check_speedup(measured, baseline, limits))
    for arm, loads in (measured.loads_ns or {}).items():
        if loads:
            checks.append(check_load(measured, baseline, limits, arm))
    for arm in measured.peak_bytes or {}:
        checks.append(check_memory(measured, baseline, limits, arm))
    for category in (measured.shares or {}).get(measured.arm, {}):
        checks.append(check_share(measured, baseline, limits, category, measured.arm))
    return checks
