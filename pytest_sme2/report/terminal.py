"""The end of a run on a terminal: one table, and the findings worth a sentence. Pure: no colours.

The verdict is the last word of a row, so that the caller can colour it.
"""

from __future__ import annotations

import statistics
from collections import Counter
from collections.abc import Iterator, Sequence
from functools import partial

from pytest_sme2.profile.compare import largest_category
from pytest_sme2.report.cost import (
    LIMITS_OF_COST,
    coverage_by_work,
    covered,
    fewer,
    instructions,
    instructions_per_token,
    largest_cost,
    millions,
    tokens_per_second,
)
from pytest_sme2.report.findings import RunFinding, next_step, run_findings
from pytest_sme2.report.markdown_text import SME1_NOTE
from pytest_sme2.report.noise import Noise, noise_of, overall
from pytest_sme2.report.text import WIDTH, bullet, clipped
from pytest_sme2.report.versus_baseline import (
    change_text,
    deciding,
    interval_text,
    limit_text,
    value_text,
)
from pytest_sme2.results import AS_EXPORTED, Arm, CaseResult, Category, Check, Outcome
from pytest_sme2.session.run_directory import CaseRecord
from pytest_sme2.system.wording import count
from pytest_sme2.verdict.judging import FAILING, UNCHECKED, combine, estimate_text, reference_of

_HEADINGS = (
    "variant", "SME2", "by work", "SME1", "off ms", "on ms", "speedup", "most time", "MB",
    "off Minst", "sme1 Minst", "on Minst", "fewer", "most work", "verdict",
)  # fmt: skip
_LEFT = (0, 7, 13, 14)
_COMPARED = ("variant", "rests on", "baseline", "now", "change", "interval %", "limit", "checks")
_COMPARED_LEFT = (0, 1)
_EVERY = ("variant", "check", "baseline", "now", "change", "interval %", "limit", "verdict")
_EVERY_LEFT = (0, 1, 7)
# Which columns of these two go first where the terminal is too narrow: limit, interval.
_EXPENDABLE = (6, 5)
_NOTHING = "-"
_SHORT = {Category.DATA_MOVEMENT: "MOVE", Category.ELEMENTWISE: "ELEM"}
MOST_FINDINGS = 6
_FINDINGS_PER_MODEL = 3


def run_lines(records: Sequence[CaseRecord], verbosity: int = 0, width: int = WIDTH) -> list[str]:
    """The table of all cases, how they compare with their baselines, and what there is to say.

    With a verbosity below 0 the tables alone, below -1 nothing, above 0 every check and finding.
    """
    if not records or verbosity < -1:
        return []
    lines = [*_table(records, _HEADINGS, _LEFT, [[_row(record)] for record in records], width)]
    compared = [*_comparison(records, verbosity, width)]
    if compared:
        lines += ["", *compared]
    if verbosity >= 0:
        lines += ["", *_findings(records, verbosity, width)]
        # A long run has many findings: the command is about what failed, or what costs most.
        failed = [
            record for record in records if any(check.verdict in FAILING for check in record.checks)
        ]
        command = next_step(failed or records)
        lines += [bullet(command, "Next: ", width)] if command else []
    return lines


def split_verdict(line: str) -> tuple[str, Outcome | None]:
    """A row of the table, and the verdict that ends it; any other line as it is."""
    head, space, word = line.rpartition(" ")
    if space and word in Outcome.__members__:
        return head + space, Outcome(word)
    return line, None


# --- the table ------------------------------------------------------------------------------------


def _table(
    records: Sequence[CaseRecord],
    headings: Sequence[str],
    left: Sequence[int],
    body: Sequence[Sequence[Sequence[str]]],
    width: int,
    expendable: Sequence[int] = (),
) -> Iterator[str]:
    """``body`` holds the rows of each record, below a heading for all that belong together."""
    rows = [headings, *(row for found in body for row in found)]
    # A column in which nobody has anything to say, such as latency on an emulator, is left out.
    kept = [
        column
        for column in range(len(headings))
        if any(row[column] != _NOTHING for row in rows[1:])
    ]
    widths = {column: max(len(row[column]) for row in rows) for column in kept}

    def excess() -> int:
        return 2 + sum(widths[column] for column in kept) + len(kept) - 1 - width

    for column in expendable:
        if excess() > 0 and column in kept:
            kept.remove(column)
    # What is still too wide is taken from the names.
    for column in left[:2]:
        if column in kept and excess() > 0:
            widths[column] = max(min(8, widths[column]), widths[column] - excess())

    def line(row: Sequence[str]) -> str:
        return (
            "  "
            + " ".join(
                clipped(row[column], widths[column]).ljust(widths[column])
                if column in left
                else row[column].rjust(widths[column])
                for column in kept
            ).rstrip()
        )

    yield line(headings)
    above = None
    for record, found in zip(records, body, strict=True):
        group = _group(record)
        if found and group != above:
            yield clipped(group, width)
            above = group
        yield from map(line, found)


