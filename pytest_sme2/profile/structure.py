"""What a program is made of: its operators, counted by name."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

from pytest_sme2.results import (
    Executor,
    Operator,
    OperatorCount,
    Profile,
    Structure,
)


def structure_of(profile: Profile) -> Structure:
    """What the program is made of."""
    counts: dict[tuple[str, Executor], OperatorCount] = {}
    for entry in profile.operators:
        operator = entry.operator
        one = OperatorCount(
            _name(operator), operator.category, operator.kind, operator.executor,
            operator.matrix, operator.sme2, 1, operator.unproven, operator.sme1,
        )  # fmt: skip
        before = counts.get((one.name, one.executor))
        counts[(one.name, one.executor)] = (
            one if before is None else replace(before, count=before.count + 1)
        )
    return sort_structure(counts.values())


def _name(operator: Operator) -> str:
    """XNNPACK has one name for convolutions that run as IGEMM, depthwise or not: two are counted
    apart, since one of them is matrix work.
    """
    by_shape = operator.kind == "depthwise" and operator.algorithm == "IGEMM"
    return f"{operator.name}, depthwise" if by_shape else operator.name


def sort_structure(counts: Iterable[OperatorCount]) -> Structure:
    """Sorted by name, as two structures are compared and written."""

    def order(entry: OperatorCount) -> tuple[str, str]:
        return entry.name, entry.executor.value

    return Structure(tuple(sorted(counts, key=order)))
