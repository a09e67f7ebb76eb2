"""Where the model has what made a check fail: the source line of the operator that grew most."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from dataclasses import replace

from pytest_sme2.profile.cost import stored
from pytest_sme2.profile.origins import source_text
from pytest_sme2.results import Arm, Baseline, CaseResult, Check, OperatorProfile
from pytest_sme2.verdict.cost import grown_operators
from pytest_sme2.verdict.growth import Growth
from pytest_sme2.verdict.judging import FAILING, reference_of
from pytest_sme2.verdict.numerics import wrong_layer_norms
from pytest_sme2.verdict.structure import operator_differences

# These are about the measurement, not about an operator.
_NOT_OF_AN_OPERATOR = ("evidence", "baseline")


def located(
    checks: Sequence[Check],
    measured: CaseResult,
    baseline: Baseline | None,
    growth: Growth | None,
) -> list[Check]:
    """The checks, the failed ones with the place in the model that they are about."""
    return [
        replace(check, where=check.where or _where(check, measured, baseline, growth))
        if check.verdict in FAILING and check.metric not in _NOT_OF_AN_OPERATOR
        else check
        for check in checks
    ]


def _where(
    check: Check, measured: CaseResult, baseline: Baseline | None, growth: Growth | None
) -> str:
    arm = Arm.OFF if "(off)" in check.metric else measured.arm
    profile = measured.profiles.get(arm)
    if profile is None:
        return ""
    if check.metric.startswith("outputs"):
        known = _costliest(measured, arm, wrong_layer_norms(measured))
        if known:
            return known
    names: list[tuple[str, int | None]] = []
    if growth is not None:
        ranked = sorted(growth.operators, key=lambda change: -change.delta_ns)
        names += [(change.name, None) for change in ranked]
    if baseline is not None and reference_of(check.metric) is None:
        names += _longer(measured, baseline, arm)
    missed = [member for member, _ in profile.coverage.missed]
    if check.metric == "SME2 coverage":
        known_names = {name for name, _ in names}
        grown = [member for member in missed if member.operator.name in known_names]
        return _costliest(measured, arm, grown or missed)
    for name, place in names:
        same = [member for member in profile.operators if member.operator.name == name]
        if place is not None:
            index = measured.costs[arm].operators[place].index
            same = [member for member in same if member.index == index]
        text = _costliest(measured, arm, same)
        if text:
            return text
    return ""


def _longer(measured: CaseResult, baseline: Baseline, arm: Arm) -> Iterator[tuple[str, int | None]]:
    """The operators that cost more, then the names of those that there are more of."""
    before, now = baseline.costs.get(arm), measured.costs.get(arm)
    if before is not None and now is not None:
        yield from grown_operators(before, stored(now))
    old, new = baseline.structures.get(arm), measured.structures.get(arm)
    if old is not None and new is not None:
        yield from ((entry.name, None) for entry, by in operator_differences(old, new) if by > 0)


def _costliest(measured: CaseResult, arm: Arm, members: Collection[OperatorProfile]) -> str:
    """The place of the one that costs most and has one."""
    cost = measured.costs.get(arm)
    executed = {} if cost is None else {e.index: e.counts.instructions for e in cost.operators}
    for member in sorted(members, key=lambda each: (-executed.get(each.index, 0), -each.share)):
        text = "" if member.origin is None else source_text(member.origin)
        if text:
            return text
    return ""
