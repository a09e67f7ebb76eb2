"""The files of a run directory that are made from ETDumps: CSV for people, JSON for programs.

Every file is written under another name first and then moved, so that no reader sees half of it.
Operator names come from outside: a CSV cell that a spreadsheet would take for a formula is made
text.
"""

from __future__ import annotations

import csv
import io
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np

from pytest_sme2.profile.build import robust_stats, robust_stats_of_each
from pytest_sme2.profile.compare import compare
from pytest_sme2.profile.coverage import check_pair, settled_operators, sme2_states
from pytest_sme2.profile.operators import OPERATOR, OUTSIDE, ROLE_NAMES, durations, select
from pytest_sme2.profile.splits import transposes
from pytest_sme2.report.findings import comparison_findings, profile_findings
from pytest_sme2.report.text import few, json_text
from pytest_sme2.results import Change, Comparison, OperatorProfile, Profile, RobustStats
from pytest_sme2.session.analysis import Analysis, on_off_pairs
from pytest_sme2.system.files import write_text

SUMMARY_NAME = "analysis_summary.json"
# 1: the first.
SUMMARY_SCHEMA = 1

Table = Mapping[str, Sequence[object]]
"""What each column holds, by its name."""

_MOST_NAMES = 8
# What spreadsheets take for the start of a formula.
_FORMULA = re.compile(r"[=+\-@\t\r\n]")


def safe_stem(name: str) -> str:
    """``name`` as the start of a file name: separators and control characters become ``_``."""
    return re.sub(r"[/\\\x00-\x1f\x7f]", "_", name) or "_"


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
    stem = safe_stem(stem or analysis.path.name.removesuffix(".etdump"))
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
    selection = select(analysis.columns, rules=analysis.rules)
    columns = selection.columns
    rows = np.flatnonzero(
        (selection.role != OUTSIDE) & np.isin(columns.run, np.arange(columns.runs)[runs])
    )
    origin = np.zeros(max(columns.runs, 1), dtype=np.int64)
    origin[columns.run[selection.execute]] = columns.start[selection.execute].astype(np.int64)
    start = columns.start[rows].astype(np.int64) - origin[columns.run[rows]]
    known = settled_operators(analysis.profile)
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
        "sme2": ["unproven" if state is None else state for state in sme2_states(profile)],
        "instruction": [member.instruction for member in members],
        "call": [member.call for member in members],
        "runs": [each.count for each in stats],
        "share_percent": [round(member.share * 100, 4) for member in members],
        "time_us": [round(member.time_ns / 1e3, 3) for member in members],
        **{f"{name}_us": [round(getattr(s, name) / 1e3, 3) for s in stats] for name in times},
        "cv": [round(each.cv, 6) for each in stats],
        "outliers": [each.outliers for each in stats],
        "aten": [" ".join(_few(member.aten)) for member in members],
        "modules": [" ".join(_few(member.modules)) for member in members],
        "shapes": [str(member.shapes or "") for member in members],
    }


def _categories(profile: Profile) -> Table:
    rows: list[tuple[str, str, int, float]] = []
    for category, ns in profile.category_ns.items():
        rows.append((str(category), "", profile.category_counts[category], ns))
        rows += [
            (str(category), kind, profile.kind_counts[place, kind], kind_ns)
            for (place, kind), kind_ns in profile.kind_ns.items()
            if place is category
        ]
    rows.append(("overhead", "", 0, profile.overhead_ns))
    rows.append(("total", "", len(profile.operators), profile.end_to_end.median))
    categories, kinds, numbers, times = zip(*rows, strict=True)
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
    pairs = []
    for on, off in on_off_pairs(analyses):
        comparison = compare(off.profile, on.profile, names=(off.name, on.name))
        pairs.append(
            {
                "on": on.name,
                "off": off.name,
                "evidence": asdict(check_pair(on.profile, off.profile)),
                "comparison": comparison_summary(comparison, timed=timed),
            }
        )
    document = {
        "schema": SUMMARY_SCHEMA,
        "timed": timed,
        "experiments": {
            analysis.name: {
                **profile_summary(analysis.profile, timed=timed),
                "other_methods": [profile_summary(other, timed=timed) for other in analysis.others],
            }
            for analysis in analyses
        },
        "pairs": pairs,
    }
    return document if timed else _without_times(document)


_TIMES = ("_ns", "ratio", "amdahl")


def _without_times(value: Any) -> Any:
    if isinstance(value, list):
        return list(map(_without_times, value))
    if not isinstance(value, dict):
        return value
    return {
        key: _without_times(entry)
        for key, entry in value.items()
        if key == "operator_share" or not key.endswith((*_TIMES, "share"))
    }


