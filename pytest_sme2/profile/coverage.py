"""How much of the matrix work ran on SME2 kernels, and why the rest did not. Pure.

What an operator is, its name alone does not say. ``settled`` joins the name with the program's
shapes and the kernels that ran; everything else reads the answer from the operator.
"""

from __future__ import annotations

import functools
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from pytest_sme2.profile.categories import (
    XNNPACK_NAMES,
    canonical_name,
    classify,
    has_per_tensor_weights,
    ran_in,
)
from pytest_sme2.profile.kernel_matrix import in_channels_first, known_family
from pytest_sme2.profile.known_names import KnownName, NameTable, table_of
from pytest_sme2.profile.matching import is_pointwise
from pytest_sme2.results.evidence import Evidence, KernelCensus, KernelFamily
from pytest_sme2.results.profile import Coverage, Executor, Operator, OperatorProfile, Profile
from pytest_sme2.results.run import OperatorShapes
from pytest_sme2.system.wording import count


@dataclass(frozen=True)
class Proof:
    """What a run shows of its operators beside their names."""

    census: KernelCensus | None = None
    executed: Sequence[KernelFamily] | None = None
    """Of a counted inference, what each of its operators ran on. Nothing else is asked then."""
    executorch: str = ""
    """Its version, whose table tells what names mean."""

    @functools.cached_property
    def table(self) -> NameTable:
        return table_of(self.executorch)

    @property
    def source(self) -> str:
        if self.executed is not None:
            return "executed instructions"
        return "operator names" + " and kernel census" * (self.census is not None)


def coverage(operators: Sequence[OperatorProfile], proof: Proof) -> Coverage:
    """Count the matrix operators on SME2 kernels; the operators are settled."""
    matrix = [member for member in operators if member.operator.matrix]
    sme2 = [member for member in matrix if member.operator.sme2]
    depthwise = [member for member in operators if member.operator.kind == "depthwise"]
    return Coverage(
        matrix_operators=len(matrix),
        sme2_operators=len(sme2),
        missed=tuple(
            (member, missed_reason(member.operator, bool(sme2), member.shapes))
            for member in matrix
            if not member.operator.sme2 and not member.operator.unproven
        ),
        unproven=tuple(member for member in matrix if member.operator.unproven),
        depthwise_operators=len(depthwise),
        source=proof.source,
        unknown=tuple(
            dict.fromkeys(
                member.operator.name
                for member in matrix
                if proof.executed is None and member.operator.name not in proof.table.names
            )
        ),
    )


def settled(
    operator: Operator, shapes: OperatorShapes | None, proof: Proof, index: int = 0
) -> Operator:
    """The operator with all that is known of it: the one place that joins name, shapes and what
    ran. ``index`` is its place in the run.
    """
    if proof.executed is not None:
        family = proof.executed[index]
        ran = family in (KernelFamily.SME2, KernelFamily.SME)
        matrix = operator.matrix or (ran and operator.kind == "depthwise")
        operator = replace(operator, sme2=ran, sme1=family is KernelFamily.SME, matrix=matrix)
    elif (known := proof.table.names.get(operator.name)) is not None:
        operator = _by_name(operator, known, proof.census)
    elif operator.matrix:
        operator = replace(operator, unproven=True)
    if shapes is not None and _is_depthwise(shapes) and not operator.sme2:
        # XNNPACK has DWConv kernels for few sizes; a 7x7 depthwise convolution runs as IGEMM.
        return replace(operator, kind="depthwise", matrix=False, unproven=False)
    return operator


def _is_depthwise(shapes: OperatorShapes) -> bool:
    """XNNPACK's node says so; of ExecuTorch's kernel the weights do, which have one channel."""
    if not shapes.operation.startswith("aten::convolution") or len(shapes.inputs) < 2:
        return shapes.operation == "depthwise convolution"
    image, weights = shapes.inputs[:2]
    return weights[1:2] == (1,) and image[1] == weights[0] > 1


def _by_name(operator: Operator, known: KnownName, census: KernelCensus | None) -> Operator:
    """By what ran under this name on the emulator; where both did, by the kernels that ran now."""
    ran = {kernel.name for kernel in census.kernels} if census else set[str]()
    on = ran & {*known.sme2, *known.sme1} - {*known.other}
    off = ran & {*known.other} - {*known.sme2, *known.sme1}
    on_sme2 = bool(known.sme2 or known.sme1)
    if on_sme2 and known.other:
        if bool(on) is bool(off):
            return replace(operator, unproven=True)
        on_sme2 = bool(on)
    sme1 = on_sme2 and bool(on) and not on & {*known.sme2}
    # Depthwise work that a kernel exists for after all is matrix work.
    matrix = operator.matrix or (on_sme2 and operator.kind == "depthwise")
    return replace(operator, sme2=on_sme2, sme1=sme1, matrix=matrix)


