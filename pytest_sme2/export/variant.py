"""How a model is exported: its data type and, optionally, its input size."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING

from pytest_sme2.errors import UsageError
from pytest_sme2.system.choices import split_list

if TYPE_CHECKING:
    pass


PRECISIONS = ("fp32", "fp16", "int8", "int8_dynamic", "int4")


_VARIANT = re.compile(r"(?P<precision>[a-z0-9_]+)(?:@(?P<size>[1-9][0-9]{0,4}))?")


@dataclass(frozen=True)
class Variant:
    """How a model is exported: its precision and, optionally, its input size."""

    precision: str
    size: int | None = None

    def __str__(self) -> str:
        return self.precision if self.size is None else f"{self.precision}@{self.size}"


def parse_variant(value: str) -> Variant:
    """``fp16`` or ``fp16@256``."""
    match = _VARIANT.fullmatch(value)
    precision = match["precision"] if match else value
    if match is None or precision not in PRECISIONS:
        raise UsageError(
            f"{value!r} is not a variant. Choose one of: {', '.join(PRECISIONS)}; "
            "optionally with an input size, as in fp16@256."
        )
    return Variant(precision, int(match["size"]) if match["size"] else None)


def parse_variants(value: str) -> tuple[Variant, ...]:
    return tuple(parse_variant(word) for word in split_list(value))