def profile_summary(profile: Profile, *, timed: bool = True) -> dict[str, Any]:
    """A profile without its samples."""
    return {
        "method": profile.method,
        "runs": profile.runs,
        "typical_runs": profile.typical_runs,
        "end_to_end_ns": asdict(profile.end_to_end),
        "categories": {
            str(category): _part(profile, ns, profile.category_counts[category])
            for category, ns in profile.category_ns.items()
        },
        "kinds": [
            {
                "category": str(category),
                "kind": kind,
                **_part(profile, ns, profile.kind_counts[category, kind]),
            }
            for (category, kind), ns in profile.kind_ns.items()
        ],
        "executors": {
            str(executor): _part(profile, ns, profile.executor_counts[executor])
            for executor, ns in profile.executor_ns.items()
        },
        "overhead": {
            "time_ns": profile.overhead_ns,
            "share": profile.share(profile.overhead_ns),
            "parts_ns": dict(profile.overhead_parts_ns),
        },
        "coverage": _coverage_summary(profile),
        "transposes": _transpose_summary(profile),
        "operators": list(map(_operator_summary, profile.operators, sme2_states(profile))),
        "load_ns": dict(profile.load_ns),
        "unknown": list(profile.unknown),
        "findings": profile_findings(profile, timed=timed),
    }


def _part(profile: Profile, ns: float, number: int) -> dict[str, Any]:
    return {"operators": number, "time_ns": ns, "share": profile.share(ns)}


def _coverage_summary(profile: Profile) -> dict[str, Any]:
    coverage = profile.coverage
    return {
        "matrix_operators": coverage.matrix_operators,
        "sme2_operators": coverage.sme2_operators,
        "operator_share": coverage.operators,
        "time_share": coverage.time,
        "source": coverage.source,
        "missed": [
            {
                "index": member.index,
                "operator": member.label,
                "reason": reason,
                "shapes": None if member.shapes is None else asdict(member.shapes),
            }
            for member, reason in coverage.missed
        ],
        "unproven": [member.label for member in coverage.unproven],
        "depthwise_operators": coverage.depthwise_operators,
        "depthwise_share": profile.share(coverage.depthwise_ns),
    }


def _transpose_summary(profile: Profile) -> dict[str, Any]:
    chains = transposes(profile)
    return {
        "operators": sum(len(chain.operators) for chain in chains),
        "time_ns": sum(chain.time_ns for chain in chains),
        "share": sum(chain.share for chain in chains),
        "border_share": sum(chain.share for chain in chains if chain.border),
        "chains": [
            {
                "operators": [member.label for member in chain.operators],
                "before": chain.before.label if chain.before else None,
                "after": chain.after.label if chain.after else None,
                "time_ns": chain.time_ns,
                "share": chain.share,
                "border": chain.border,
            }
            for chain in chains
        ],
    }


def _operator_summary(member: OperatorProfile, sme2: bool | None) -> dict[str, Any]:
    operator = member.operator
    summary: dict[str, Any] = {
        "index": member.index,
        "operator": member.label,
        "category": str(operator.category),
        "kind": operator.kind,
        "executor": str(operator.executor),
        "matrix": operator.matrix,
        "sme2": sme2,
        "instruction": member.instruction,
        "time_ns": member.time_ns,
        "median_ns": member.median_ns,
        "share": member.share,
    }
    if member.shapes is not None:
        summary["shapes"] = asdict(member.shapes)
    if member.aten:
        summary |= {"aten": _few(member.aten), "modules": _few(member.modules)}
    return summary


def _few(names: Iterable[str]) -> list[str]:
    """Each name once, and not all: every operator of a delegate call has all names of the call."""
    return few(list(dict.fromkeys(names)), _MOST_NAMES)


def comparison_summary(comparison: Comparison, *, timed: bool = True) -> dict[str, Any]:
    return {
        "before": comparison.before_name,
        "after": comparison.after_name,
        "end_to_end": _change(comparison.end_to_end),
        "categories": [_change(change) for change in comparison.categories],
        "kinds": [_change(change) for change in comparison.kinds],
        "overhead": _change(comparison.overhead),
        "operators": [
            {
                "before": change.before.label if change.before else None,
                "after": change.after.label if change.after else None,
                "before_ns": change.before.time_ns if change.before else None,
                "after_ns": change.after.time_ns if change.after else None,
                "ratio": change.ratio,
            }
            for change in comparison.operators
        ],
        "largest_before": comparison.largest_before and str(comparison.largest_before),
        "largest_after": comparison.largest_after and str(comparison.largest_after),
        "amdahl": comparison.amdahl,
        "findings": comparison_findings(comparison, timed=timed),
    }


def _change(change: Change) -> Mapping[str, Any]:
    return {**vars(change), "ratio": change.ratio}