def _comparison(records: Sequence[CaseRecord], verbosity: int, width: int) -> Iterator[str]:
    """What each verdict rests on; with -v every check that was made."""
    judged = [record for record in records if record.checks]
    if verbosity <= 0:
        # Where there was nothing to compare with, the verdict says all there is.
        nothing = (*UNCHECKED, Outcome.STORED, Outcome.NOT_STORED)
        judged = [record for record in judged if combine(record.checks) not in nothing]
    if not judged:
        return
    if verbosity > 0:
        every = [[_check_row(record, check) for check in record.checks] for record in judged]
        yield from _table(judged, _EVERY, _EVERY_LEFT, every, width, _EXPENDABLE)
        return
    rows = []
    for record in judged:
        check = deciding(record.checks)
        if check is not None:
            same = sum(each.verdict is check.verdict for each in record.checks)
            counted = f"{same} of {len(record.checks)}"
            rows.append([(*_check_row(record, check)[:-1], counted)])
    yield from _table(judged, _COMPARED, _COMPARED_LEFT, rows, width, _EXPENDABLE)


def _check_row(record: CaseRecord, check: Check) -> tuple[str, ...]:
    return (
        _variant(record),
        check.metric,
        value_text(check.old, check.unit, check.metric),
        value_text(check.new, check.unit, check.metric),
        change_text(check),
        interval_text(check) or _NOTHING,
        limit_text(check) or _NOTHING,
        str(check.verdict),
    )


def _group(record: CaseRecord) -> str:
    """The variants of a model stand together. A program has none: all programs do."""
    measured = record.measured
    name = "programs" if measured.variant == AS_EXPORTED else measured.model
    return f"{name} on {measured.device}"


def _variant(record: CaseRecord) -> str:
    if record.measured.variant == AS_EXPORTED:
        return record.id.replace(f"-{AS_EXPORTED}", "", 1)
    return record.id.removeprefix(f"{record.measured.model}-") or record.measured.variant


def _row(record: CaseRecord) -> tuple[str, ...]:
    measured = record.measured
    peak = (measured.peak_bytes or {}).get(measured.arm)
    return (
        _variant(record),
        covered(measured),
        coverage_by_work(measured),
        covered(measured, Arm.SME1),
        _latency(measured, Arm.OFF),
        _latency(measured, Arm.ON),
        _speedup(measured),
        _largest(measured),
        _NOTHING if peak is None else f"{peak / 1e6:.0f}",
        millions(instructions(measured, Arm.OFF)),
        millions(instructions(measured, Arm.SME1)),
        millions(instructions(measured, Arm.ON)),
        fewer(measured),
        _most_work(measured),
        str(combine(record.checks)) if record.checks else _NOTHING,
    )


def _latency(measured: CaseResult, arm: Arm) -> str:
    medians = (measured.medians_ns or {}).get(arm)
    return _four_digits(statistics.median(medians) / 1e6) if medians else _NOTHING


def _four_digits(value: float) -> str:
    """``1163``, ``298.4``, ``12.35``, ``0.912``."""
    places = 0 if value >= 1000 else 1 if value >= 100 else 2 if value >= 10 else 3
    return f"{value:.{places}f}"


def _speedup(measured: CaseResult) -> str:
    found = measured.speedup
    if found is None:
        return _NOTHING
    return estimate_text(found).replace(", ", ",")


def _largest(measured: CaseResult) -> str:
    """The category that takes most of the time now; nothing where time means nothing."""
    profile = measured.profiles.get(measured.arm)
    category = None if profile is None or measured.emulated else largest_category(profile)
    if profile is None or category is None:
        return _NOTHING
    share = profile.share(profile.category_ns[category])
    return f"{_SHORT.get(category, str(category))} {share:.0%}"


