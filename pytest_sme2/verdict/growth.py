"""What explains a slowdown: first what the program has more of, then what takes longer.

Structure is exact. A time is named only if it is significant: an innocent operator in a failure
message costs more than a missing one.
"""

from __future__ import annotations

import functools
import statistics
from collections.abc import Collection, Sequence
from dataclasses import dataclass, replace

from pytest_sme2.profile.cost import stored, stored_operator
from pytest_sme2.profile.matching import source_text
from pytest_sme2.profile.operators import structure_of
from pytest_sme2.results import (
    Arm,
    Baseline,
    CaseResult,
    Change,
    ChangedLines,
    Check,
    OperatorProfile,
    Profile,
)
from pytest_sme2.verdict.cost import Cause, difference
from pytest_sme2.verdict.judging import FAILING, reference_of
from pytest_sme2.verdict.structure import difference_lines

TRACED_PAIRS = 8
"""Traced processes of each side. That each of one side takes longer than each of the other happens
by chance in 1 of 12,870; that each takes longer than its partner, in 1 of 256. A program has dozens
of operators, so the latter would often name an innocent one."""
LEAST_PART = 0.10
"""Of the largest growth; what grew less is not named. More work leaves less of the caches to all
else and makes for more overhead: true, but not the cause."""
OVERHEAD = "overhead"


@dataclass(frozen=True)
class Growth:
    """What a program has more of than another one, and what took longer."""

    since: str
    """The name of the other side."""
    end_to_end: Change
    structure: tuple[str, ...] = ()
    """The operators that were added or removed, one line each."""
    operators: tuple[Change, ...] = ()
    """Those that took significantly longer, and what is outside of them."""


def growth_of(pairs: Sequence[tuple[Profile, Profile]], since: str) -> Growth:
    """What grew between two sides that were traced in interleaved pairs."""
    sides = [[pair[side] for pair in pairs] for side in (0, 1)]
    medians = (statistics.median(each.end_to_end.median for each in side) for side in sides)
    return Growth(
        since,
        Change("end to end", *medians),
        difference_lines(*(structure_of(side[0]) for side in sides)),
        _grown(pairs),
    )


def _times(profile: Profile) -> dict[str, float]:
    """The time of each operator name, its occurrences added up, and of what is outside of them."""
    times = {OVERHEAD: profile.overhead_ns}
    for entry in profile.operators:
        times[entry.operator.name] = times.get(entry.operator.name, 0.0) + entry.time_ns
    return times


def _grown(pairs: Sequence[tuple[Profile, Profile]]) -> tuple[Change, ...]:
    """What took longer in each process of the new side than in each of the old, where there are
    enough processes to tell; without what is small beside the largest of it.
    """
    if len(pairs) < TRACED_PAIRS:
        return ()
    befores, afters = ([_times(pair[side]) for pair in pairs] for side in (0, 1))
    found = []
    for name in dict.fromkeys(name for times in (*befores, *afters) for name in times):
        old, new = ([times.get(name, 0.0) for times in side] for side in (befores, afters))
        if min(new) > max(old):
            found.append(Change(name, statistics.median(old), statistics.median(new)))
    least = LEAST_PART * max((change.delta_ns for change in found), default=0.0)
    return tuple(change for change in found if change.delta_ns >= least)


# These are about the measurement, not about an operator.
_NOT_OF_AN_OPERATOR = ("evidence", "baseline")


def located(
    checks: Sequence[Check],
    measured: CaseResult,
    baseline: Baseline | None,
    growth: Growth | None,
    changed: Sequence[ChangedLines] = (),
) -> list[Check]:
    """The checks, the failed ones with what they are about and its place in the model.

    ``changed`` are the lines that did since the baseline.
    """
    # Both arms run one program, and many checks are about one arm.
    cause_on = functools.cache(lambda arm: _cause(measured, baseline, arm))

    def one(check: Check) -> Check:
        if check.verdict not in FAILING or check.metric in _NOT_OF_AN_OPERATOR:
            return check
        arm = Arm.OFF if "(off)" in check.metric else measured.arm
        profile = measured.profiles.get(arm)
        if check.cause and check.metric == f"cost ({arm})":
            return replace(check, where=cause_on(arm).among(changed))
        if profile is None or check.where:
            return check
        slower = _slower(measured, arm, growth)
        if check.metric == "SME2 coverage":
            missed = [member for member, _ in profile.coverage.missed]
            names = {change.name for change in (growth.operators if growth else ())}
            grown = [member for member in missed if member.operator.name in names]
            return replace(check, where=_costliest(measured, arm, grown or missed))
        if slower or reference_of(check.metric) is not None:
            return replace(check, where=slower)
        cause = cause_on(arm)
        return replace(check, where=cause.among(changed), cause=cause.what)

    return [one(check) for check in checks]


def _slower(measured: CaseResult, arm: Arm, growth: Growth | None) -> str:
    """The place of what took most longer, and has one."""
    changes = () if growth is None else growth.operators
    for change in sorted(changes, key=lambda change: -change.delta_ns):
        members = measured.profiles[arm].operators
        same = [member for member in members if member.operator.name == change.name]
        text = _costliest(measured, arm, same)
        if text:
            return text
    return ""


def _cause(measured: CaseResult, baseline: Baseline | None, arm: Arm) -> Cause:
    """What the program on one arm has more of than the baseline's."""
    old = () if baseline is None else baseline.program(arm)
    if not old:
        return Cause()
    cost, profile = measured.costs.get(arm), measured.profiles[arm]
    if cost is None or baseline is None or arm not in baseline.costs:
        old = tuple(replace(entry, instructions=0) for entry in old)
        now = [stored_operator(member) for member in profile.operators]
        return difference(old, now, profile).cause()
    rest = cost.runtime.instructions - baseline.costs[arm].runtime
    return difference(old, stored(cost, profile).operators, profile, rest).cause()


def _costliest(measured: CaseResult, arm: Arm, members: Collection[OperatorProfile]) -> str:
    """The place of the one that costs most and has one."""
    cost = measured.costs.get(arm)
    executed = {} if cost is None else {e.index: e.counts.instructions for e in cost.operators}
    for member in sorted(members, key=lambda each: (-executed.get(each.index, 0), -each.share)):
        text = "" if member.origin is None else source_text(member.origin)
        if text:
            return text
    return ""
