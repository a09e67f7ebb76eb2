"""Where the time since the baseline went: the categories and operators that grew."""

from __future__ import annotations

from dataclasses import dataclass

from pytest_sme2.results import Arm, Baseline, CaseResult, Change, Comparison
from pytest_sme2.verdict.baselines import operator_times


@dataclass(frozen=True)
class Growth:
    """What took longer, and since when."""

    since: str
    """``the baseline``, or the name of the other side."""
    end_to_end: Change
    categories: tuple[Change, ...]
    operators: tuple[Change, ...]


def growth_of(comparison: Comparison) -> Growth:
    """Where the time between two measured sides went."""
    operators: dict[str, tuple[float, float]] = {}
    for change in comparison.operators:
        for position, side in enumerate((change.before, change.after)):
            if side is not None:
                sums = list(operators.get(side.operator.name, (0.0, 0.0)))
                sums[position] += side.time_ns
                operators[side.operator.name] = (sums[0], sums[1])
    return Growth(
        comparison.before_name,
        comparison.end_to_end,
        (*comparison.categories, comparison.overhead),
        tuple(Change(name, *sums) for name, sums in operators.items()),
    )


def growth_since(baseline: Baseline, measured: CaseResult, arm: Arm | None = None) -> Growth | None:
    """Where the time since the baseline went; None where one of the two was not timed."""
    arm = measured.arm if arm is None else arm
    profile = measured.profiles.get(arm)
    stored = baseline.at(measured.threads)
    categories, operators = stored.category_ns.get(arm), stored.operator_ns.get(arm)
    if measured.emulated or profile is None or not categories or not operators:
        return None
    now = operator_times(profile)
    return Growth(
        "the baseline",
        Change("operators", sum(categories.values()), sum(profile.category_ns.values())),
        tuple(
            Change(str(category), categories.get(category, 0.0), time)
            for category, time in profile.category_ns.items()
        ),
        tuple(
            Change(name, operators.get(name, 0.0), now.get(name, 0.0))
            for name in sorted({*operators, *now})
        ),
    )
