"""The end of a run on a terminal: one table, and the findings worth a sentence. Pure: no colours.

The verdict is the last word of a row, so that the caller can colour it.
"""

from __future__ import annotations

import statistics
from collections import Counter
from collections.abc import Iterator, Sequence

from pytest_sme2.profile.compare import largest_category
from pytest_sme2.report.cost import (
    LIMITS_OF_COST,
    coverage_by_work,
    fewer,
    instructions,
    largest_cost,
    millions,
)
from pytest_sme2.report.findings import RunFinding, run_findings
from pytest_sme2.report.noise import Noise, noise_of, overall
from pytest_sme2.report.text import WIDTH, bullet, clipped
from pytest_sme2.results import Arm, CaseResult, Category, Outcome
from pytest_sme2.session.run_directory import CaseRecord
from pytest_sme2.verdict.judging import combine

_HEADINGS = (
    "variant", "SME2", "by work", "off ms", "on ms", "speedup", "most time", "MB", "off Minst",
    "on Minst", "fewer", "most work", "verdict",
)  # fmt: skip
_LEFT = (0, 6, 11, 12)
_NOTHING = "-"
_SHORT = {Category.DATA_MOVEMENT: "MOVE", Category.ELEMENTWISE: "ELEM"}
MOST_FINDINGS = 6
_FINDINGS_PER_MODEL = 3


def run_lines(records: Sequence[CaseRecord], verbosity: int = 0) -> list[str]:
    """The table of all cases and what there is to say about them.

    With a verbosity below 0 the table alone, below -1 nothing, above 0 every finding.
    """
    if not records or verbosity < -1:
        return []
    lines = [*_table(records)]
    if verbosity >= 0:
        lines += ["", *_findings(records, verbosity)]
    return lines


def split_verdict(line: str) -> tuple[str, Outcome | None]:
    """A row of the table, and the verdict that ends it; any other line as it is."""
    head, space, word = line.rpartition(" ")
    if space and word in Outcome.__members__:
        return head + space, Outcome(word)
    return line, None


# --- the table ------------------------------------------------------------------------------------


def _table(records: Sequence[CaseRecord]) -> Iterator[str]:
    rows = [_HEADINGS, *(_row(record) for record in records)]
    # A column in which nobody has anything to say, such as latency on an emulator, is left out.
    kept = [
        column
        for column in range(len(_HEADINGS))
        if any(row[column] != _NOTHING for row in rows[1:])
    ]
    widths = {column: max(len(row[column]) for row in rows) for column in kept}
    room = WIDTH - 2 - sum(widths[column] + 1 for column in kept if column)
    widths[0] = min(widths[0], max(room, 8))
    heading, *body = [
        " ".join(
            clipped(row[column], widths[column]).ljust(widths[column])
            if column in _LEFT
            else row[column].rjust(widths[column])
            for column in kept
        ).rstrip()
        for row in rows
    ]
    yield f"  {heading}"
    model = None
    for record, line in zip(records, body, strict=True):
        name = (record.measured.model, record.measured.fingerprint.target)
        if name != model:
            yield clipped(f"{name[0]} on {name[1]}", WIDTH)
            model = name
        yield f"  {line}"


def _row(record: CaseRecord) -> tuple[str, ...]:
    measured = record.measured
    coverage = measured.coverage
    peak = (measured.peak_bytes or {}).get(measured.arm)
    return (
        record.id.removeprefix(f"{measured.model}-") or measured.variant,
        _NOTHING if coverage is None else f"{coverage.sme2_operators}/{coverage.matrix_operators}",
        coverage_by_work(measured),
        _latency(measured, Arm.OFF),
        _latency(measured, Arm.ON),
        _speedup(measured),
        _largest(measured),
        _NOTHING if peak is None else f"{peak / 1e6:.0f}",
        millions(instructions(measured, Arm.OFF)),
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
    return f"{found.value:.2f}x [{found.low:.2f},{found.high:.2f}]"


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


def _findings(records: Sequence[CaseRecord], verbosity: int) -> Iterator[str]:
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
        yield bullet(f"{finding.model}: {finding.text}")
        if verbosity > 0 and finding.remedy:
            yield bullet(finding.remedy, indent="    ")
    left = len(found) - len(shown)
    if left:
        yield bullet(f"{left} more with -v, and in report.md")
    yield from _unmeasured(records)
    yield from _precisions(records, verbosity)
    if any(record.measured.emulated for record in records):
        yield bullet(
            "the CPU was emulated: operators, kernels and outputs are exact, and no time is shown, "
            "since emulated time says nothing about hardware"
        )
    if any(record.measured.costs for record in records):
        yield bullet(f"Minst: a million instructions per inference; {LIMITS_OF_COST}")
    for reason in sorted({record.measured.uncounted for record in records} - {""}):
        if any(record.measured.emulated for record in records):
            yield bullet(f"cost is not shown everywhere: {reason}")
    remembered = sum(len(record.remembered) for record in records)
    if remembered:
        yield bullet(
            f"{remembered} emulated runs were made before, with the same program, runner and "
            "emulator, and taken from the cache; --sme2-fresh makes them again"
        )
    if any(record.measured.weights.startswith("random") for record in records):
        times = any(not record.measured.emulated for record in records)
        what = "latency" if times else "structure"
        yield bullet(f"weights are random: {what} does not depend on them, accuracy does")


def _unmeasured(records: Sequence[CaseRecord]) -> Iterator[str]:
    """What the device could not measure: green must not look like checked."""
    metrics: dict[str, dict[str, None]] = {}
    for record in records:
        for check in record.checks:
            if check.verdict is Outcome.NOT_MEASURED:
                metrics.setdefault(check.message, {})[check.metric] = None
    for reason, names in metrics.items():
        yield bullet(f"not measured: {', '.join(names)}: {reason}")


def _precisions(records: Sequence[CaseRecord], verbosity: int) -> Iterator[str]:
    """How well times were measured: of all cases in one sentence, with -v of each."""
    found: dict[str, Noise] = {}
    for record in records:
        entry = noise_of(record)
        if entry is not None:
            found[record.id] = entry
    if found and verbosity > 0:
        yield from (bullet(f"{name}: {entry}") for name, entry in found.items())
    elif found:
        yield bullet(overall(found))
