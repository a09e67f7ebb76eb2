"""How a model is exported: its data type and, optionally, its input size."""

from __future__ import annotations

import re
from dataclasses import dataclass

from pytest_sme2.errors import UsageError
from pytest_sme2.export.rewrites import NAMES
from pytest_sme2.results import AS_EXPORTED
from pytest_sme2.system.wording import split_list

PRECISIONS = ("fp32", "fp16", "int8", "int8_dynamic", "int4", "int4_channel")
NO_PASSES = "no_passes"

_VARIANT = re.compile(
    r"(?P<precision>[a-z0-9_]+)(?P<rewrites>(?:\+[a-z0-9_]+)*)(?:@(?P<size>[1-9][0-9]{0,4}))?"
)


@dataclass(frozen=True)
class Variant:
    """How a model is exported: its precision and, optionally, its input size and rewrites."""

    precision: str
    size: int | None = None
    rewrites: tuple[str, ...] = ()
    """Names of ``rewrites.py`` that are applied to the model first."""
    passes: bool = True
    """Whether ExecuTorch's recommended passes for XNNPACK are used."""

    def __str__(self) -> str:
        size = "" if self.size is None else f"@{self.size}"
        without = () if self.passes else (NO_PASSES,)
        return "+".join((self.precision, *self.rewrites, *without)) + size


def parse_variant(value: str) -> Variant:
    """``fp16``, ``fp16@256``, with rewrites ``fp16+silu@256``, or ``fp16+no_passes``."""
    match = _VARIANT.fullmatch(value)
    precision = match["precision"] if match else value
    if precision in ("bf16", "bfloat16"):
        raise UsageError(
            f"{value!r} cannot be exported: with ExecuTorch 1.5, XNNPACK takes no bfloat16, and "
            "all of the model would run outside of it. Linear layers can be bf16 in releases after "
            "1.5 (pytorch/executorch#21493, pytorch/executorch#21784). Use fp16 until then."
        )
    if match is None or precision not in PRECISIONS:
        raise UsageError(
            f"{value!r} is not a variant. Choose one of: {', '.join(PRECISIONS)}; "
            "optionally with an input size, as in fp16@256."
        )
    words = match["rewrites"].split("+")[1:]
    if not {NO_PASSES, *NAMES}.issuperset(words) or len(set(words)) < len(words):
        raise UsageError(
            f"{value!r} is not a variant: after + stand rewrites, each once, and {NO_PASSES} to "
            f"lower without ExecuTorch's recommended passes. The rewrites are: {', '.join(NAMES)}."
        )
    rewrites = tuple(word for word in words if word != NO_PASSES)
    size = int(match["size"]) if match["size"] else None
    return Variant(precision, size, rewrites, passes=NO_PASSES not in words)


def file_part(value: str) -> str:
    """A variant as it stands in the name of a file."""
    return AS_EXPORTED.replace(" ", "-") if value == AS_EXPORTED else str(parse_variant(value))


def precision_of(value: str) -> str:
    """The precision of a variant; empty for a program whose precision is unknown."""
    match = _VARIANT.fullmatch(value)
    return match["precision"] if match and match["precision"] in PRECISIONS else ""


def parse_variants(value: str) -> tuple[Variant, ...]:
    return tuple(parse_variant(word) for word in split_list(value))
