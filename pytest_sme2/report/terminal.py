"""The end of a run on a terminal: one table, and the findings worth a sentence."""

from __future__ import annotations

import statistics
from collections.abc import Sequence

from pytest_sme2.compare import compare, largest_category
from pytest_sme2.gate import combine
from pytest_sme2.report.findings import comparison_findings, profile_findings
from pytest_sme2.report.text import bullet, clipped
from pytest_sme2.results import Arm, Measured
from pytest_sme2.rundir import CaseRecord

_HEADINGS = ("model-variant", "SME2", "off ms", "on ms", "speedup", "largest", "MB", "verdict")


def run_lines(records: Sequence[CaseRecord]) -> list[str]:
    """The table of all cases and what there is to say about them."""
    if not records:
        return []
    rows = [_HEADINGS, *(_row(record) for record in records)]
    widths = [max(len(row[column]) for row in rows) for column in range(len(_HEADINGS))]
    widths[0] = min(widths[0], 80 - sum(widths[1:]) - len(widths) + 1)
    lines = [
        " ".join(
            clipped(cell, width).ljust(width) if column in (0, 5, 7) else cell.rjust(width)
            for column, (cell, width) in enumerate(zip(row, widths, strict=True))
        ).rstrip()
        for row in rows
    ]
    return [*lines, "", *_notes(records)]


def _row(record: CaseRecord) -> tuple[str, ...]:
    measured = record.measured
    coverage = measured.coverage
    profile = measured.profiles.get(measured.arm)
    largest = None if profile is None or measured.emulated else largest_category(profile)
    peak = (measured.peak_bytes or {}).get(measured.arm)
    return (
        record.id,
        "-" if coverage is None else f"{coverage.sme2_operators}/{coverage.matrix_operators}",
        _latency(measured, Arm.OFF),
        _latency(measured, Arm.ON),
        _speedup(measured),
        "-" if largest is None else str(largest),
        "-" if peak is None else f"{peak / 1e6:.0f}",
        str(combine(record.checks)) if record.checks else "-",
    )


def _latency(measured: Measured, arm: Arm) -> str:
    medians = (measured.medians_ns or {}).get(arm)
    return f"{statistics.median(medians) / 1e6:.2f}" if medians else "-"


def _speedup(measured: Measured) -> str:
    found = measured.speedup
    if found is None:
        return "-"
    return f"{found.value:.2f}x [{found.low:.2f},{found.high:.2f}]"


def _notes(records: Sequence[CaseRecord]) -> list[str]:
    lines = []
    for record in records:
        measured = record.measured
        findings: list[str] = []
        profile = measured.profiles.get(measured.arm)
        if profile is not None:
            findings += profile_findings(profile)
        if not measured.emulated and len(measured.profiles) == len(Arm):
            findings += comparison_findings(
                compare(measured.profiles[Arm.OFF], measured.profiles[Arm.ON])
            )
        lines += [bullet(f"{record.id}: {finding}") for finding in findings]
    if any(record.measured.emulated for record in records):
        lines.append(
            bullet("The CPU was emulated: operators, kernels and outputs are exact, times are not.")
        )
    if any(record.measured.weights.startswith("random") for record in records):
        lines.append(bullet("Weights are random: latency does not depend on them, accuracy does."))
    return lines
