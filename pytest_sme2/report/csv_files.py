"""The files of a run directory that are made from ETDumps: CSV for people, JSON for programs.

Every file is written under another name first and then moved, so that no reader sees half of it.
Operator names come from outside: a CSV cell that a spreadsheet would take for a formula is made
text.
"""

from __future__ import annotations

import csv
import io
import re
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from pytest_sme2.profile.build import robust_stats, robust_stats_of_each
from pytest_sme2.profile.compare import compare
from pytest_sme2.profile.coverage import check_pair
from pytest_sme2.profile.operators import OPERATOR, OUTSIDE, ROLE_NAMES, durations, select
from pytest_sme2.report.findings import comparison_findings, profile_findings
from pytest_sme2.report.text import json_text
from pytest_sme2.results import Comparison, OperatorProfile, Profile, RobustStats
from pytest_sme2.session.analysis import Analysis, on_off_pairs
from pytest_sme2.system.files import encode, write_text
from pytest_sme2.system.wording import some_of

SUMMARY_NAME = "analysis_summary.json"
# 1: the first. 2: operators are in the tables alone.
SUMMARY_SCHEMA = 2

Table = Mapping[str, Sequence[object]]
"""What each column holds, by its name."""

_MOST_NAMES = 8
# What spreadsheets take for the start of a formula.
_FORMULA = re.compile(r"[=+\-@\t\r\n]")


def csv_text(table: Table) -> str:
    """A CSV table; no cell of it is a formula."""
    stream = io.StringIO()
    # All text in quotes: a lone carriage return would otherwise start a new row for some readers.
    writer = csv.writer(stream, lineterminator="\n", quoting=csv.QUOTE_NONNUMERIC)
    writer.writerow(table)
    writer.writerows(map(_cell, row) for row in zip(*table.values(), strict=True))
    return stream.getvalue()


def _cell(value: object) -> object:
    if isinstance(value, str) and _FORMULA.match(value):
        return f"'{value}"
    return value


def write_experiment(
    analysis: Analysis, folder: Path, *, stem: str | None = None
) -> tuple[Path, ...]:
    """Write the files of one ETDump into ``folder``; returns their paths."""
    stem = stem or analysis.path.name.removesuffix(".etdump")
    stats = robust_stats_of_each([member.samples_ns for member in analysis.profile.operators])
    texts = {
        "all_runs_timeline.csv": csv_text(_timeline(analysis, slice(None))),
        "run0_timeline.csv": csv_text(_timeline(analysis, 0)),
        "operator_stats.csv": csv_text(_operators(analysis.profile, stats)),
        "category_summary.csv": csv_text(_categories(analysis.profile)),
        "robust_stats.json": json_text(robust_summary(analysis.profile, stats)),
    }
    for ending, text in texts.items():
        write_text(folder / f"{stem}_{ending}", text)
    return tuple(folder / f"{stem}_{ending}" for ending in texts)


def _timeline(analysis: Analysis, runs: int | slice) -> Table:
    """Every event of some runs, with what it is; starts are counted from the run's own."""
    selection = select(analysis.columns)
    columns = selection.columns
    rows = np.flatnonzero(
        (selection.role != OUTSIDE) & np.isin(columns.run, np.arange(columns.runs)[runs])
    )
    origin = np.zeros(max(columns.runs, 1), dtype=np.int64)
    origin[columns.run[selection.execute]] = columns.start[selection.execute].astype(np.int64)
    start = columns.start[rows].astype(np.int64) - origin[columns.run[rows]]
    members = analysis.profile.operators
    known = {(member.label, member.instruction): member.operator for member in members}
    events = [columns.names[name] for name in columns.name[rows]]
    instructions = columns.instruction[rows].tolist()
    found = [
        known.get((event, instruction), selection.operators[name]) if role == OPERATOR else None
        for event, instruction, name, role in zip(
            events, instructions, columns.name[rows], selection.role[rows], strict=True
        )
    ]
    return {
        "run": columns.run[rows].tolist(),
        "event": events,
        "role": [ROLE_NAMES[role] for role in selection.role[rows]],
        "operator": [one.name if one else "" for one in found],
        "category": [str(one.category) if one else "" for one in found],
        "kind": [one.kind if one else "" for one in found],
        "executor": [str(one.executor) if one else "" for one in found],
        "sme2": [one.proof if one else "" for one in found],
        "instruction": instructions,
        "depth": columns.depth[rows].tolist(),
        "start_us": [round(at / 1e3, 3) for at in start.tolist()],
        "duration_us": [round(took / 1e3, 3) for took in durations(columns, rows).tolist()],
    }


def _operators(profile: Profile, stats: Sequence[RobustStats]) -> Table:
    members = profile.operators
    operators = [member.operator for member in members]
    times = ("median", "mean", "trimmed_mean", "mad", "minimum", "maximum", "p5", "p95", "p99")
    return {
        "index": [member.index for member in members],
        "operator": [member.label for member in members],
        "name": [one.name for one in operators],
        "category": [str(one.category) for one in operators],
        "kind": [one.kind for one in operators],
        "executor": [str(one.executor) for one in operators],
        "sme2": [one.proof for one in operators],
        "instruction": [member.instruction for member in members],
        "call": [member.call for member in members],
        "runs": [each.count for each in stats],
        "share_percent": [round(member.share * 100, 4) for member in members],
        "time_us": [round(member.time_ns / 1e3, 3) for member in members],
        **{f"{name}_us": [round(getattr(s, name) / 1e3, 3) for s in stats] for name in times},
        "cv": [round(each.cv, 6) for each in stats],
        "outliers": [each.outliers for each in stats],
        # Every operator of a delegate call has all names of the call.
        "aten": [some_of(member.aten, _MOST_NAMES) for member in members],
        "modules": [some_of(member.modules, _MOST_NAMES) for member in members],
        "shapes": [str(member.shapes or "") for member in members],
    }


