"""Reports in Markdown: one case, a whole run, a CI summary. Pure.

Names come from files that anybody may have written, so each stands in a code span or is escaped.
"""

from __future__ import annotations

import itertools
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence

from pytest_sme2.report.case_summary import (
    breakdown_rows,
    case_notes,
    cells,
    changed_rows,
    cost_rows,
    facts,
    frontier_notes,
    frontier_rows,
    latency_rows,
    notes,
    operator_rows,
    rest_text,
)
from pytest_sme2.report.findings import (
    case_sentences,
    compared,
    cost_text,
    remedy_text,
    run_findings,
)
from pytest_sme2.report.text import (
    NOTHING,
    TOP,
    as_sentence,
    code,
    document,
    percent,
    printable,
    prose,
    table,
)
from pytest_sme2.report.versus_baseline import deciding, outcome_of, summary
from pytest_sme2.results.case import CaseResult
from pytest_sme2.results.evidence import KernelFamily
from pytest_sme2.results.profile import Executor
from pytest_sme2.results.run import SHOWN, Arm
from pytest_sme2.session.run_directory import CaseRecord, reproduce_command
from pytest_sme2.system.wording import count
from pytest_sme2.verdict.judging import FAILING, WARNING, estimate_text

REPORT = "report.md"
"""Its name in a run directory."""
MOST_CASES = 50
"""So many are told in full in one report: of more, nobody reads them, and no comment takes them."""


def run_report(records: Sequence[CaseRecord], runs: Sequence[str] = ()) -> str:
    """The overview, what follows, every case in full; ``runs`` names the run of each of several.

    Of many cases only those are in full that failed or warned.
    """
    # The same case of several runs stands together.
    first = {record.id: place for place, record in reversed([*enumerate(records)])}
    names = runs or [""] * len(records)
    ordered = sorted(zip(records, names, strict=True), key=lambda entry: first[entry[0].id])
    lines = ["# SME2 performance report", "", *_overview(ordered)]
    advice = list(_recommendations(records))
    told = ordered
    if len(records) > MOST_CASES:
        told = [entry for entry in ordered if outcome_of(entry[0].checks) in (*FAILING, *WARNING)]
        told = told[:MOST_CASES]
        left = len(advice) - MOST_CASES
        advice = [*advice[:MOST_CASES], *[f"- and {count(left, 'line')} more."] * (left > 0)]
        rest = count(len(records) - len(told), "other case")
        lines += ["", f"The {rest} are in full in their own folders."]
    lines += _sections("##", {"Recommendations": advice})
    for record, name in told:
        lines += ["", *case_lines(record, "##", where=name)]
    return document(lines)


def case_report(record: CaseRecord) -> str:
    """One case in full, with what follows from it."""
    case = case_lines(record, "#")
    return document([case[0], *_notes([record]), *case[1:]])


def step_summary(records: Sequence[CaseRecord]) -> str:
    """The short form for a CI's summary page: what failed, the table, the costliest findings."""
    lines = ["## SME2 performance", "", *_overview([(record, "") for record in records])]
    findings = itertools.islice(_recommendations(records), 2 * TOP)
    return document([*lines, *_sections("###", {"Findings": findings})])


def _overview(entries: Sequence[tuple[CaseRecord, str]]) -> list[str]:
    """What failed or warned, a row for each case with the name of its run, and what limits them."""
    if not entries:
        return ["No case has a result."]
    told: list[str] = []
    rows: list[list[str]] = []
    for record, run in entries:
        found = cells(record.measured, record.checks)
        rows = rows or [["case", "device", "run", *found]]
        place = (code(record.id), code(record.measured.device), code(run) or NOTHING)
        rows.append([*place, *map(prose, found.values())])
        outcome, decided = outcome_of(record.checks), deciding(record.checks)
        if outcome in (*FAILING, *WARNING) and decided is not None:
            # Why nobody can tell is in the message alone.
            why = decided.message if outcome in WARNING else summary(record.checks)
            told.append(f"- {code(record.id)}: {prose(why)}")
    columns = [column for column in zip(*rows, strict=True) if {*column[1:]} != {NOTHING}]
    headings, *body = zip(*columns, strict=True)
    lines = [*told, "", *table(headings, body)] if told else table(headings, body)
    return [*lines, *_notes([record for record, _ in entries])]


def _notes(records: Sequence[CaseRecord]) -> list[str]:
    return [line for note in notes(records) for line in ("", as_sentence(note))]


def _recommendations(records: Sequence[CaseRecord]) -> Iterator[str]:
    for model, entry in run_findings(records):
        yield f"- {code(model)}: {prose(cost_text(entry))}"
        if remedy := remedy_text(entry):
            yield f"  - {prose(remedy)}"


