"""Reports in Markdown: one case, a whole run, several devices side by side, a CI summary. Pure.

Names come from files that anybody may have written, so each stands in a code span or is escaped.
"""

from __future__ import annotations

import re
import statistics
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence

from pytest_sme2.profile.compare import compare, largest_category
from pytest_sme2.report.findings import bottleneck, comparison_findings, profile_findings
from pytest_sme2.report.insights import insights
from pytest_sme2.report.precision import precision
from pytest_sme2.report.reproduce import reproduce_command
from pytest_sme2.report.text import count, duration, percent, printable, times
from pytest_sme2.results import (
    Arm,
    Category,
    Comparison,
    Executor,
    KernelFamily,
    Measured,
    Outcome,
    Profile,
)
from pytest_sme2.session.run_directory import CaseRecord
from pytest_sme2.verdict.checks import combine

TOP = 10
EMULATED_NOTE = (
    "The CPU was emulated. Operators, their counts, kernels and outputs are exact; times are left "
    "out, since the time an emulator takes says nothing about hardware."
)
RANDOM_NOTE = "Weights are random: latency does not depend on them, accuracy does."
_FIGURE = re.compile(r"-?[0-9]|-$|$")
_BAD = (Outcome.REGRESSED, Outcome.INVALID)


# --- pieces ---------------------------------------------------------------------------------------


def code(name: str) -> str:
    """A name in a code span, in which nothing is markup; fit for a table's cell."""
    text = printable(name).replace("|", "\\|")
    fence = "`" * (max((len(run) for run in re.findall("`+", text)), default=0) + 1)
    space = " " if "`" in text else ""
    return f"{fence}{space}{text}{space}{fence}" if text else ""


def prose(sentence: str) -> str:
    """A sentence that may hold names: what would be markup is escaped."""
    text = re.sub(r"([\\`*\[\]|])", r"\\\1", printable(sentence))
    return text.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")


def table(headings: Sequence[str], rows: Iterable[Sequence[str]]) -> list[str]:
    """A table; columns of figures are right-aligned. Nothing where there are no rows."""
    body = [list(row) for row in rows]
    if not body:
        return []
    rule = [
        "---:" if all(_FIGURE.match(row[column]) for row in body) else "---"
        for column in range(len(headings))
    ]
    return ["| " + " | ".join(row) + " |" for row in (list(headings), rule, *body)]


def _document(lines: Iterable[str]) -> str:
    return "\n".join(lines).rstrip() + "\n"


# --- a run ----------------------------------------------------------------------------------------


def run_report(records: Sequence[CaseRecord], title: str = "SME2 performance report") -> str:
    """The overview, what follows from it, and every case in full."""
    lines = [f"# {title}", "", *_overview(records), "", *_recommendations(records)]
    for record in records:
        lines += ["", *_case(record, "##")]
    return _document(lines)


def case_report(record: CaseRecord) -> str:
    """One case in full, with what follows from it."""
    case = _case(record, "#")
    return _document([case[0], *_notes([record]), *case[1:], "", *_recommendations([record], "##")])


def step_summary(records: Sequence[CaseRecord]) -> str:
    """The short form for a CI's summary page: the table, what failed, the costliest findings."""
    lines = ["## SME2 performance", "", *_overview(records)]
    failed = [
        f"- {code(record.id)}: **{check.verdict}** {prose(check.metric)}: {prose(check.message)}"
        for record in records
        for check in record.checks
        if check.verdict in _BAD
    ]
    if failed:
        lines += ["", "### What failed", "", *failed]
    found = insights(records)[:TOP]
    if found:
        lines += ["", "### Findings", ""]
        lines += [f"- {code(insight.model)}: {prose(insight.text)}" for insight in found]
    return _document(lines)


