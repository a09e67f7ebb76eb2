"""Whether a pair of runs shows what it claims: SME2 kernels when on, none when off. Pure."""

from __future__ import annotations

from pytest_sme2.profile.coverage import could_run_on_sme2
from pytest_sme2.results import Evidence, Profile
from pytest_sme2.system.wording import count


def check_pair(
    on: Profile,
    off: Profile,
    *,
    effective_on: bool | None = None,
    effective_off: bool | None = None,
    sme1: bool = False,
    third: Profile | None = None,
) -> Evidence:
    """Judge a pair by the operators that ran; the message says which side is wrong.

    ``effective_on`` and ``effective_off`` are what the processes themselves report about SME2;
    None where they cannot tell. ``sme1``: the chip has no SME2, so ``on`` is SME1. ``third`` is the
    arm that hides SME2 alone, where it ran.
    """
    matrix = max(on.coverage.matrix_operators, off.coverage.matrix_operators)
    sme2_on, sme2_off = on.coverage.sme2_operators, off.coverage.sme2_operators
    message = (
        _contradiction(None if sme1 else effective_on, effective_off)
        or _objection(on, off)
        or (None if third is None else _wrong_kind("sme1", third))
        or (_wrong_kind("on", on) if sme1 else None)
    )
    word, chip = ("SME1", " (the chip has no SME2)") if sme1 else ("SME2", "")
    hidden = "" if third is None else f", {third.coverage.sme2_operators} on SME1 with SME2 hidden"
    return Evidence(
        valid=message is None,
        message=message
        or (
            f"{sme2_on} of {count(on.coverage.matrix_operators, 'matrix operator')} ran on {word} "
            f"kernels with {word} on{chip}{hidden}, none with {word} off."
        ),
        matrix_operators=matrix,
        sme2_on=sme2_on,
        sme2_off=sme2_off,
    )


def _wrong_kind(side: str, profile: Profile) -> str | None:
    """What is wrong with an arm that can only have SME1."""
    wrong = sum(each.operator.sme2 and not each.operator.sme1 for each in profile.operators)
    if not wrong:
        return None
    return (
        f"The {side} run is wrong: {count(wrong, 'operator')} ran on SME2 kernels although SME2 "
        "was to be hidden. Check the switch of the runner."
    )


def _contradiction(effective_on: bool | None, effective_off: bool | None) -> str | None:
    """What the processes themselves say against the pair."""
    if effective_on is False:
        return (
            "The on run is wrong: its process reports that SME2 is not in effect. The CPU has no "
            "SME2, or the runner was started without it."
        )
    if effective_off:
        return (
            "The off run is wrong: its process reports that SME2 is in effect although it was to "
            "be off. Check the switch of the runner."
        )
    return None


def _objection(on: Profile, off: Profile) -> str | None:
    """What is wrong with the pair, None if nothing is."""
    sme2_on, sme2_off = on.coverage.sme2_operators, off.coverage.sme2_operators
    for side, profile in (("on", on), ("off", off)):
        if any(member.operator.kind == "opaque delegate" for member in profile.operators):
            return (
                f"The {side} run hides what its delegate ran: its ETDump holds delegate calls "
                "without operators. Use a runner whose XNNPACK has profiling enabled."
            )
    if not on.coverage.matrix_operators and not off.coverage.matrix_operators:
        return (
            "The model has no matrix operators (convolutions, linear layers, matrix products), so "
            "there is nothing that SME2 could run and nothing to compare."
        )
    if sme2_off and not sme2_on:
        return (
            f"Both sides are wrong: the off run shows {count(sme2_off, 'operator')} on SME2 "
            "kernels and the on run none. The two were most likely swapped."
        )
    if sme2_off:
        return (
            f"The off run is wrong: {sme2_off} of "
            f"{count(off.coverage.matrix_operators, 'matrix operator')} ran on SME2 kernels "
            "although SME2 was to be off. Check the switch, or the build "
            "(XNNPACK_ENABLE_ARM_SME2 and XNNPACK_ENABLE_ARM_SME both have to be OFF)."
        )
    if not sme2_on:
        return _nothing_on(on)
    return None


def _nothing_on(on: Profile) -> str:
    unproven = len(on.coverage.unproven)
    if unproven:
        return (
            f"The on run is unproven: {count(unproven, 'matrix operator')} ran on packed kernels "
            "(QP8) that exist for SME2 and for NEON under one name. A kernel census can settle it."
        )
    if not any(
        could_run_on_sme2(member.operator, member.shapes) for member, _ in on.coverage.missed
    ):
        reasons = "; ".join(dict.fromkeys(reason for _, reason in on.coverage.missed))
        return (
            "There is no SME2 kernel for any of the "
            f"{count(on.coverage.matrix_operators, 'matrix operator')} of this model, so the pair "
            f"shows nothing: {reasons}."
        )
    return (
        "The on run is wrong: none of its "
        f"{count(on.coverage.matrix_operators, 'matrix operator')} ran on an SME2 kernel. The "
        "CPU has no SME2, the runner was built or started without it, or none of the operators "
        "has a shape that XNNPACK uses it for."
    )
