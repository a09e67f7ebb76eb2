"""Executed instructions against the baseline's: exact, so the least growth counts."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import replace

from pytest_sme2.profile.cost import stored
from pytest_sme2.results import (
    Arm,
    Baseline,
    CaseResult,
    Check,
    InferenceCost,
    Limits,
    Outcome,
    Profile,
    StoredCost,
)
from pytest_sme2.system.wording import as_given
from pytest_sme2.verdict.difference import difference
from pytest_sme2.verdict.judging import CREATE_HINT, UPDATE_HINT

# A growth of less than this part of the total is not worth a verdict of its own.
_NOTABLE = 1e-4
# malloc takes another way through the heap where earlier allocations differ, as they do in another
# version of the runner: up to 200 instructions in one operator were seen.
_HEAP = 500
_BASELINE = "the baseline"


def check_cost(
    measured: CaseResult, baseline: Baseline | None, limits: Limits, arm: Arm = Arm.ON
) -> Check:
    """The total, every category and every operator against the baseline."""
    metric = f"cost ({arm})"
    cost = measured.costs.get(arm)
    if cost is None:
        reason = measured.uncounted or "the arm did not run"
        return Check(metric, Outcome.INVALID, f"It was not counted: {reason}.")
    now = stored(cost, measured.profiles.get(arm))
    new = now.total.instructions
    before = None if baseline is None else baseline.costs.get(arm)
    if before is not None and before.cpu == now.cpu:
        profile = measured.profiles.get(arm)
        return _judged(metric, before, now, limits.max_cost_growth, _BASELINE, profile)
    text = f"{new:,} instructions; there is no baseline. {CREATE_HINT}"
    if before is not None:
        text = (
            f"{new:,} instructions on the CPU {now.cpu}; the baseline was counted on {before.cpu}, "
            "so the two are not compared."
        )
    return Check(metric, Outcome.NO_BASELINE, text, new=new, unit="count")


def compare_costs(
    metric: str,
    old: InferenceCost | str,
    new: InferenceCost | str,
    limits: Limits,
    name: str,
    profiles: Sequence[Profile | None] = (None, None),
) -> Check:
    """The same for two versions that were counted in one run; a text says why one was not."""
    if isinstance(old, str):
        return Check(metric, Outcome.INVALID, f"{name} was not counted: {old}.")
    if isinstance(new, str):
        return Check(metric, Outcome.INVALID, f"It was not counted: {new}.")
    before, now = map(stored, (old, new), profiles)
    return _judged(metric, before, now, limits.max_cost_growth, name, profiles[1])


def _judged(
    metric: str,
    before: StoredCost,
    now: StoredCost,
    limit: float,
    name: str,
    profile: Profile | None,
) -> Check:
    note = ""
    if before.toolchain not in ("", now.toolchain):
        before, now = _without_system(before), _without_system(now)
        left_out = "so their instructions are left out"
        note = f" The C and C++ libraries are not those of {name}, {left_out}."
    old, new = before.total.instructions, now.total.instructions
    settled = _with_heap_of(before, now)
    judged = settled.total.instructions
    change = f"the same as in {name}" if old == new else f"{name} has {old:,}"
    if old and old != new:
        change += f" ({new / old - 1:+.2%})"
    message = (
        f"{new:,} instructions per inference; {change}; {as_given(limit)}% more is allowed.{note}"
    )
    verdict, beyond = Outcome.PASS, judged > old * (1 + limit)
    # Report work that moved to another operator. Less work in total is not a regression.
    if beyond or (judged >= old and _grew(before, settled, limit)):
        verdict = Outcome.REGRESSED
        if name == _BASELINE:
            message += f" {UPDATE_HINT}"
    elif judged * (1 + limit) < old:
        verdict = Outcome.IMPROVED
    check = Check(metric, verdict, message, old, new, "count", None, old * (1 + limit))
    if verdict is Outcome.PASS:
        return check
    found = difference(before.operators, now.operators, profile, now.runtime - before.runtime)
    cause = found.cause()
    return replace(check, details=found.lines(), cause=cause.what, where=cause.where)


def steady_costs(old: Mapping[Arm, StoredCost], measured: CaseResult) -> dict[Arm, StoredCost]:
    """The new costs as they are stored; the old one where the state of the heap is all the
    difference, so that an update of the same thing changes no line.
    """
    costs = dict(old)
    for arm, cost in measured.costs.items():
        now = stored(cost, measured.profiles.get(arm))
        before = costs.get(arm, now)
        settled = _with_heap_of(before, now)
        costs[arm] = before if replace(settled, system=before.system) == before else now
    return costs


def _with_heap_of(before: StoredCost, now: StoredCost) -> StoredCost:
    """``now``, but where the C library's part of an operator differs by so little that the state of
    the heap explains it, with the part that ``before`` has.
    """
    if not _same_operators(before, now):
        return now
    shifts = [
        new - old if abs(new - old) <= _HEAP else 0
        for old, new in zip(_system_parts(before), _system_parts(now), strict=True)
    ]
    return _less(now, shifts)


def _without_system(cost: StoredCost) -> StoredCost:
    """What came with ExecuTorch alone: it is the same code wherever a runner was built."""
    return _less(cost, _system_parts(cost))


def _system_parts(cost: StoredCost) -> list[int]:
    """The C library's part of each operator, and outside of them."""
    parts = [entry.system for entry in cost.operators]
    return [*parts, cost.system - sum(parts)]


def _less(cost: StoredCost, parts: Sequence[int]) -> StoredCost:
    """Without so many instructions of the C library in each operator, and outside of them."""
    operators = tuple(
        replace(entry, instructions=entry.instructions - part, system=entry.system - part)
        for entry, part in zip(cost.operators, parts[:-1], strict=True)
    )
    total = replace(cost.total, instructions=cost.total.instructions - sum(parts))
    system, runtime = cost.system - sum(parts), cost.runtime - parts[-1]
    return replace(cost, total=total, operators=operators, system=system, runtime=runtime)


def _same_operators(before: StoredCost, now: StoredCost) -> bool:
    return [entry.name for entry in before.operators] == [entry.name for entry in now.operators]


def _grew(before: StoredCost, now: StoredCost, limit: float) -> bool:
    """Whether a category did, or an operator; those of one name together if the programs differ."""
    # The category that an operator has today: another rule, or a newer version of this package,
    # may have moved it, which makes nothing slower.
    today = {entry.name: entry.category for entry in now.operators}
    same = _same_operators(before, now)
    sums: list[Counter[object]] = []
    for cost in (before, now):
        found: Counter[object] = Counter()
        for place, entry in enumerate(cost.operators):
            found[today.get(entry.name, entry.category)] += entry.instructions
            found[place if same else f"operator {entry.name}"] += entry.instructions
        sums.append(found)
    least = max(1.0, _NOTABLE * before.total.instructions)
    growths = ((new - sums[0][key], sums[0][key]) for key, new in sums[1].items())
    return any(by >= least and by > limit * old for by, old in growths)