def combined_report(runs: Mapping[str, Sequence[CaseRecord]]) -> str:
    """Several run directories side by side: the same model and variant on each device."""
    cases: dict[tuple[str, str], dict[str, CaseRecord]] = {}
    devices: dict[str, None] = {}
    for name, records in runs.items():
        for record in records:
            device = f"{record.measured.fingerprint.target} ({name})" if len(runs) > 1 else name
            devices[device] = None
            label = record.id.removeprefix(f"{record.measured.model}-")
            cases.setdefault((record.measured.model, label), {})[device] = record
    lines = ["# SME2 performance on several devices", ""]
    for title, cell in (
        ("Speedup by SME2, with its interval", lambda record: _speedup(record.measured)),
        ("Latency with SME2 off", lambda record: _latency(record.measured, Arm.OFF)),
        ("Latency with SME2 on", lambda record: _latency(record.measured, Arm.ON)),
        ("Matrix operators on SME2 kernels", lambda record: _covered(record.measured)),
        ("Largest category", lambda record: _largest_of_arm(record.measured)),
        ("Verdict", _verdict),
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
            lines += ["", *_case(record, "##", where=name)]
    return _document(lines)


def _on(found: Mapping[str, CaseRecord], device: str, cell: object) -> str:
    record = found.get(device)
    return "-" if record is None or not callable(cell) else str(cell(record))


def _overview(records: Sequence[CaseRecord]) -> list[str]:
    headings = ["case", "device", "SME2 operators", "off", "on", "speedup", "largest", "memory",
                "verdict"]  # fmt: skip
    rows = [
        [
            code(record.id),
            code(record.measured.fingerprint.target),
            _covered(record.measured),
            _latency(record.measured, Arm.OFF),
            _latency(record.measured, Arm.ON),
            _speedup(record.measured),
            _largest(record.measured),
            _memory(record.measured),
            _verdict(record),
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
    if any(record.measured.emulated for record in records):
        lines += ["", EMULATED_NOTE]
    if any(record.measured.weights.startswith("random") for record in records):
        lines += ["", RANDOM_NOTE]
    return lines


def _recommendations(records: Sequence[CaseRecord], level: str = "##") -> list[str]:
    found = insights(records)
    if not found:
        return []
    lines = [f"{level} Recommendations", ""]
    for insight in found:
        lines.append(f"- {code(insight.model)}: {prose(insight.text)}")
        if insight.advice:
            lines.append(f"  - {prose(insight.advice)}")
    return lines


def _covered(measured: Measured) -> str:
    coverage = measured.coverage
    if coverage is None:
        return "-"
    return f"{coverage.sme2_operators} of {coverage.matrix_operators}"


def _latency(measured: Measured, arm: Arm) -> str:
    medians = (measured.medians_ns or {}).get(arm)
    return duration(statistics.median(medians)) if medians else "-"


def _speedup(measured: Measured) -> str:
    found = measured.speedup
    return "-" if found is None else f"{found.value:.2f}x \\[{found.low:.2f}, {found.high:.2f}\\]"


def _largest(measured: Measured) -> str:
    profile = measured.profiles.get(measured.arm)
    category = None if profile is None or measured.emulated else largest_category(profile)
    if profile is None or category is None:
        return "-"
    return f"{category} {percent(profile.share(profile.category_ns[category]))}"


def _largest_of_arm(measured: Measured) -> str:
    """The same beside other devices, which may have SME2 where this one has none."""
    told = _largest(measured)
    return f"{told} (SME2 off)" if told != "-" and measured.arm is Arm.OFF else told


def _memory(measured: Measured) -> str:
    peak = (measured.peak_bytes or {}).get(measured.arm)
    return "-" if peak is None else f"{peak / 1e6:.0f} MB"


def _verdict(record: CaseRecord) -> str:
    return str(combine(record.checks)) if record.checks else "-"


# --- one case -------------------------------------------------------------------------------------


def _case(record: CaseRecord, level: str, where: str = "") -> list[str]:
    measured = record.measured
    timed = not measured.emulated
    on, off = measured.profiles.get(Arm.ON), measured.profiles.get(Arm.OFF)
    comparison = compare(off, on) if on is not None and off is not None else None
    sections: list[tuple[str, Iterable[str]]] = [
        ("Metadata", _metadata(record)),
        ("Latency", _latencies(record)),
        ("Category breakdown", _categories(measured, timed)),
        ("What was accelerated", _accelerated(measured, comparison, timed)),
        ("Bottlenecks by category", _shift(comparison, timed)),
        ("Bottlenecks by operator" if timed else "Operators", _operators(measured, timed)),
        ("Portable and delegated", _executors(measured, timed)),
        ("Kernel insights", _kernels(measured)),
        ("Findings", _findings(measured, timed)),
        ("Checks", _checks(record)),
        ("How to reproduce", _reproduce(record)),
    ]
    title = f"{record.id} ({where})" if where else record.id
    lines = [f"{level} {code(title)}"]
    for title, section in sections:
        body = list(section)
        if body:
            lines += ["", f"{level}# {title}", "", *body]
    return lines


def _metadata(record: CaseRecord) -> Iterator[str]:
    measured = record.measured
    facts = {
        "model": measured.model,
        "variant": measured.variant,
        "device": measured.fingerprint.target,
        **{f"device: {name}": value for name, value in measured.fingerprint.facts},
        "runner": measured.runner,
        "threads": str(measured.threads),
        "weights": measured.weights,
        "program": f"{measured.pte_bytes} bytes, sha256 {measured.pte_sha256}",
        "recorded": measured.recorded,
        **{f"version: {name}": value for name, value in measured.versions.items()},
    }
    yield from table(["what", "value"], ([prose(name), code(text)] for name, text in facts.items()))
    if measured.evidence is not None:
        word = "valid" if measured.evidence.valid else "INVALID"
        yield ""
        yield f"Evidence ({word}): {prose(measured.evidence.message)}"


def _latencies(record: CaseRecord) -> Iterator[str]:
    measured = record.measured
    medians = measured.medians_ns or {}
    rows = [
        [
            f"SME2 {arm}",
            str(len(values)),
            duration(statistics.median(values)),
            duration(min(values)),
            duration(max(values)),
        ]
        for arm, values in medians.items()
        if values
    ]
    yield from table(["arm", "processes", "median", "fastest", "slowest"], rows)
    if measured.speedup is not None:
        found = measured.speedup
        yield ""
        yield (
            f"SME2 makes it **{found.value:.2f}x** as fast, between {found.low:.2f}x and "
            f"{found.high:.2f}x ({found.confidence:.1%} interval over {found.pairs} pairs of "
            "processes)."
        )
    measured_to = precision(record)
    if measured_to is not None:
        yield ""
        yield f"Measured to: {measured_to}."
    if record.measurement is not None and record.measurement.notes:
        yield ""
        yield from (f"- {prose(note)}" for note in record.measurement.notes)


def _categories(measured: Measured, timed: bool) -> Iterator[str]:
    arms = [arm for arm in (Arm.OFF, Arm.ON) if arm in measured.profiles]
    headings, rows = ["category"], []
    for arm in arms:
        headings.append(f"operators {arm}")
        headings += [f"time {arm}", f"share {arm}"] if timed else []
    for category in Category:
        if any(measured.profiles[arm].category_counts[category] for arm in arms):
            row = [str(category)]
            for arm in arms:
                profile = measured.profiles[arm]
                row.append(str(profile.category_counts[category]))
                row += _time_and_share(profile, profile.category_ns[category]) if timed else []
            rows.append(row)
    if timed and rows:
        row = ["overhead"]
        for arm in arms:
            profile = measured.profiles[arm]
            row += ["", *_time_and_share(profile, profile.overhead_ns)]
        rows.append(row)
    yield from table(headings, rows)
    if timed and rows:
        yield ""
        yield "Times are of traced runs, and tracing costs time: latency is told above."


def _time_and_share(profile: Profile, ns: float) -> list[str]:
    return [duration(ns), percent(profile.share(ns))]


def _accelerated(measured: Measured, comparison: Comparison | None, timed: bool) -> Iterator[str]:
    if comparison is None:
        return
    numbers: Counter[tuple[str, str]] = Counter()
    before: Counter[tuple[str, str]] = Counter()
    after: Counter[tuple[str, str]] = Counter()
    for change in comparison.operators:
        if change.before and change.after and change.after.operator.sme2:
            key = (change.before.operator.name, change.after.operator.name)
            numbers[key] += 1
            before[key] += int(change.before.time_ns)
            after[key] += int(change.after.time_ns)
    headings = ["SME2 off", "SME2 on", "operators", *(["time off", "time on", "faster"] * timed)]
    ranked = sorted(numbers, key=lambda key: (-before[key] if timed else -numbers[key], key))
    yield from table(
        headings,
        (
            [
                code(key[0]),
                code(key[1]),
                str(numbers[key]),
                *(
                    [
                        duration(before[key]),
                        duration(after[key]),
                        times(before[key] / after[key] if after[key] else None),
                    ]
                    if timed
                    else []
                ),
            ]
            for key in ranked
        ),
    )
    if not numbers:
        yield "No operator ran on an SME2 kernel."


def _shift(comparison: Comparison | None, timed: bool) -> Iterator[str]:
    if comparison is None or not timed:
        return
    changes = [*comparison.categories, comparison.overhead, comparison.end_to_end]
    yield from table(
        ["category", "off", "on", "faster"],
        (
            [
                change.name,
                duration(change.before_ns),
                duration(change.after_ns),
                times(change.ratio),
            ]
            for change in sorted(changes, key=lambda change: -change.after_ns)
        ),
    )
    if comparison.largest_after is not None:
        moved = bottleneck(comparison)
        limit = (
            f"; if it were free, the program would be {times(comparison.amdahl)} as fast"
            if comparison.amdahl
            else ""
        )
        yield ""
        yield f"{moved[0].upper()}{moved[1:]}{limit}."


def _operators(measured: Measured, timed: bool) -> Iterator[str]:
    profile = measured.profiles.get(measured.arm)
    if profile is None:
        return
    if not timed:
        counts = Counter(entry.operator for entry in profile.operators)
        ranked = sorted(counts.items(), key=lambda item: (-item[1], item[0].name))
        rows = [
            [code(operator.name), str(operator.category), str(operator.executor),
             _sme2_word(operator.matrix, operator.sme2, operator.unproven), str(number)]
            for operator, number in ranked
        ]  # fmt: skip
        yield from table(["operator", "category", "ran", "SME2", "count"], rows)
        return
    costliest = sorted(profile.operators, key=lambda entry: -entry.share)[:TOP]
    yield from table(
        ["operator", "category", "ran", "SME2", "time", "share"],
        (
            [
                code(entry.label),
                str(entry.operator.category),
                str(entry.operator.executor),
                _sme2_word(entry.operator.matrix, entry.operator.sme2, entry.operator.unproven),
                *_time_and_share(profile, entry.time_ns),
            ]
            for entry in costliest
        ),
    )
    left = len(profile.operators) - len(costliest)
    if left:
        yield ""
        yield f"and {count(left, 'operator')} more, in the operator statistics (CSV)."


def _sme2_word(matrix: bool, sme2: bool, unproven: bool) -> str:
    if not matrix:
        return ""
    return "yes" if sme2 else "unproven" if unproven else "no"


def _executors(measured: Measured, timed: bool) -> Iterator[str]:
    profile = measured.profiles.get(measured.arm)
    if profile is None:
        return
    rows = []
    for executor in Executor:
        number = profile.executor_counts[executor]
        if number:
            told = _time_and_share(profile, profile.executor_ns[executor]) if timed else []
            rows.append([str(executor), str(number), *told])
    yield from table(["ran", "operators", *(["time", "share"] * timed)], rows)
    portable = Counter(
        entry.operator.name
        for entry in profile.operators
        if entry.operator.executor is Executor.PORTABLE
    )
    if portable:
        listed = ", ".join(f"{number} {code(name)}" for name, number in portable.most_common())
        yield ""
        yield f"Outside of the delegate: {listed}."


def _kernels(measured: Measured) -> Iterator[str]:
    rows = []
    for arm, census in measured.kernels.items():
        told = ", ".join(
            f"{len(census.of(family))} {family}" for family in KernelFamily if census.of(family)
        )
        if told:
            rows.append([f"SME2 {arm}", told, prose(census.source)])
    yield from table(["arm", "kernels that ran", "source"], rows)
    on = measured.kernels.get(Arm.ON)
    names = [kernel for kernel in (on.kernels if on else ()) if kernel.family is KernelFamily.SME2]
    if names:
        yield ""
        yield "SME2 kernels that ran with SME2 on:"
        yield ""
        yield from (f"- {code(kernel.name)}" for kernel in names)


def _findings(measured: Measured, timed: bool) -> Iterator[str]:
    profile = measured.profiles.get(measured.arm)
    if profile is not None:
        yield from (f"- {prose(text)}" for text in profile_findings(profile, timed=timed))
    if len(measured.profiles) == len(Arm):
        found = compare(measured.profiles[Arm.OFF], measured.profiles[Arm.ON])
        yield from (f"- {prose(text)}" for text in comparison_findings(found, timed=timed))


def _checks(record: CaseRecord) -> Iterator[str]:
    yield from table(
        ["check", "verdict", "what was found"],
        (
            [prose(check.metric), str(check.verdict), prose(check.message)]
            for check in record.checks
        ),
    )


def _reproduce(record: CaseRecord) -> Iterator[str]:
    yield f"    {printable(reproduce_command(record.measured))}"


# --- the pipeline's summary -----------------------------------------------------------------------


def pipeline_markdown(record: CaseRecord) -> str:
    """The short account of one case: latency with robust statistics, breakdown, verdict."""
    measured = record.measured
    timed = not measured.emulated
    lines = [f"# {code(record.id)}: pipeline summary", "", *_overview([record])]
    for title, section in (
        ("Latency", _latencies(record)),
        ("Category breakdown", _categories(measured, timed)),
        ("Checks", _checks(record)),
    ):
        body = list(section)
        if body:
            lines += ["", f"## {title}", "", *body]
    return _document(lines)
