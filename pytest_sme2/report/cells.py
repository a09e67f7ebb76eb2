"""The cells of a table about a case, as text."""

from __future__ import annotations

import statistics

from pytest_sme2.profile.compare import largest_category
from pytest_sme2.report.text import duration, percent
from pytest_sme2.results import (
    Arm,
    CaseResult,
)
from pytest_sme2.session.run_directory import CaseRecord
from pytest_sme2.verdict.judging import combine, estimate_text


def coverage_cell(measured: CaseResult) -> str:
    coverage = measured.coverage
    if coverage is None:
        return "-"
    return f"{coverage.sme2_operators} of {coverage.matrix_operators}"


def latency_cell(measured: CaseResult, arm: Arm) -> str:
    medians = (measured.medians_ns or {}).get(arm)
    return duration(statistics.median(medians)) if medians else "-"


def speedup_cell(measured: CaseResult) -> str:
    found = measured.speedup
    if found is None:
        return "-"
    return estimate_text(found).replace("[", "\\[").replace("]", "\\]")


def largest_cell(measured: CaseResult) -> str:
    profile = measured.profiles.get(measured.arm)
    category = None if profile is None or measured.emulated else largest_category(profile)
    if profile is None or category is None:
        return "-"
    return f"{category} {percent(profile.share(profile.category_ns[category]))}"


def largest_of_arm_cell(measured: CaseResult) -> str:
    """The same beside other devices, which may have SME2 where this one has none."""
    text = largest_cell(measured)
    return f"{text} (SME2 off)" if text != "-" and measured.arm is Arm.OFF else text


def memory_cell(measured: CaseResult) -> str:
    peak = (measured.peak_bytes or {}).get(measured.arm)
    return "-" if peak is None else f"{peak / 1e6:.0f} MB"


def verdict_cell(record: CaseRecord) -> str:
    return str(combine(record.checks)) if record.checks else "-"
