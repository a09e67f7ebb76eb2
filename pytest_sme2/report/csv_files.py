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

TIMELINE_COLUMNS = (
    "run", "event", "role", "operator", "category", "kind", "executor", "sme2", "instruction",
    "depth", "start_us", "duration_us",
)  # fmt: skip
OPERATOR_COLUMNS = (
    "index", "operator", "name", "category", "kind", "executor", "sme2", "instruction", "call",
    "runs", "share_percent", "time_us", "median_us", "mean_us", "trimmed_mean_us", "mad_us",
    "minimum_us", "maximum_us", "p5_us", "p95_us", "p99_us", "cv", "outliers", "aten", "modules",
    "shapes",
)  # fmt: skip
CATEGORY_COLUMNS = ("category", "kind", "operators", "time_ms", "share_percent")

_MOST_NAMES = 8
# What spreadsheets take for the start of a formula.
_FORMULA = re.compile(r"[=+\-@\t\r\n]")


def safe_stem(name: str) -> str:
    """``name`` as the start of a file name: separators and control characters become ``_``."""
    return re.sub(r"[/\\\x00-\x1f\x7f]", "_", name) or "_"


def csv_text(columns: Sequence[str], rows: Iterable[Sequence[object]]) -> str:
    """A CSV table; no cell of it is a formula."""
    stream = io.StringIO()
    # All text in quotes: a lone carriage return would otherwise start a new row for some readers.
    writer = csv.writer(stream, lineterminator="\n", quoting=csv.QUOTE_NONNUMERIC)
    writer.writerow(columns)
    writer.writerows([_cell(value) for value in row] for row in rows)
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
    profile = analysis.profile
    rows = timeline_rows(analysis)
    stats = robust_stats_of_each([member.samples_ns for member in profile.operators])
    table = map(_operator_row, profile.operators, stats, sme2_states(profile))
    texts = {
        "all_runs_timeline.csv": csv_text(TIMELINE_COLUMNS, rows),
        "run0_timeline.csv": csv_text(TIMELINE_COLUMNS, (row for row in rows if row[0] == 0)),
        "operator_stats.csv": csv_text(OPERATOR_COLUMNS, table),
        "category_summary.csv": csv_text(CATEGORY_COLUMNS, _category_rows(profile)),
        "robust_stats.json": json_text(robust_summary(profile, stats)),
    }
    for ending, text in texts.items():
        write_text(folder / f"{stem}_{ending}", text)
    return tuple(folder / f"{stem}_{ending}" for ending in texts)


def timeline_rows(analysis: Analysis) -> list[tuple[object, ...]]:
    """Every event of every run, with what it is; starts are counted from the run's own."""
    selection = select(analysis.columns, rules=analysis.rules)
    columns = selection.columns
    rows = np.flatnonzero(selection.role != OUTSIDE)
    origin = np.zeros(max(columns.runs, 1), dtype=np.int64)
    origin[columns.run[selection.execute]] = columns.start[selection.execute].astype(np.int64)
    start = columns.start[rows].astype(np.int64) - origin[columns.run[rows]]
    known = settled_operators(analysis.profile)
    found = (columns.run, columns.name, selection.role, columns.instruction, columns.depth)
    lists = [each[rows].tolist() for each in found]
    lists += [(each / 1e3).tolist() for each in (start, durations(columns, rows))]
    made: list[tuple[object, ...]] = []
    for run, name, role, instruction, depth, at, length in zip(*lists, strict=True):
        label = columns.names[name]
        kinds: tuple[object, ...] = ("",) * 5
        if role == OPERATOR:
            of = known.get((label, instruction), selection.operators[name])
            kinds = (of.name, str(of.category), of.kind, str(of.executor), of.proof)
        times = (round(at, 3), round(length, 3))
        made.append((run, label, ROLE_NAMES[role], *kinds, instruction, depth, *times))
    return made


def _operator_row(
    member: OperatorProfile, stats: RobustStats, sme2: bool | None
) -> tuple[object, ...]:
    operator = member.operator
    values = (
        member.time_ns, stats.median, stats.mean, stats.trimmed_mean, stats.mad, stats.minimum,
        stats.maximum, stats.p5, stats.p95, stats.p99,
    )  # fmt: skip
    return (
        member.index,
        member.label,
        operator.name,
        str(operator.category),
        operator.kind,
        str(operator.executor),
        "unproven" if sme2 is None else sme2,
        member.instruction,
        member.call,
        stats.count,
        round(member.share * 100, 4),
        *(round(value / 1e3, 3) for value in values),
        round(stats.cv, 6),
        stats.outliers,
        " ".join(_few(member.aten)),
        " ".join(_few(member.modules)),
        str(member.shapes or ""),
    )


def _category_rows(profile: Profile) -> Iterable[tuple[object, ...]]:
    def row(category: object, kind: str, number: int, ns: float) -> tuple[object, ...]:
        return (
            str(category), kind, number, round(ns / 1e6, 6), round(profile.share(ns) * 100, 4)
        )  # fmt: skip

    for category, ns in profile.category_ns.items():
        yield row(category, "", profile.category_counts[category], ns)
        for (place, kind), kind_ns in profile.kind_ns.items():
            if place is category:
                yield row(category, kind, profile.kind_counts[place, kind], kind_ns)
    yield row("overhead", "", 0, profile.overhead_ns)
    yield row("total", "", len(profile.operators), profile.end_to_end.median)


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
