"""What a profile means: one thing that costs something, and what can be done about it."""

from __future__ import annotations

import enum
from dataclasses import dataclass


class Topic(str, enum.Enum):
    """What a finding is about."""

    COVERAGE = "coverage"
    """How many matrix operators run on SME2 kernels."""
    MISSED = "missed"
    """Matrix operators that do not."""
    UNPROVEN = "unproven"
    """Matrix operators on kernels whose name does not show it."""
    SINGLE_ROW = "single row"
    """Matrix operators on SME2 whose gain is in doubt: they multiply one row."""
    DEPTHWISE = "depthwise"
    BOTTLENECK = "bottleneck"
    LAYOUT = "layout"
    PORTABLE = "portable"
    DATA_TYPE = "data type"
    """Operators that do not run in the variant's data type."""
    OVERHEAD = "overhead"
    UNKNOWN = "unknown"
    NOTE = "note"
    """What a reader has to know about the data; it costs nothing."""

    def __str__(self) -> str:
        return self.value


@dataclass(frozen=True)
class Cost:
    """What a finding concerns. Findings are ordered by ``share``."""

    operators: int = 0
    share: float = 0.0
    of: str = "operators"
    """What ``share`` is a share of: ``time`` end to end; where time means nothing, executed
    ``instructions``; where those were not counted, the ``operators`` of the program."""


@dataclass(frozen=True)
class Finding:
    """One thing about one program."""

    topic: Topic
    what: str
    """In the plural, where ``one`` is the singular."""
    cost: Cost = Cost()
    remedy: str = ""
    detail: str = ""
    """More about it, where there is room: shapes, the costliest operator."""
    place: str = ""
    """Where it is in the model: modules and the source line."""
    rewrite: str = ""
    """The name of the rewrite that removes it, where one is known."""
    evidence: str = ""
    """What the kernel matrix says of it."""
    one: str = ""
    """``what`` in the singular, where it is a noun that is counted."""
    is_cause: bool = False
    """Whether ``what`` names the cause of operators, and ``detail`` counts them."""
