"""Every check that a target has an answer to, in one go."""

from __future__ import annotations

from pytest_sme2.results.case import Baseline, CaseResult, Check, Limits
from pytest_sme2.verdict import structure
from pytest_sme2.verdict.numerics import check_outputs
from pytest_sme2.verdict.ratios import check_memory, check_size, check_speedup
from pytest_sme2.verdict.times import check_latency, check_load


def check_all(measured: CaseResult, baseline: Baseline | None, limits: Limits) -> list[Check]:
    """What the target did not measure is left out, never passed."""
    given = (measured, baseline, limits)
    compared = sorted({entry.against for entry in measured.agreements})
    checks = [check_outputs(measured, limits, against) for against in compared]
    checks += [structure.check_evidence(measured), structure.check_coverage(*given)]
    for arm in measured.structures:
        checks.append(structure.check_operators(measured, baseline, arm))
        checks.append(structure.check_delegation(measured, baseline, arm))
    checks += [structure.check_kernels(measured, baseline, arm) for arm in measured.kernels]
    checks.append(check_size(*given))
    if measured.speedup is not None:
        checks.append(check_speedup(*given))
    checks += [check_latency(*given, arm) for arm in measured.medians_ns or {}]
    checks += [check_load(*given, arm) for arm in measured.loads_ns or {}]
    return checks + [check_memory(*given, arm) for arm in measured.peak_bytes or {}]
