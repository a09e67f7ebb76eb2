"""The part of a Markdown report that is about one case."""

from __future__ import annotations

import math
import statistics
from collections import Counter
from collections.abc import Iterable, Iterator

from pytest_sme2.profile.compare import compare
from pytest_sme2.profile.findings import case_findings
from pytest_sme2.report.case_summary import made_of, noise_of
from pytest_sme2.report.cost import cost_lines, tokens_per_second
from pytest_sme2.report.findings import bottleneck, comparison_findings, sentences
from pytest_sme2.report.frontier import frontier_notes, frontier_rows
from pytest_sme2.report.text import TOP, code, duration, percent, printable, prose, table, times
from pytest_sme2.results import (
    PAIR,
    SHOWN,
    Arm,
    CaseResult,
    Category,
    Comparison,
    Executor,
    KernelFamily,
    Operator,
    Profile,
)
from pytest_sme2.session.reproduce import reproduce_command
from pytest_sme2.session.run_directory import CaseRecord
from pytest_sme2.system.wording import count
from pytest_sme2.verdict.generation import figure_lines, sentence


def case_lines(record: CaseRecord, level: str, where: str = "") -> list[str]:
    measured = record.measured
    timed = not measured.emulated
    on, off = measured.profiles.get(Arm.ON), measured.profiles.get(Arm.OFF)
    comparison = compare(off, on) if on is not None and off is not None else None
    sections: list[tuple[str, Iterable[str]]] = [
        ("Metadata", _metadata(record)),
        ("Latency", latency_lines(record)),
        ("Best number of threads", _threads(measured)),
        ("Generation", _generated(measured)),
        ("Category breakdown", category_lines(measured, timed)),
        ("Cost", cost_lines(measured)),
        ("What was accelerated", _accelerated(comparison, timed)),
        ("Bottlenecks by category", _shift(comparison, timed)),
        ("Bottlenecks by operator" if timed else "Operators", _operators(measured, timed)),
        ("Portable and delegated", _executors(measured, timed)),
        ("Kernel insights", _kernels(measured)),
        ("Findings and recommendations", _findings(measured, timed)),
        ("Checks", check_lines(record)),
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
        "device": measured.device,
        **{f"device: {name}": value for name, value in measured.fingerprint.facts},
        "runner": measured.runner,
        "threads": str(measured.threads),
        **({"cores": measured.conditions["cores"]} if "cores" in measured.conditions else {}),
        "weights": measured.weights,
        "program": f"{measured.pte_bytes} bytes, sha256 {measured.pte_sha256}",
        "recorded": measured.recorded,
        **(
            {"what happened in this run": record.state["events"]}
            if "events" in record.state
            else {}
        ),
        **{f"version: {name}": value for name, value in measured.versions.items()},
    }
    yield from table(["what", "value"], ([prose(name), code(text)] for name, text in facts.items()))
    if measured.evidence is not None:
        word = "valid" if measured.evidence.valid else "INVALID"
        yield ""
        yield f"Evidence ({word}): {prose(measured.evidence.message)}"


def latency_lines(record: CaseRecord) -> Iterator[str]:
    measured = record.measured
    medians = measured.medians_ns or {}
    rows = [
        [
            f"SME2 {measured.arm_name(arm)}",
            str(len(values)),
            duration(statistics.median(values)),
            duration(min(values)),
            duration(max(values)),
        ]
        for arm, values in medians.items()
        if values
    ]
    yield from table(["arm", "processes", "median", "fastest", "slowest"], rows)
    rate = tokens_per_second(measured)
    if rate:
        yield ""
        yield f"{rate[0].upper()}{rate[1:]}."
    if measured.speedup is not None:
        found = measured.speedup
        yield ""
        over = f"{count(found.pairs, 'pair')} of processes"
        if math.isinf(found.high):
            yield f"SME2 makes it **{found.value:.2f}x** as fast ({over}: too few for an interval)."
        else:
            yield (
                f"SME2 makes it **{found.value:.2f}x** as fast, between {found.low:.2f}x and "
                f"{found.high:.2f}x ({found.confidence:.1%} interval over {over})."
            )
    measured_to = noise_of(record)
    if measured_to is not None:
        yield ""
        yield f"Measured to: {measured_to}."
    notes = [*made_of(record), *(record.measurement.notes if record.measurement else ())]
    if notes:
        yield ""
        yield from (f"- {prose(note)}" for note in notes)


def _threads(measured: CaseResult) -> Iterator[str]:
    found = measured.frontier
    if found is not None:
        yield from table(*frontier_rows(measured, found))
        yield ""
        yield from (f"- {prose(note)}" for note in frontier_notes(measured, found))


def _generated(measured: CaseResult) -> Iterator[str]:
    found = measured.generation
    if found is not None:
        yield from (f"- {prose(line)}" for line in (*figure_lines(found), sentence(found)) if line)


def category_lines(measured: CaseResult, timed: bool) -> Iterator[str]:
    arms = [arm for arm in SHOWN if arm in measured.profiles]
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
        yield "These times are of traced runs, and tracing costs time. The latency is above."


def _time_and_share(profile: Profile, ns: float) -> list[str]:
    return [duration(ns), percent(profile.share(ns))]


def _accelerated(comparison: Comparison | None, timed: bool) -> Iterator[str]:
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


def _operators(measured: CaseResult, timed: bool) -> Iterator[str]:
    profile = measured.profiles.get(measured.arm)
    if profile is None:
        return
    if not timed:
        counts = Counter(entry.operator for entry in profile.operators)
        ranked = sorted(counts.items(), key=lambda item: (-item[1], item[0].name))
        rows = [
            [code(operator.name), str(operator.category), str(operator.executor),
             _sme2_word(operator), str(number)]
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
                _sme2_word(entry.operator),
                *_time_and_share(profile, entry.time_ns),
            ]
            for entry in costliest
        ),
    )
    left = len(profile.operators) - len(costliest)
    if left:
        yield ""
        yield f"and {count(left, 'operator')} more, in the operator statistics (CSV)."


_PROOFS = {True: "yes", False: "no", "sme1": "SME1", "unproven": "unproven"}


def _sme2_word(operator: Operator) -> str:
    return _PROOFS[operator.proof] if operator.matrix else ""


def _executors(measured: CaseResult, timed: bool) -> Iterator[str]:
    profile = measured.profiles.get(measured.arm)
    if profile is None:
        return
    rows = []
    for executor in Executor:
        number = profile.executor_counts[executor]
        if number:
            columns = _time_and_share(profile, profile.executor_ns[executor]) if timed else []
            rows.append([str(executor), str(number), *columns])
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
        yield ""
        yield "SME2 kernels that ran with SME2 on:"
        yield ""
        yield from (f"- {code(kernel.name)}" for kernel in names)


def _findings(measured: CaseResult, timed: bool) -> Iterator[str]:
    yield from (f"- {prose(text)}" for text in sentences(case_findings(measured)))
    if {*PAIR} <= {*measured.profiles}:
        found = compare(measured.profiles[Arm.OFF], measured.profiles[Arm.ON])
        yield from (f"- {prose(text)}" for text in comparison_findings(found, timed=timed))


def check_lines(record: CaseRecord) -> Iterator[str]:
    yield from table(
        ["check", "verdict", "what was found"],
        (
            [prose(check.metric), str(check.verdict), prose(check.message)]
            for check in record.checks
        ),
    )


def _reproduce(record: CaseRecord) -> Iterator[str]:
    yield f"    {printable(reproduce_command(record))}"
