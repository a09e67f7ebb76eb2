"""What a run leaves behind: every case's tables and summaries, then the reports; whether they are
whole. CSV is for people, JSON for programs.

Every file is written under another name first and then moved, so that no reader sees half of it.
Operator names come from outside: a CSV cell that a spreadsheet would take for a formula is made
text.
"""

from __future__ import annotations

import csv
import io
import os
import platform
import re
import sys
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from pytest_sme2 import __version__
from pytest_sme2.errors import Sme2Error, UsageError
from pytest_sme2.profile.build import robust_stats, robust_stats_of_each
from pytest_sme2.profile.compare import compare
from pytest_sme2.profile.coverage import check_pair
from pytest_sme2.profile.operators import OPERATOR, OUTSIDE, ROLE_NAMES, durations, select
from pytest_sme2.report.case_summary import breakdown, cost_summary
from pytest_sme2.report.findings import (
    comparison_findings,
    cost_text,
    profile_findings,
    run_findings,
)
from pytest_sme2.report.markdown import (
    REPORT,
    case_report,
    run_report,
    step_summary,
)
from pytest_sme2.report.text import json_text
from pytest_sme2.report.versus_baseline import outcome_of
from pytest_sme2.results.case import RUNTIME
from pytest_sme2.results.profile import Comparison, OperatorProfile, Profile, RobustStats
from pytest_sme2.results.run import AS_EXPORTED
from pytest_sme2.runners.sdk import executorch_commit
from pytest_sme2.session.analysis import SUFFIX, Analysis, analyze_file, on_off_pairs
from pytest_sme2.session.run_directory import (
    MANIFEST,
    METRICS,
    CaseRecord,
    find_records,
    read_record,
    reproduce_command,
)
from pytest_sme2.system.files import (
    encode,
    file_sha256,
    read_members,
    safe_name,
    write_json,
    write_text,
)
from pytest_sme2.system.wording import some_of

PIPELINE_SCHEMA = 2
MANIFEST_SCHEMA = 1


def model_stem(record: CaseRecord) -> str:
    """How the files of a case begin: the program's own stem, as export names it."""
    measured = record.measured
    if measured.variant == AS_EXPORTED:
        return safe_name(measured.model)
    return safe_name(f"{measured.model}_xnnpack_{measured.variant}")


def write_case(
    folder: Path,
    record: CaseRecord,
    *,
    command: Sequence[str] = (),
    commit: str | None = None,
    into: Path | None = None,
) -> None:
    """Everything about one case that can be made from its ETDumps and its metrics, ``into`` its own
    folder or another.

    Who measured it names the commit; who only reads a run directory names none and asks no git.
    """
    analyses, out = {}, into or folder
    for arm, dump in record.etdumps.items():
        name, census = Path(dump).with_suffix("").as_posix(), record.measured.kernels.get(arm)
        executed = record.measured.executed(arm)
        executorch = record.measured.versions.get(RUNTIME, "")
        analyses[arm] = analyze_file(
            folder / dump,
            name=name,
            census=census,
            executed=executed,
            executorch=executorch,
        )
    for arm, analysis in analyses.items():
        place = out / Path(record.etdumps[arm]).parent
        stem = f"{model_stem(record)}_{analysis.path.parent.name}_t{record.measured.threads}"
        write_experiment(analysis, place, stem=stem)
    write_summary([*analyses.values()], out, timed=not record.measured.emulated)
    stem = model_stem(record)
    write_json(out / f"{stem}_pipeline_summary.json", pipeline_summary(record))
    write_text(out / f"{stem}_pipeline_summary.md", case_report(record))
    made = {**manifest(folder, record, command), "commit": commit}
    write_json(out / MANIFEST, {**made, **_of_its_making(folder, record)})


def pipeline_summary(record: CaseRecord) -> dict[str, Any]:
    """The account of one case for programs; what time there is only where time means something."""
    measured = record.measured
    timed = not measured.emulated
    arms: dict[str, Any] = {}
    for arm, profile in measured.profiles.items():
        medians, cost = (measured.medians_ns or {}).get(arm), measured.costs.get(arm)
        summary = {
            "etdump": record.etdumps.get(arm),
            "operators": len(profile.operators),
            **profile_summary(profile, timed=timed),
        }
        summary |= {} if cost is None else {"cost": cost_summary(cost)}
        summary |= {"latency": encode(robust_stats(medians))} if timed and medians else {}
        arms[str(arm)] = summary
    return {
        "schema": PIPELINE_SCHEMA,
        "case": record.id,
        "model": measured.model,
        "variant": measured.variant,
        "device": measured.fingerprint.target,
        "threads": measured.threads,
        "timed": timed,
        "unit": "ns",
        "arms": arms,
        "speedup": encode(measured.speedup),
        "evidence": encode(measured.evidence),
        "verdict": encode(outcome_of(record.checks)),
        "findings": [cost_text(entry) for _, entry in run_findings([record])],
    }


