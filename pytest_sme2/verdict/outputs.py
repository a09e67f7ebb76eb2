"""Whether the answers are right: on against off, and against the eager model."""

from __future__ import annotations

from collections.abc import Mapping

from pytest_sme2.export.variant import parse_variant
from pytest_sme2.results import Agreement, CaseResult, Check, Limits, Outcome, Tolerance
from pytest_sme2.verdict.judging import number
from pytest_sme2.verdict.numerics import within


def check_outputs(measured: CaseResult, limits: Limits, against: str) -> Check:
    """Whether the outputs are right: SME2 on against ``off``, or against the eager ``reference``.

    A NaN fails whatever the tolerance: it is the one wrong answer that no precision explains.
    """
    metric = f"outputs against {against}"
    if measured.nan_arms:
        arms = " and ".join(str(arm) for arm in measured.nan_arms)
        return Check(metric, Outcome.REGRESSED, f"The output holds NaN (SME2 {arms}).")
    found = [entry for entry in measured.agreements if entry.against == against]
    if not found:
        return Check(
            metric,
            Outcome.INVALID,
            f"No output was compared with the {against}, so nothing is known about it.",
        )
    if any(entry.has_nan for entry in found):
        return Check(metric, Outcome.REGRESSED, "The output holds NaN.")
    precision = parse_variant(measured.variant).precision
    table: Mapping[str, Tolerance] = (
        limits.on_off_tolerances if against == "off" else limits.tolerances
    )
    tolerance = table.get(precision)
    if tolerance is None:
        return Check(
            metric,
            Outcome.INVALID,
            f"No tolerance is known for {precision}. Give one in limits.toml.",
        )
    outside = [entry for entry in found if not within(entry, tolerance)]
    worst = max(found, key=lambda entry: entry.max_rel)
    count = f"{len(outside)} of {number(len(found), 'output')}"
    message = (
        f"{count} outside the tolerance for {precision}."
        if outside
        else f"All {number(len(found), 'output')} within the tolerance for {precision}."
    )
    return Check(
        metric,
        Outcome.REGRESSED if outside else Outcome.PASS,
        message,
        new=worst.max_rel,
        unit="share",
        limit=tolerance.max_rel,
        details=tuple(_agreement_line(entry, tolerance) for entry in outside or found),
    )


def _agreement_line(entry: Agreement, tolerance: Tolerance) -> str:
    if entry.identical:
        return f"output {entry.index} ({entry.dtype}, {entry.arm}): identical"
    parts = [f"largest error {entry.max_abs:.3g} ({entry.max_rel:.2%} of the largest value)"]
    if entry.sqnr_db is not None:
        least = "" if tolerance.min_sqnr_db is None else f", at least {tolerance.min_sqnr_db:g}"
        parts.append(f"signal over noise {entry.sqnr_db:.1f} dB{least}")
    return f"output {entry.index} ({entry.dtype}, {entry.arm}): {'; '.join(parts)}"
