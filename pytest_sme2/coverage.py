"""How much of the matrix work ran on SME2 kernels, and why the rest did not. Pure.

The evidence is the operators' names, and a kernel census where there is one. Whether a pair of runs
proves anything is asked in ``evidence.py``.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

from pytest_sme2.categories import has_per_tensor_weights, sme2_variant
from pytest_sme2.results import (
    Coverage,
    Executor,
    KernelCensus,
    KernelFamily,
    Operator,
    OperatorProfile,
)

_WORDS = {"F16": "fp16", "F32": "fp32", "BF16": "bf16", "QC8": "int8", "QS8": "int8",
          "QU8": "uint8", "PF16": "fp16", "PF32": "fp32", "PQS8": "int8"}  # fmt: skip

# Kernels that work on a QP8 operand: XNNPACK's own name for them, and KleidiAI's.
_QP8_KERNEL = re.compile(r"qp8|qai8dxp")
# The weights' part of KleidiAI's kernel names, by XNNPACK's data type.
_WEIGHTS = {"QC4W": "qsi4cx", "QC8W": "qsi8cx", "QB4W": "qsi4c32"}


def precision(operator: Operator) -> str:
    """The input's data type in everyday words, as in ``fp16``."""
    if not operator.data_types:
        return "unknown"
    first = operator.data_types[0]
    return _WORDS.get(first, ", ".join(operator.data_types))


def coverage(
    operators: Sequence[OperatorProfile], *, census: KernelCensus | None = None
) -> Coverage:
    """Count the matrix operators on SME2 kernels; ``census`` settles what names leave open."""
    matrix = [profile for profile in operators if profile.operator.matrix]
    proofs = [_proof(profile.operator, census) for profile in matrix]
    sme2 = [profile for profile, proof in zip(matrix, proofs, strict=True) if proof is True]
    unproven = [profile for profile, proof in zip(matrix, proofs, strict=True) if proof is None]
    missed = [profile for profile, proof in zip(matrix, proofs, strict=True) if proof is False]
    depthwise = [profile for profile in operators if profile.operator.kind == "depthwise"]
    return Coverage(
        matrix_operators=len(matrix),
        sme2_operators=len(sme2),
        matrix_ns=sum(profile.time_ns for profile in matrix),
        sme2_ns=sum(profile.time_ns for profile in sme2),
        missed=tuple((profile, missed_reason(profile.operator, bool(sme2))) for profile in missed),
        unproven=tuple(unproven),
        depthwise_operators=len(depthwise),
        depthwise_ns=sum(profile.time_ns for profile in depthwise),
        source="operator names" if census is None else "operator names and kernel census",
    )


def _proof(operator: Operator, census: KernelCensus | None) -> bool | None:
    """Whether the operator ran on SME2; None where nothing tells."""
    if operator.sme2 or not operator.unproven:
        return operator.sme2
    return None if census is None else _census_proof(operator, census)


def _census_proof(operator: Operator, census: KernelCensus) -> bool | None:
    """What the kernels that ran say of a QP8 operator; None where both families or none ran."""
    weights = [_WEIGHTS[word] for word in operator.data_types if word in _WEIGHTS]
    words = [word.lower() for word in operator.data_types if word in _WEIGHTS]
    families = {
        kernel.family
        for kernel in census.kernels
        if _QP8_KERNEL.search(kernel.name)
        and (not weights or any(word in kernel.name for word in (*weights, *words)))
    }
    on_sme2 = bool(families & {KernelFamily.SME2, KernelFamily.SME})
    on_neon = KernelFamily.NEON in families
    return on_sme2 if on_sme2 != on_neon else None


def missed_reason(operator: Operator, any_sme2: bool) -> str:
    """Why a matrix operator most likely did not run on an SME2 kernel.

    ``any_sme2``: whether another operator of the same program did.
    """
    if operator.executor is Executor.PORTABLE:
        return "portable fallback: XNNPACK did not take it, and ExecuTorch's kernels have no SME2"
    if not any_sme2:
        return "no operator of this program ran on SME2: it is off, or the CPU has none"
    variant = sme2_variant(operator)
    words = precision(operator)
    if (
        variant is None
        and operator.operation == "Fully Connected"
        and (has_per_tensor_weights(operator))
    ):
        return (
            "XNNPACK has no SME2 kernel for Fully Connected in int8 with per-tensor weights: "
            "quantize the weights per channel"
        )
    if "QB4W" in operator.data_types:
        return (
            "its 4-bit weights have a scale a group, and XNNPACK has SME2 kernels for 4-bit "
            "weights with a scale a channel alone"
        )
    if variant is None:
        return f"XNNPACK has no SME2 kernel for {operator.operation} in {words}"
    if "(NCHW" in operator.name:
        return "XNNPACK has no SME2 kernel for the NCHW layout it chose"
    if operator.operation == "Fully Connected" and variant == "PF16":
        # ExecuTorch 1.5 writes the weights of fp16 convolutions as fp32. XNNPACK turns a 1x1
        # convolution into Fully Connected, and with fp32 weights has only a NEON kernel for it.
        return (
            "most likely 1x1 convolutions: ExecuTorch stores the weights of fp16 convolutions as "
            "fp32, and XNNPACK has no SME2 kernel for Fully Connected in fp16 with fp32 weights"
        )
    return (
        f"XNNPACK has an SME2 kernel for {operator.operation} in {words} ({variant}) but did not "
        "choose it: look at groups, shapes and the data type of the weights"
    )