def manifest(folder: Path, record: CaseRecord, command: Sequence[str] = ()) -> dict[str, Any]:
    """How the case was made, and what it is made of, so that it can be made again."""
    measured = record.measured
    return {
        "schema": MANIFEST_SCHEMA,
        "case": record.id,
        "model": measured.model,
        "variant": measured.variant,
        "weights": measured.weights,
        "executorch": {
            "version": measured.versions.get("executorch", ""),
            "commit": executorch_commit(measured.versions.get("executorch", "")),
        },
        "program": {
            "path": measured.program,
            "sha256": measured.pte_sha256,
            "bytes": measured.pte_bytes,
        },
        "device": {"target": measured.fingerprint.target, **dict(measured.fingerprint.facts)},
        "device_state": dict(record.state),
        "taken_from_the_cache": [str(arm) for arm in record.remembered],
        "runner": measured.runner,
        "threads": measured.threads,
        "session": measured.session,
        "recorded": measured.recorded,
        "versions": {
            **measured.versions,
            "pytest-sme2": __version__,
            "python": platform.python_version(),
        },
        "host": platform.platform(),
        "command": list(command) or sys.argv,
        "reproduce": reproduce_command(record),
        "experiments": {
            str(arm): {"etdump": name, "sha256": file_sha256(folder / name)}
            for arm, name in record.etdumps.items()
        },
    }


def measured_commit(folder: Path) -> str:
    """The commit of the project that was measured, as the manifest has it."""
    # Where it cannot be read, `sme2 report --check` says what is wrong with it.
    commit = read_members(folder / MANIFEST).get("commit")
    return commit if isinstance(commit, str) else ""


def _of_its_making(folder: Path, record: CaseRecord) -> dict[str, Any]:
    """What the manifest of the same run says already; a later report happens in another place."""
    before = read_members(folder / MANIFEST)
    if before.get("recorded") != record.measured.recorded:
        return {}
    kept = ("commit", "executorch", "versions", "host", "command")
    return {name: before[name] for name in kept if name in before}


def write_run(out: Path, records: Sequence[CaseRecord]) -> Path:
    """The report over all cases, and the CI's summary where there is one; returns the report."""
    report = out / REPORT
    write_text(report, run_report(records))
    summary = os.environ.get("GITHUB_STEP_SUMMARY")
    if summary:
        # Other steps of the same job write to this file, too.
        with Path(summary).open("a", encoding="utf-8") as stream:
            stream.write(step_summary(records))
    return report


@dataclass(frozen=True)
class FileCheck:
    """One file, and what is wrong with it; nothing where it is fine."""

    path: Path
    problem: str = ""


def validate_run(root: Path) -> list[FileCheck]:
    """Whether a run directory is whole: every file that was looked at, in order.

    What they must hold is seen by making them again, elsewhere, from its record and dumps.
    """
    if not root.is_dir():
        raise UsageError(f"{str(root)!r} is not a folder. Give a run directory.")
    cases = list(find_records(root))
    findings = [check for folder in cases for check in _check_case(folder)]
    if not cases:
        findings.append(FileCheck(root / METRICS, "is missing: no case was recorded here"))
    # What made good files was read for them.
    others = sorted({*root.rglob(f"*{SUFFIX}")} - {check.path for check in findings})
    return [*findings, *(FileCheck(dump, _dump_problem(dump)) for dump in others)]


def _check_case(folder: Path) -> Iterator[FileCheck]:
    path = folder / METRICS
    with tempfile.TemporaryDirectory() as again:
        made = Path(again)
        try:
            record = read_record(folder)
            write_case(folder, record, into=made)
        except Sme2Error as error:
            yield FileCheck(path, str(error).removeprefix(f"{path} "))
            return
        yield FileCheck(path)
        for file in sorted(file for file in made.rglob("*") if file.is_file()):
            there = folder / file.relative_to(made)
            yield FileCheck(there, _unlike(there, file))
    for dump in record.etdumps.values():
        yield FileCheck(folder / dump)
        logs = sorted((folder / dump).parent.glob("*.log"))
        yield from map(FileCheck, logs)
        if not logs:
            yield FileCheck((folder / dump).with_name("*.log"), "is missing")


def _unlike(there: Path, made: Path) -> str:
    """What is wrong with a file, beside the same one made again."""
    if not there.is_file():
        return "is missing"
    if made.suffix == ".csv":
        same = there.read_bytes() == made.read_bytes()
    else:
        # `sme2 run` with several experiments says more in files of the same names.
        known, found = read_members(made), read_members(there)
        same = known.keys() <= found.keys()
        if made.name == MANIFEST:
            same &= known["experiments"] == found.get("experiments")
    again = "is not what its record and ETDumps make: `sme2 report` with its folder writes it again"
    return "" if same else again


def _dump_problem(path: Path) -> str:
    try:
        analyze_file(path)
    except (Sme2Error, OSError) as error:
        return str(error).removeprefix(f"{path}: ")
    return ""


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
