"""Whether the answers are right: on against off, and against the eager model."""

from __future__ import annotations

from collections.abc import Mapping

from pytest_sme2.export.variant import precision_of
from pytest_sme2.results import (
    AS_EXPORTED,
    Agreement,
    CaseResult,
    Check,
    Limits,
    OperatorProfile,
    Outcome,
    Tolerance,
)
from pytest_sme2.system.wording import count
from pytest_sme2.verdict.numerics import within

# ExecuTorch 1.5 loads half values as floats from this width on.
_WRONG_LAYER_NORM = 256


def check_outputs(measured: CaseResult, limits: Limits, against: str) -> Check:
    """Whether the outputs are right: SME2 on against ``off``, or against the eager ``reference``.

    A NaN fails whatever the tolerance: it is the one wrong answer that no precision explains. An
    expected output that says nothing, since it is zero or constant, neither fails nor passes. It is
    never a regression: the tolerance does not come from a baseline.
    """
    metric = f"outputs against {against}"
    if measured.nan_arms:
        arms = " and ".join(str(arm) for arm in measured.nan_arms)
        return Check(
            metric, Outcome.FAILED, f"The output holds NaN (SME2 {arms}).{known_cause(measured)}"
        )
    found = [entry for entry in measured.agreements if entry.against == against]
    if not found and against == "reference" and measured.variant == AS_EXPORTED:
        return Check(
            metric,
            Outcome.NOT_MEASURED,
            "Nobody knows what this program should answer. Put its inputs and what is expected "
            "beside it, as in NAME.input_0.bin and NAME.reference_0.bin.",
        )
    if not found:
        return Check(
            metric,
            Outcome.INVALID,
            f"No output was compared with the {against}, so nothing is known about it.",
        )
    if any(entry.has_nan for entry in found):
        return Check(metric, Outcome.FAILED, f"The output holds NaN.{known_cause(measured)}")
    precision = precision_of(measured.variant) or measured.variant
    tolerance = tolerance_of(measured.variant, limits, against)
    if tolerance is None:
        return Check(
            metric,
            Outcome.INVALID,
            f"No tolerance is known for {precision}. Give one in limits.toml.",
        )
    alive = [entry for entry in found if not entry.dead]
    if not alive:
        return Check(
            metric,
            Outcome.NOT_MEASURED,
            f"Comparing says nothing: what is expected is {found[0].dead}. Give trained weights "
            "(--sme2-weights), or other example inputs.",
            details=tuple(agreement_line(entry, tolerance) for entry in found),
        )
    outside = [entry for entry in alive if not within(entry, tolerance)]
    worst = max(alive, key=lambda entry: entry.max_rel)
    judged = count(len(alive), "output")
    message = (
        f"{len(outside)} of {judged} outside the tolerance for {precision}.{known_cause(measured)}"
        if outside
        else f"{len(alive)} of {judged} within the tolerance for {precision}."
    )
    dead = len(found) - len(alive)
    if dead:
        message += f" {count(dead, 'output')} not judged: what is expected is zero or constant."
    return Check(
        metric,
        Outcome.FAILED if outside else Outcome.PASS,
        message,
        new=worst.max_rel,
        unit="share",
        limit=tolerance.max_rel,
        details=tuple(agreement_line(entry, tolerance) for entry in outside or found),
    )


def tolerance_of(variant: str, limits: Limits, against: str) -> Tolerance | None:
    table: Mapping[str, Tolerance] = (
        limits.on_off_tolerances if against == "off" else limits.tolerances
    )
    if variant == AS_EXPORTED:
        # Its precision is not known: what holds for the least exact one holds for it.
        return table.get("int8")
    return table.get(precision_of(variant))


def known_cause(measured: CaseResult) -> str:
    """A sentence, with a space before it, where the cause of wrong outputs is known."""
    wide = wrong_layer_norms(measured)
    if not wide:
        return ""
    return (
        f" A known cause: {count(len(wide), 'LayerNorm')} of {_WRONG_LAYER_NORM} values or more, "
        "which ExecuTorch 1.5 computes wrongly in fp16. `sme2 advise` names them and the way out."
    )


def wrong_layer_norms(measured: CaseResult) -> list[OperatorProfile]:
    """Those that ExecuTorch computes wrongly."""
    profile = measured.profiles.get(measured.arm)
    if profile is None or precision_of(measured.variant) != "fp16":
        return []
    return [
        member
        for member in profile.operators
        if member.operator.operation == "native_layer_norm"
        and member.shapes is not None
        and member.shapes.inputs
        and member.shapes.inputs[0][-1:] >= (_WRONG_LAYER_NORM,)
    ]


def agreement_line(entry: Agreement, tolerance: Tolerance) -> str:
    """One output in words: the error, its scale, and what is allowed."""
    return f"output {entry.index} ({entry.dtype}, {entry.arm}): {agreement_text(entry, tolerance)}"


def agreement_text(entry: Agreement, tolerance: Tolerance | None) -> str:
    if entry.dead:
        return f"not judged: what is expected is {entry.dead}"
    if entry.identical:
        return "identical"
    peak = "" if entry.peak is None else f", {entry.peak:.3g}"
    parts = [f"largest error {entry.max_abs:.3g} ({entry.max_rel:.2%} of the largest value{peak})"]
    if entry.sqnr_db is not None:
        least = None if tolerance is None else tolerance.min_sqnr_db
        asked = "" if least is None else f", at least {least:g}"
        parts.append(f"signal over noise {entry.sqnr_db:.1f} dB{asked}")
    return "; ".join(parts)