def case_lines(record: CaseRecord, level: str, where: str = "") -> list[str]:
    measured = record.measured
    timed = not measured.emulated
    title = f"{record.id} ({where})" if where else record.id
    sections: dict[str, Iterable[str]] = {
        "Metadata": _metadata(record),
        "Latency": latency_lines(record),
        "What to know": (f"- {prose(note)}" for note in case_notes(record)),
        "Best number of threads": _threads(measured),
        "Category breakdown": _categories(measured, timed),
        "Cost": cost_lines(measured),
        "SME2 off and on": _changed(measured, timed),
        "Bottlenecks by operator": _operators(measured),
        "Portable and delegated": _executors(measured, timed),
        "Kernel insights": _kernels(measured),
        "Findings and recommendations": (f"- {prose(text)}" for text in case_sentences(measured)),
        "Checks": _checks(record),
        "How to reproduce": [f"    {printable(reproduce_command(record))}"],
    }
    return [f"{level} {code(title)}", *_sections(f"{level}#", sections)]


def _sections(level: str, sections: Mapping[str, Iterable[str]]) -> Iterator[str]:
    """Those that have anything to say."""
    for title, lines in sections.items():
        body = list(lines)
        yield from ("", f"{level} {title}", "", *body) if body else ()


def _metadata(record: CaseRecord) -> Iterator[str]:
    rows = ([prose(name), code(text)] for name, text in facts(record))
    yield from table(["what", "value"], rows)
    evidence = record.measured.evidence
    if evidence is not None:
        yield ""
        yield f"Evidence ({'valid' if evidence.valid else 'INVALID'}): {prose(evidence.message)}"


def cost_lines(measured: CaseResult) -> Iterator[str]:
    """The Markdown section about cost."""
    if not measured.costs:
        if measured.uncounted and measured.emulated:
            yield f"Nothing was counted: {measured.uncounted}."
        return
    if left := rest_text(measured):
        yield from (as_sentence(left), "")
    titles, *rows = cost_rows(measured)
    yield from table(titles, rows)


def latency_lines(record: CaseRecord) -> Iterator[str]:
    measured = record.measured
    titles, *rows = latency_rows(measured)
    yield from table(titles, rows)
    if measured.speedup is not None:
        found = measured.speedup
        over = f"{found.confidence:.1%} interval over {count(found.pairs, 'pair')} of processes"
        yield from ("", f"SME2 makes it **{estimate_text(found)}** as fast ({over}).")


def _threads(measured: CaseResult) -> Iterator[str]:
    found = measured.frontier
    if found is not None:
        titles, *rows = frontier_rows(measured, found)
        yield from table(titles, rows)
        yield from ("", *(f"- {prose(note)}" for note in frontier_notes(measured, found)))


def _categories(measured: CaseResult, timed: bool) -> Iterator[str]:
    arms = {str(arm): measured.profiles[arm] for arm in SHOWN if arm in measured.profiles}
    titles, *rows = breakdown_rows(arms, timed=timed)
    yield from table(titles, rows)
    if timed and rows:
        yield ""
        yield "These times are of traced runs, and tracing costs time. The latency is above."


def _changed(measured: CaseResult, timed: bool) -> Iterator[str]:
    comparison = compared(measured)
    if comparison is not None:
        titles, *rows = changed_rows(comparison, ("off", "on"), timed=timed)
        yield from table(titles, ([code(name), *rest] for name, *rest in rows))


def _operators(measured: CaseResult) -> Iterator[str]:
    profile, cost = measured.profiles.get(measured.arm), measured.costs.get(measured.arm)
    if profile is not None and not (measured.emulated and cost is None):
        titles, *rows = operator_rows(profile, cost if measured.emulated else None)
        # Only an operator ran.
        yield from table(titles, ([code(row[0]) if row[1] else row[0], *row[1:]] for row in rows))


def _executors(measured: CaseResult, timed: bool) -> Iterator[str]:
    profile = measured.profiles.get(measured.arm)
    if profile is None:
        return
    for executor in Executor:
        names = Counter(
            entry.operator.name
            for entry in profile.operators
            if entry.operator.executor is executor
        )
        if names:
            share = f", {percent(profile.share(profile.executor_ns[executor]))} of the time"
            told = f"- {executor}: {count(names.total(), 'operator')}{share * timed}"
            listed = ", ".join(f"{number} {code(name)}" for name, number in names.most_common())
            yield told + (f": {listed}" if executor is Executor.PORTABLE else "")


def _kernels(measured: CaseResult) -> Iterator[str]:
    rows = []
    for arm, census in measured.kernels.items():
        columns = ", ".join(
            f"{len(census.of(family))} {family}" for family in KernelFamily if census.of(family)
        )
        if columns:
            rows.append([f"SME2 {measured.arm_name(arm)}", columns, prose(census.source)])
    yield from table(["arm", "kernels that ran", "source"], rows)
    on = measured.kernels.get(Arm.ON)
    names = [kernel for kernel in (on.kernels if on else ()) if kernel.family is KernelFamily.SME2]
    if names:
        yield from ("", "SME2 kernels that ran with SME2 on:", "")
        yield from (f"- {code(kernel.name)}" for kernel in names)


def _checks(record: CaseRecord) -> list[str]:
    return table(
        ["check", "verdict", "what was found"],
        (
            [prose(check.metric), str(check.verdict), prose(check.message)]
            for check in record.checks
        ),
    )