def named_by_chip(profile: Profile, census: KernelCensus | None, sme1: bool) -> Profile:
    """What ran on SME is SME1's on a chip without SME2, unless a census names the kernels."""
    if not sme1 or census is not None:
        return profile
    return replace(
        profile,
        operators=tuple(
            replace(member, operator=replace(member.operator, sme1=member.operator.sme2))
            for member in profile.operators
        ),
    )


def missed_reason(operator: Operator, any_sme2: bool, shapes: OperatorShapes | None = None) -> str:
    """Why a matrix operator most likely did not run on an SME2 kernel.

    ``any_sme2``: whether another operator of the same program is known to have. The kernel matrix
    is asked first; what is said here of XNNPACK explains its answer, or stands in for it. It was
    seen with ExecuTorch 1.5: ``tests/data/coverage`` keeps it.
    """
    if operator.executor is Executor.PORTABLE:
        return "portable fallback: XNNPACK did not take it, and ExecuTorch's own kernel has no SME2"
    family = known_family(operator, shapes)
    cause = None if family == "sme2" else _missing_kernel(operator)
    if cause is None and family in ("", "sme2") and not any_sme2:
        return "no operator of this program is known to have run on SME2: off, or not in the CPU"
    if family == "sme2":
        return (
            "in the kernel matrix the same layer runs on SME2: compare the version of ExecuTorch, "
            "the CPU and the data type of the weights"
        )
    if cause := cause or _unfit(operator, shapes):
        return cause
    if family:
        return "the kernel matrix has no SME2 kernel for such a layer either"
    return (
        f"XNNPACK has an SME2 kernel for {operator.operation} in {ran_in(operator)} but did "
        "not choose it: look at shapes and at the data type of the weights"
    )


@functools.cache
def _names_on_sme2() -> frozenset[str]:
    """What the newest version ran on SME2, whichever kernel it took."""
    names = table_of("").names.items()
    return frozenset(canonical_name(classify(name)) for name, known in names if known.sme2)


def _missing_kernel(operator: Operator) -> str | None:
    """The reason that holds with SME2 on and off: there is no kernel at all."""
    if operator.operation not in XNNPACK_NAMES:
        return "no SME2 kernel of that name is known"
    if "QB4W" in operator.data_types:
        return (
            "its 4-bit weights have one scale per group, and XNNPACK has SME2 kernels only for "
            "4-bit weights with one scale per channel: try the variant int4_channel"
        )
    if "QP8" in operator.data_types:
        return None
    if canonical_name(operator) not in _names_on_sme2():
        if operator.operation == "Fully Connected" and has_per_tensor_weights(operator):
            return (
                "XNNPACK has no SME2 kernel for Fully Connected in int8 with per-tensor weights: "
                "quantize the weights per channel"
            )
        return f"XNNPACK has no SME2 kernel for {operator.operation} in {ran_in(operator)}"
    if in_channels_first(operator):
        return "XNNPACK has no SME2 kernel for the NCHW layout it chose"
    return None


def _unfit(operator: Operator, shapes: OperatorShapes | None) -> str | None:
    """There is a kernel for the data type, but not for this layer."""
    likely = "most likely " if shapes is None else ""
    if operator.operation == "Fully Connected" and "F16" in operator.data_types:
        # XNNPACK turns a 1x1 convolution into Fully Connected; with fp32 weights, which
        # ExecuTorch writes for every fp16 convolution, it has only a NEON kernel for that.
        if shapes is None or is_pointwise(shapes):
            return (
                f"{likely}1x1 convolutions: ExecuTorch stores the weights of fp16 convolutions as "
                "fp32, and XNNPACK has no SME2 kernel for Fully Connected in fp16 with fp32 weights"
            )
    # Weights are out, height, width, and in of one group.
    elif operator.operation == "Convolution" and (shapes is None or shapes.inputs[-1][-1] == 1):
        return f"{likely}one input channel: XNNPACK uses its SME2 kernels from two channels on"
    return None


def could_run_on_sme2(operator: Operator, shapes: OperatorShapes | None) -> bool:
    """Whether there is any SME2 kernel for this matrix operator, by the kernel matrix first."""
    if operator.executor is not Executor.DELEGATED:
        return canonical_name(operator) in _names_on_sme2()
    family = known_family(operator, shapes)
    return family == "sme2" if family else _missing_kernel(operator) is None


def could_run(profile: Profile) -> bool:
    """Whether any of the operators that did not run on SME2 could have."""
    missed = (member for member, _ in profile.coverage.missed)
    return any(could_run_on_sme2(member.operator, member.shapes) for member in missed)


