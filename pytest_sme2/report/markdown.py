"""Reports in Markdown: one case, a whole run, several devices side by side, a CI summary. Pure.

Names come from files that anybody may have written, so each stands in a code span or is escaped.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from pytest_sme2.report.case_summary import NOTHING, CaseSummary, summarize
from pytest_sme2.report.findings import run_findings
from pytest_sme2.report.markdown_case import case_lines, category_lines, check_lines, latency_lines
from pytest_sme2.report.text import (
    EMULATED_NOTE,
    RANDOM_NOTE,
    SME1_NOTE,
    TOP,
    code,
    document,
    prose,
    table,
)
from pytest_sme2.report.versus_baseline import summary
from pytest_sme2.results import Arm
from pytest_sme2.session.run_directory import CaseRecord
from pytest_sme2.verdict.judging import FAILING, WARNING

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
    cases: dict[tuple[str, str], dict[str, tuple[CaseRecord, CaseSummary]]] = {}
    devices: dict[str, None] = {}
    for name, records in runs.items():
        for record in records:
            device = f"{record.measured.device} ({name})" if len(runs) > 1 else name
            devices[device] = None
            label = record.id.removeprefix(f"{record.measured.model}-")
            found = cases.setdefault((record.measured.model, label), {})
            found[device] = record, summarize(record)
    lines = ["# SME2 performance on several devices", ""]
    for title, field in (
        ("Speedup by SME2, with its interval", "speedup"),
        ("Latency with SME2 off", "off"),
        ("Latency with SME2 on", "on"),
        ("Matrix operators on SME2 kernels", "sme2"),
        ("Largest category", "largest"),
        ("Verdict", "verdict"),
    ):
        rows = [
            [code(f"{model} {label}"), *(_on(found, device, field) for device in devices)]
            for (model, label), found in cases.items()
        ]
        if any(entry != "-" for row in rows for entry in row[1:]):
            headings = ["model and variant", *(code(device) for device in devices)]
            lines += [f"## {title}", "", *table(headings, rows), ""]
    without = [
        device
        for device in devices
        if all(
            found[device][0].measured.arm is Arm.OFF for found in cases.values() if device in found
        )
    ]
    if without:
        names = ", ".join(map(code, without))
        lines += [f"Without SME2, so that only the off arm was run: {names}.", ""]
    lines += _notes([record for found in cases.values() for record, _ in found.values()])
    for name, records in runs.items():
        for record in records:
            lines += ["", *case_lines(record, "##", where=name)]
    return document(lines)


def _on(found: Mapping[str, tuple[CaseRecord, CaseSummary]], device: str, field: str) -> str:
    if device not in found:
        return NOTHING
    record, shown = found[device]
    text = prose(getattr(shown, field))
    if field != "largest" or text == NOTHING or record.measured.arm is Arm.ON:
        return text
    return f"{text} (SME2 off)"  # another device may have SME2 where this one has none


_OVERVIEW = {
    "SME2 operators": "sme2",
    "SME1 operators": "sme1",
    "off": "off",
    "on": "on",
    "speedup": "speedup",
    "largest": "largest",
    "memory": "memory",
    "verdict": "verdict",
}


def _overview(records: Sequence[CaseRecord]) -> list[str]:
    shown = [(record, summarize(record)) for record in records]
    rows = [
        [
            code(record.id),
            code(record.measured.device),
            *(prose(getattr(found, field)) for field in _OVERVIEW.values()),
        ]
        for record, found in shown
    ]
    headings = ["case", "device", *_OVERVIEW]
    kept = [
        column
        for column in range(len(headings))
        if column < 2 or any(row[column] != "-" for row in rows)
    ]
    lines = table(
        [headings[column] for column in kept], [[row[column] for column in kept] for row in rows]
    )
    failed = [
        f"- {code(record.id)}: {prose(summary(record.checks))}"
        for record, found in shown
        if found.failed
    ]
    return [*failed, *([""] * bool(failed)), *lines, *_notes(records)]


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