def breakdown(profile: Profile) -> Iterator[tuple[str, str, int, float]]:
    """Category, kind, number of operators, time: each category before its kinds, then the sum."""
    for category, ns in profile.category_ns.items():
        yield str(category), "", profile.category_counts[category], ns
        for (place, kind), kind_ns in profile.kind_ns.items():
            if place is category:
                yield str(category), kind, profile.kind_counts[place, kind], kind_ns
    yield "overhead", "", 0, profile.overhead_ns
    yield "total", "", len(profile.operators), profile.end_to_end.median


def _categories(profile: Profile) -> Table:
    categories, kinds, numbers, times = zip(*breakdown(profile), strict=True)
    return {
        "category": categories,
        "kind": kinds,
        "operators": numbers,
        "time_ms": [round(ns / 1e6, 6) for ns in times],
        "share_percent": [round(profile.share(ns) * 100, 4) for ns in times],
    }


def robust_summary(profile: Profile, stats: Sequence[RobustStats]) -> dict[str, Any]:
    """Statistics over the runs, in nanoseconds; ``stats`` are those of the operators' samples."""
    by_category: dict[str, Any] = {}
    for category in profile.category_ns:
        members = [
            member.samples_ns
            for member in profile.operators
            if member.operator.category is category
        ]
        if members:
            by_category[str(category)] = vars(robust_stats(np.sum(members, axis=0)))
    return {
        "unit": "ns",
        "method": profile.method,
        "runs": profile.runs,
        "end_to_end": vars(profile.end_to_end),
        "categories": by_category,
        "operators": [
            {"index": member.index, "operator": member.label, **vars(found)}
            for member, found in zip(profile.operators, stats, strict=True)
        ],
        "load": dict(profile.load_ns),
    }


def write_summary(analyses: Sequence[Analysis], folder: Path, *, timed: bool | None = None) -> Path:
    """Write ``analysis_summary.json`` for a run directory."""
    path = folder / SUMMARY_NAME
    write_text(path, json_text(run_summary(analyses, timed=timed)))
    return path


def run_summary(analyses: Sequence[Analysis], *, timed: bool | None = None) -> dict[str, Any]:
    """Every experiment, and every pair of them that differs in SME2 alone.

    Without ``timed`` it holds no time and no ratio of times, and no finding is about time. Where it
    is None, the analyses decide.
    """
    if timed is None:
        timed = all(analysis.timed for analysis in analyses)
    return {
        "schema": SUMMARY_SCHEMA,
        "timed": timed,
        "experiments": {
            analysis.name: {
                **profile_summary(analysis.profile, timed=timed),
                "other_methods": [profile_summary(other, timed=timed) for other in analysis.others],
            }
            for analysis in analyses
        },
        "pairs": [
            {
                "on": on.name,
                "off": off.name,
                "evidence": encode(check_pair(on.profile, off.profile)),
                "comparison": comparison_summary(
                    compare(off.profile, on.profile, names=(off.name, on.name)), timed=timed
                ),
            }
            for on, off in on_off_pairs(analyses)
        ],
    }


_COUNTS = ("method", "runs", "typical_runs", "category_counts", "executor_counts", "unknown")
_TIMES = (
    "end_to_end", "category_ns", "executor_ns", "overhead_ns", "overhead_parts_ns", "load_ns"
)  # fmt: skip


def profile_summary(profile: Profile, *, timed: bool = True) -> dict[str, Any]:
    """A profile without its operators, which are in the tables."""
    coverage = profile.coverage
    return {
        **{name: encode(getattr(profile, name)) for name in (*_COUNTS, *_TIMES * timed)},
        "coverage": {
            "matrix_operators": coverage.matrix_operators,
            "sme2_operators": coverage.sme2_operators,
            "depthwise_operators": coverage.depthwise_operators,
            "source": coverage.source,
            "missed": {member.label: reason for member, reason in coverage.missed},
            "unproven": [member.label for member in coverage.unproven],
        },
        "findings": profile_findings(profile, timed=timed),
    }


_COMPARED = ("end_to_end", "categories", "kinds", "overhead", "largest_before", "largest_after")


def comparison_summary(comparison: Comparison, *, timed: bool = True) -> dict[str, Any]:
    """Operators side by side, with None for what is on one side alone."""

    def side(member: OperatorProfile | None) -> object:
        return member and [member.label, *[member.time_ns] * timed]

    return {
        "before": comparison.before_name,
        "after": comparison.after_name,
        **{name: encode(getattr(comparison, name)) for name in _COMPARED * timed},
        "operators": [[side(change.before), side(change.after)] for change in comparison.operators],
        "findings": comparison_findings(comparison, timed=timed),
    }
