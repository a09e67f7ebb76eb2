"""What a run leaves behind: every case's tables and summaries, then the reports.

They are written here, and it is said whether they are whole.
"""

from __future__ import annotations

import os
import platform
import sys
import tempfile
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pytest_sme2 import __version__
from pytest_sme2.errors import Sme2Error, UsageError
from pytest_sme2.profile.build import robust_stats
from pytest_sme2.report.cost import cost_summary
from pytest_sme2.report.csv_files import (
    profile_summary,
    write_experiment,
    write_summary,
)
from pytest_sme2.report.findings import cost_text, run_findings
from pytest_sme2.report.markdown import (
    REPORT,
    case_report,
    run_report,
    step_summary,
)
from pytest_sme2.report.versus_baseline import outcome_of
from pytest_sme2.results import AS_EXPORTED, RUNTIME
from pytest_sme2.runners.sdk import executorch_commit
from pytest_sme2.session.analysis import SUFFIX, analyze_file
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
