"""Reports in Markdown: one case, a whole run, several devices side by side, a CI summary. Pure.

Names come from files that anybody may have written, so each stands in a code span or is escaped.
"""

from __future__ import annotations

import statistics
from collections.abc import Mapping, Sequence

from pytest_sme2.profile.compare import largest_category
from pytest_sme2.report.cost import covered
from pytest_sme2.report.findings import run_findings
from pytest_sme2.report.markdown_case import case_lines, category_lines, check_lines, latency_lines
from pytest_sme2.report.markdown_text import (
    EMULATED_NOTE,
    RANDOM_NOTE,
    SME1_NOTE,
    TOP,
    code,
    document,
    prose,
    table,
)
from pytest_sme2.report.text import duration, percent
from pytest_sme2.results import (
    Arm,
    CaseResult,
)
from pytest_sme2.session.run_directory import CaseRecord
from pytest_sme2.verdict.judging import FAILING, WARNING, combine, estimate_text

# --- a run ----------------------------------------------------------------------------------------


def run_report(records: Sequence[CaseRecord]) -> str:
    """The overview, what follows from it, and every case in full."""
    lines = ["# SME2 performance report", "", *_overview(records), "", *_recommendations(records)]
    for record in records:
        lines += ["", *case_lines(record, "##")]
    return document(lines)


def case_report(record: CaseRecord) -> str:
    """One case in full, with what follows from it."""
    case = case_lines(record, "#")
    return document([case[0], *_notes([record]), *case[1:]])


def step_summary(records: Sequence[CaseRecord]) -> str:
    """The short form for a CI's summary page: the table, what failed, the costliest findings."""
    lines = ["## SME2 performance", "", *_overview(records)]
    for title, outcomes in (("What failed", FAILING), ("Warnings", WARNING)):
        listed = [
            f"- {code(record.id)}: **{check.verdict}** {prose(check.metric)}: "
            f"{prose(check.message)}"
            for record in records
            for check in record.checks
            if check.verdict in outcomes
        ]
        if listed:
            lines += ["", f"### {title}", "", *listed]
    found = run_findings(records)[:TOP]
    if found:
        lines += ["", "### Findings", ""]
        lines += [f"- {code(finding.model)}: {prose(finding.text)}" for finding in found]
    return document(lines)


def combined_report(runs: Mapping[str, Sequence[CaseRecord]]) -> str:
    """Several run directories side by side: the same model and variant on each device."""
    cases: dict[tuple[str, str], dict[str, CaseRecord]] = {}
    devices: dict[str, None] = {}
    for name, records in runs.items():
        for record in records:
            device = f"{record.measured.device} ({name})" if len(runs) > 1 else name
            devices[device] = None
            label = record.id.removeprefix(f"{record.measured.model}-")
            cases.setdefault((record.measured.model, label), {})[device] = record
    lines = ["# SME2 performance on several devices", ""]
    for title, cell in (
        ("Speedup by SME2, with its interval", lambda record: speedup_cell(record.measured)),
        ("Latency with SME2 off", lambda record: latency_cell(record.measured, Arm.OFF)),
        ("Latency with SME2 on", lambda record: latency_cell(record.measured, Arm.ON)),
        (
            "Matrix operators on SME2 kernels",
            lambda record: covered(record.measured, between=" of "),
        ),
        ("Largest category", lambda record: largest_of_arm_cell(record.measured)),
        ("Verdict", verdict_cell),
    ):
        rows = [
            [code(f"{model} {label}"), *(_on(found, device, cell) for device in devices)]
            for (model, label), found in cases.items()
        ]
        if any(entry != "-" for row in rows for entry in row[1:]):
            headings = ["model and variant", *(code(device) for device in devices)]
            lines += [f"## {title}", "", *table(headings, rows), ""]
    without = [
        device
        for device in devices
        if all(found[device].measured.arm is Arm.OFF for found in cases.values() if device in found)
    ]
    if without:
        names = ", ".join(map(code, without))
        lines += [f"Without SME2, so that only the off arm was run: {names}.", ""]
    lines += _notes([record for found in cases.values() for record in found.values()])
    for name, records in runs.items():
        for record in records:
            lines += ["", *case_lines(record, "##", where=name)]
    return document(lines)


