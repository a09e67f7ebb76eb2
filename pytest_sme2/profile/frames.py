"""Profiles as pandas DataFrames, for notebooks. The package itself never needs them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

from pytest_sme2.profile.build import robust_stats_of_each
from pytest_sme2.profile.coverage import sme2_states
from pytest_sme2.results import OperatorProfile, Profile, RobustStats

if TYPE_CHECKING:
    import pandas as pd


def profile_frames(profile: Profile) -> dict[str, pd.DataFrame]:
    """``operators``, ``categories``, ``kinds``, ``executors``, ``runs`` and ``end_to_end``.

    Times are in nanoseconds, shares from 0 to 1. ``runs`` has one row per run and one column per
    operator (by index), after ``end_to_end_ns`` and ``overhead_ns``.
    """
    import pandas as pd

    statistics = robust_stats_of_each([member.samples_ns for member in profile.operators])
    rows = map(_operator_row, profile.operators, statistics, sme2_states(profile))
    return {
        "operators": pd.DataFrame([*rows]),
        "categories": pd.DataFrame(
            [
                *_parts(profile, profile.category_ns, profile.category_counts, "category"),
                *_parts(profile, {"overhead": profile.overhead_ns}, {"overhead": 0}, "category"),
            ]
        ),
        "kinds": pd.DataFrame(
            _parts(profile, profile.kind_ns, profile.kind_counts, "category", "kind"),
            columns=["category", "kind", "operators", "time_ns", "share"],
        ),
        "executors": pd.DataFrame(
            _parts(profile, profile.executor_ns, profile.executor_counts, "executor")
        ),
        "runs": _runs(profile),
        "end_to_end": pd.DataFrame([asdict(profile.end_to_end)]),
    }


def _parts(
    profile: Profile, times: Mapping[Any, float], counts: Mapping[Any, int], *names: str
) -> list[dict[str, object]]:
    return [
        {
            **dict(zip(names, map(str, key if isinstance(key, tuple) else (key,)), strict=True)),
            "operators": counts[key],
            "time_ns": ns,
            "share": profile.share(ns),
        }
        for key, ns in times.items()
    ]


def _operator_row(
    member: OperatorProfile, statistics: RobustStats, sme2: bool | None
) -> dict[str, object]:
    operator = member.operator
    return {
        "index": member.index,
        "label": member.label,
        "name": operator.name,
        "category": str(operator.category),
        "kind": operator.kind,
        "executor": str(operator.executor),
        "sme2": sme2,
        "instruction": member.instruction,
        "call": member.call,
        "time_ns": member.time_ns,
        "share": member.share,
        "median_ns": member.median_ns,
        "mad_ns": statistics.mad,
        "p95_ns": statistics.p95,
        "aten": ", ".join(member.aten),
        "modules": ", ".join(member.modules),
        "shapes": "" if member.shapes is None else str(member.shapes),
    }


def _runs(profile: Profile) -> pd.DataFrame:
    import pandas as pd

    index = pd.RangeIndex(profile.runs, name="run")
    frame = pd.DataFrame({each.index: each.samples_ns for each in profile.operators}, index=index)
    end_to_end = pd.Series(profile.end_to_end_ns, index=index)
    frame.insert(0, "overhead_ns", end_to_end - frame.sum(axis=1))
    frame.insert(0, "end_to_end_ns", end_to_end)
    return frame