def _most_work(measured: CaseResult) -> str:
    """The category with most of the instructions."""
    found = largest_cost(measured)
    return _NOTHING if found is None else f"{_SHORT.get(found[0], str(found[0]))} {found[1]:.0%}"


# --- the findings ---------------------------------------------------------------------------------


def _findings(records: Sequence[CaseRecord], verbosity: int, width: int) -> Iterator[str]:
    say = partial(bullet, width=width)
    for record in records:
        if not record.measured.structures:
            # It could not be exported, and that is its only check.
            yield from (
                say(f"{clipped(record.id, width - 3)}: {check.message}") for check in record.checks
            )
    found = run_findings(records)
    of_model: Counter[str] = Counter()
    shown: list[RunFinding] = []
    for finding in found:
        of_model[finding.model] += 1
        if verbosity > 0 or (
            of_model[finding.model] <= _FINDINGS_PER_MODEL and len(shown) < MOST_FINDINGS
        ):
            shown.append(finding)
    for finding in shown:
        yield say(f"{clipped(finding.model, width - 3)}: {finding.text}")
        if verbosity > 0 and finding.remedy:
            yield say(finding.remedy, indent="    ")
    left = len(found) - len(shown)
    if left:
        yield say(f"{left} more with -v, and in report.md")
    yield from _references(records, width)
    yield from _unmeasured(records, width)
    yield from _precisions(records, verbosity, width)
    if any(record.measured.fingerprint.sme1 for record in records):
        yield say(f"{SME1_NOTE[0].lower()}{SME1_NOTE[1:-1]}".replace("`", ""))
    if any(record.measured.emulated for record in records):
        yield say(
            "the CPU was emulated: operators, kernels and outputs are exact, and no time is shown, "
            "since emulated time says nothing about hardware"
        )
    if any(record.measured.costs for record in records):
        yield say(f"Minst: a million instructions per inference; {LIMITS_OF_COST}")
    for record in records:
        for text in (instructions_per_token(record.measured), tokens_per_second(record.measured)):
            if text:
                yield say(f"{clipped(record.id, width - 3)}: {text}")
    for reason in sorted({record.measured.uncounted for record in records} - {""}):
        if any(record.measured.emulated for record in records):
            yield say(f"cost is not shown everywhere: {reason}")
    remembered = sum(len(record.remembered) for record in records)
    if remembered:
        yield say(
            f"{count(remembered, 'emulated run')} taken from the cache, made before with the same "
            "program, runner and emulator; --sme2-fresh makes them again"
        )
    if any(record.measured.weights.startswith("random") for record in records):
        times = any(not record.measured.emulated for record in records)
        what = "latency" if times else "structure"
        yield say(f"weights are random: {what} does not depend on them, accuracy does")


def _references(records: Sequence[CaseRecord], width: int) -> Iterator[str]:
    """What ``--against`` came to: where a case has no baseline, its verdict does not tell."""
    found: dict[str, list[Outcome]] = {}
    for record in records:
        for check in record.checks:
            reference = reference_of(check.metric)
            if reference is not None:
                found.setdefault(reference, []).append(check.verdict)
    for name, verdicts in found.items():
        wrong = Counter(verdict for verdict in verdicts if verdict is not Outcome.PASS)
        others = ", ".join(f"{number} {verdict}" for verdict, number in wrong.items())
        yield bullet(
            f"against {clipped(name, width - 40)}: {count(len(verdicts), 'check')}, "
            f"{others or 'all PASS'}",
            width=width,
        )


def _unmeasured(records: Sequence[CaseRecord], width: int) -> Iterator[str]:
    """What the device could not measure: green must not look like checked."""
    metrics: dict[str, dict[str, None]] = {}
    for record in records:
        for check in record.checks:
            if check.verdict is Outcome.NOT_MEASURED:
                metrics.setdefault(check.message, {})[check.metric] = None
    for reason, names in metrics.items():
        yield bullet(f"not measured: {', '.join(names)}: {reason}", width=width)


def _precisions(records: Sequence[CaseRecord], verbosity: int, width: int) -> Iterator[str]:
    """How well times were measured: of all cases in one sentence, with -v of each."""
    found: dict[str, Noise] = {}
    for record in records:
        entry = noise_of(record)
        if entry is not None:
            found[record.id] = entry
    if found and verbosity > 0:
        names = {name: clipped(name, width - 3) for name in found}
        yield from (bullet(f"{names[name]}: {entry}", width=width) for name, entry in found.items())
    elif found:
        yield bullet(overall(found), width=width)