def check_pair(
    on: Profile,
    off: Profile,
    *,
    effective_on: bool | None = None,
    effective_off: bool | None = None,
    sme1: bool = False,
    third: Profile | None = None,
    census_off: KernelCensus | None = None,
) -> Evidence:
    """Judge a pair by the operators that ran; the message says which side is wrong.

    ``effective_on`` and ``effective_off`` are what the processes themselves report about SME2;
    None where they cannot tell. ``sme1``: the chip has no SME2, so ``on`` is SME1. ``third`` is the
    arm that hides SME2 alone, where it ran. ``census_off`` is what was seen of all the off run's
    code.
    """
    sme2_on, sme2_off = on.coverage.sme2_operators, off.coverage.sme2_operators
    matrix = count(on.coverage.matrix_operators, "matrix operator")
    word, chip = ("SME1", " (the chip has no SME2)") if sme1 else ("SME2", "")
    hidden = "" if third is None else f", {third.coverage.sme2_operators} on SME1 with SME2 hidden"
    only_sme1 = {"sme1": third} if third else {}
    only_sme1 |= {"on": on} if sme1 else {}
    shown = (
        f"{sme2_on} of {matrix} ran on {word} kernels with {word} on{chip}{hidden}, none with "
        f"{word} off."
    )
    objections = _objections(on, off, None if sme1 else effective_on, effective_off, only_sme1)
    message = next(objections, "")
    blocks = 0 if census_off is None else census_off.streaming or 0
    if blocks and not message:
        message = (
            f"The off run is wrong: {count(blocks, 'block')} of its code entered streaming mode or "
            "worked on ZA, in an operator or beside them. Something in it does not ask the switch "
            "for SME2."
        )
    return Evidence(
        valid=not message,
        message=message or shown,
        matrix_operators=max(on.coverage.matrix_operators, off.coverage.matrix_operators),
        sme2_on=sme2_on,
        sme2_off=sme2_off,
    )


def _objections(
    on: Profile,
    off: Profile,
    effective_on: bool | None,
    effective_off: bool | None,
    only_sme1: Mapping[str, Profile],
) -> Iterator[str]:
    """What is wrong with the pair, the most telling first; ``only_sme1`` are arms without SME2."""
    if effective_on is False:
        yield (
            "The on run is wrong: its process reports that SME2 is not in effect. The CPU has no "
            "SME2, or the runner was started without it."
        )
    if effective_off:
        yield (
            "The off run is wrong: its process reports that SME2 is in effect although it was to "
            "be off. Check the switch of the runner."
        )
    sme2_on, sme2_off = on.coverage.sme2_operators, off.coverage.sme2_operators
    for side, profile in (("on", on), ("off", off)):
        if any(member.operator.kind == "opaque delegate" for member in profile.operators):
            yield (
                f"The {side} run hides what its delegate ran: its ETDump holds delegate calls "
                "without operators. Use a runner whose XNNPACK has profiling enabled."
            )
    if not on.coverage.matrix_operators and not off.coverage.matrix_operators:
        yield (
            "The model has no matrix operators (convolutions, linear layers, matrix products), so "
            "there is nothing that SME2 could run and nothing to compare."
        )
    for side, profile in (("on", on), ("off", off)):
        if names := profile.coverage.unknown:
            yield (
                f"The {side} run is unknown: no run on the emulator told whether these run on "
                f"SME2: {'; '.join(names)}. Run the program there once, with this version of "
                "ExecuTorch (`sme2 run MODEL --device emulated`), and then here again."
            )
    if sme2_off:
        yield (
            f"The off run is wrong: {sme2_off} of "
            f"{count(off.coverage.matrix_operators, 'matrix operator')} ran on SME2 kernels "
            "although SME2 was to be off. Check the switch, or the build "
            "(XNNPACK_ENABLE_ARM_SME2 and XNNPACK_ENABLE_ARM_SME both have to be OFF)."
        )
    if not sme2_on:
        yield _nothing_on(on)
    for side, profile in only_sme1.items():
        wrong = sum(each.operator.sme2 and not each.operator.sme1 for each in profile.operators)
        if wrong:
            yield (
                f"The {side} run is wrong: {count(wrong, 'operator')} ran on SME2 kernels although "
                "SME2 was to be hidden. Check the switch of the runner."
            )


def _nothing_on(on: Profile) -> str:
    found = on.coverage
    matrix = count(found.matrix_operators, "matrix operator")
    if found.unproven:
        return (
            f"The on run is unproven: {count(len(found.unproven), 'matrix operator')} ran on "
            "packed kernels (QP8) that exist for SME2 and for NEON under one name. A kernel "
            "census can settle it."
        )
    if not could_run(on):
        reasons = "; ".join(dict.fromkeys(reason for _, reason in found.missed))
        return (
            f"There is no SME2 kernel for any of the {matrix} of this model, so the pair shows "
            f"nothing: {reasons}."
        )
    return (
        f"The on run is wrong: none of its {matrix} ran on an SME2 kernel. The CPU has no SME2, "
        "the runner was built or started without it, or none of the operators has a shape that "
        "XNNPACK uses it for."
    )