def _on(found: Mapping[str, CaseRecord], device: str, cell: object) -> str:
    record = found.get(device)
    return "-" if record is None or not callable(cell) else str(cell(record))


def _overview(records: Sequence[CaseRecord]) -> list[str]:
    headings = ["case", "device", "SME2 operators", "SME1 operators", "off", "on", "speedup",
                "largest", "memory", "verdict"]  # fmt: skip
    rows = [
        [
            code(record.id),
            code(record.measured.device),
            *(covered(record.measured, arm, " of ") for arm in (Arm.ON, Arm.SME1)),
            latency_cell(record.measured, Arm.OFF),
            latency_cell(record.measured, Arm.ON),
            speedup_cell(record.measured),
            largest_cell(record.measured),
            memory_cell(record.measured),
            verdict_cell(record),
        ]
        for record in records
    ]
    kept = [
        column
        for column in range(len(headings))
        if column < 2 or any(row[column] != "-" for row in rows)
    ]
    lines = table(
        [headings[column] for column in kept], [[row[column] for column in kept] for row in rows]
    )
    return [*lines, *_notes(records)]


def _notes(records: Sequence[CaseRecord]) -> list[str]:
    lines = []
    if any(record.measured.fingerprint.sme1 for record in records):
        lines += ["", SME1_NOTE]
    if any(record.measured.emulated for record in records):
        lines += ["", EMULATED_NOTE]
    if any(record.measured.weights.startswith("random") for record in records):
        lines += ["", RANDOM_NOTE]
    return lines


def _recommendations(records: Sequence[CaseRecord]) -> list[str]:
    found = run_findings(records)
    if not found:
        return []
    lines = ["## Recommendations", ""]
    for finding in found:
        lines.append(f"- {code(finding.model)}: {prose(finding.text)}")
        if finding.remedy:
            lines.append(f"  - {prose(finding.remedy)}")
    return lines


# --- the pipeline's summary -----------------------------------------------------------------------


def pipeline_markdown(record: CaseRecord) -> str:
    """The short account of one case: latency with robust statistics, breakdown, verdict."""
    measured = record.measured
    timed = not measured.emulated
    lines = [f"# {code(record.id)}: pipeline summary", "", *_overview([record])]
    for title, section in (
        ("Latency", latency_lines(record)),
        ("Category breakdown", category_lines(measured, timed)),
        ("Checks", check_lines(record)),
    ):
        body = list(section)
        if body:
            lines += ["", f"## {title}", "", *body]
    return document(lines)


def latency_cell(measured: CaseResult, arm: Arm) -> str:
    medians = (measured.medians_ns or {}).get(arm)
    return duration(statistics.median(medians)) if medians else "-"


def speedup_cell(measured: CaseResult) -> str:
    found = measured.speedup
    if found is None:
        return "-"
    return estimate_text(found).replace("[", "\\[").replace("]", "\\]")


def largest_cell(measured: CaseResult) -> str:
    profile = measured.profiles.get(measured.arm)
    category = None if profile is None or measured.emulated else largest_category(profile)
    if profile is None or category is None:
        return "-"
    return f"{category} {percent(profile.share(profile.category_ns[category]))}"


def largest_of_arm_cell(measured: CaseResult) -> str:
    """The same beside other devices, which may have SME2 where this one has none."""
    text = largest_cell(measured)
    return f"{text} (SME2 off)" if text != "-" and measured.arm is Arm.OFF else text


def memory_cell(measured: CaseResult) -> str:
    peak = (measured.peak_bytes or {}).get(measured.arm)
    return "-" if peak is None else f"{peak / 1e6:.0f} MB"


def verdict_cell(record: CaseRecord) -> str:
    return str(combine(record.checks)) if record.checks else "-"
