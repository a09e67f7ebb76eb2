"""What a terminal shows: the end of a run, profiles, comparisons, numbers of threads. Pure.

The verdict is the last word of a row, so that the caller can colour it.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

from pytest_sme2.profile.compare import compare
from pytest_sme2.report.case_summary import (
    breakdown_rows,
    cells,
    changed_rows,
    frontier_notes,
    frontier_rows,
    instructions_per_token,
    noise_text,
    notes,
    operator_rows,
    rest_text,
    tokens_per_second,
)
from pytest_sme2.report.findings import (
    Advice,
    comparison_findings,
    cost_text,
    next_step,
    profile_findings,
    remedy_text,
    run_findings,
)
from pytest_sme2.report.text import (
    NOTHING,
    WIDTH,
    aligned,
    bullet,
    clipped,
    duration,
    printable,
)
from pytest_sme2.report.versus_baseline import check_cells, deciding, failed_cases, summary
from pytest_sme2.results.case import CaseResult
from pytest_sme2.results.profile import Profile
from pytest_sme2.results.run import AS_EXPORTED
from pytest_sme2.results.timing import Outcome
from pytest_sme2.session.run_directory import CaseRecord
from pytest_sme2.system.wording import count
from pytest_sme2.verdict.generation import sentence
from pytest_sme2.verdict.judging import FAILING, WARNING, reference_of
from pytest_sme2.verdict.times import load_text

UNTIMED = "times of an emulated CPU say nothing about hardware and are left out"


def profile_text(name: str, profile: Profile, *, timed: bool = True) -> str:
    """The whole answer for one profile: breakdown, costliest operators, findings.

    Without ``timed`` nothing but counts: the times of an emulated CPU would mislead.
    """
    latency = profile.end_to_end
    heading = f"{count(profile.runs, 'run')} of {clipped(profile.method, 20)!r}"
    if timed:
        median, low, high = map(duration, (latency.median, latency.p5, latency.p95))
        heading += f": median {median}, 5-95 % {low} to {high}"
    lines = [clipped(name, WIDTH), heading, ""]
    lines += [*aligned(breakdown_rows({"time": profile}, timed=timed), WIDTH), ""]
    lines += [*aligned(operator_rows(profile), WIDTH), ""] if timed else [bullet(UNTIMED)]
    return "\n".join([*lines, *map(bullet, profile_findings(profile, timed=timed))])


def comparison_text(
    before: Profile, after: Profile, names: Sequence[str] = ("off", "on"), *, timed: bool = True
) -> str:
    """Two profiles side by side, and what was found."""
    comparison = compare(before, after, names=(names[0], names[1]))
    found = comparison_findings(comparison, timed=timed)
    first, second = (clipped(name, 13) for name in names)
    second += "'" * (first == second)
    parts = breakdown_rows({first: before, second: after}, timed=timed)
    changed = changed_rows(comparison, (first, second), timed=timed)
    lines = [*aligned(parts, WIDTH), "", *aligned(changed, WIDTH), ""]
    return "\n".join([*lines, *map(bullet, found if timed else [*found, UNTIMED])])


def frontier_lines(measured: CaseResult, width: int = WIDTH) -> Iterator[str]:
    """The table, then what to know about it, wrapped to the width."""
    if measured.frontier is not None:
        yield from aligned(frontier_rows(measured, measured.frontier))
        yield from (bullet(note, "", width) for note in frontier_notes(measured, measured.frontier))


_COMPARED = ("check", "baseline", "now", "change", "interval %", "limit", "verdict")
_LEFT = ("check", "most time", "the rest", "verdict")
# Which columns go first where the terminal is too narrow.
_EXPENDABLE = ("limit", "interval %", "memory")
_SHORT = (("DATA_MOVEMENT", "MOVE"), ("ELEMENTWISE", "ELEM"), (", ", ","))
MOST_FAILURES = 10
MOST_FINDINGS = 6
_MOST_RESTS = 2


def run_lines(
    records: Sequence[CaseRecord],
    verbosity: int = 0,
    width: int = WIDTH,
    *,
    typed: Sequence[str] = (),
    untold: Callable[[Sequence[str]], Sequence[str]] = list,
) -> list[str]:
    """What failed, the table of all cases, how those that changed compare, what costs most.

    With a verbosity below 0 the tables alone, below -1 nothing, above 0 every check and finding.
    ``typed`` is the command of a run that can store baselines. ``untold`` chooses of the sentences
    that explain what figures mean.
    """
    if not records or verbosity < -1:
        return []
    failed = failed_cases(records)
    rows = [(record, cells(record.measured, record.checks)) for record in records]
    blocks: list[Iterable[str]] = [
        _failures(failed),
        _table(tuple(rows[0][1]), [(each, [_short_cells(row)]) for each, row in rows], width),
        _comparison(records, verbosity, width),
    ]
    for record in records:
        if record.measured.frontier is not None:
            blocks.append([f"{printable(record.id)}:", *frontier_lines(record.measured, width)])
    sentences = [(one, sentence(g)) for one in records if (g := one.measured.generation)]
    blocks.append(f"{printable(record.id)}: {text}" for record, text in sentences if text)
    loads = [(record.id, load) for record in records if (load := record.measured.sustained)]
    blocks.append(bullet(f"{name}: {load_text(load)}", "", width) for name, load in loads)
    command = ""
    if verbosity >= 0:
        found, left = _findings_to_show(records, verbosity)
        known = [*_notes(records), *untold(notes(records))]
        if left:
            known.append(f"{count(left, 'more finding')} with -v, and in report.md")
        blocks.append(_finding_lines(records, found, verbosity, width))
        if known:
            blocks.append(["Good to know:", *(bullet(text, width=width) for text in known)])
        command = next_step(records, typed)
    lines = [line for block in map(list, blocks) if block for line in ("", *block)][1:]
    return [*lines, bullet(command, "Next: ", width)] if command else lines


def _failures(failed: Sequence[CaseRecord]) -> Iterator[str]:
    """One line each, which is not wrapped: a place in the model is there to be copied."""
    for record in failed[:MOST_FAILURES]:
        yield printable(f"{_name(record)}: {summary(record.checks)}")
    if len(failed) > MOST_FAILURES:
        yield f"and {len(failed) - MOST_FAILURES} more, in the table"


def split_verdict(line: str) -> tuple[str, Outcome | None]:
    """A row of the table, and the verdict that ends it; any other line as it is."""
    head, space, word = line.rpartition(" ")
    if space and word in Outcome.__members__:
        return head + space, Outcome(word)
    return line, None


def _table(
    headings: Sequence[str], body: Sequence[tuple[CaseRecord, Sequence[Sequence[str]]]], width: int
) -> Iterator[str]:
    """``body`` holds each record with its rows."""
    device = body[0][0].measured.device
    several = any(record.measured.device != device for record, _ in body)
    rows = [
        [_name(record), record.measured.device if several else NOTHING, *row]
        for record, found in body
        for row in found
    ]
    title = f"case on {device}"
    # The device has no column of its own where all share one.
    known = several or len(title) > max(len(row[0]) for row in rows)
    titles = ("case" if known else title, "device", *headings)
    # Leave out a column that is empty in all rows, such as latency on an emulator.
    kept = [column for column in range(len(titles)) if any(row[column] != NOTHING for row in rows)]
    widths = [max(len(row[place]) for row in (titles, *rows)) for place in range(len(titles))]

    def excess() -> int:
        return sum(widths[column] for column in kept) + len(kept) - 1 - width

    for title in _EXPENDABLE:
        if excess() > 0 and title in titles and titles.index(title) in kept:
            kept.remove(titles.index(title))
    # Names that were cut do not tell data types apart: they get a line of their own.
    apart = excess() > 0
    kept = kept[1:] if apart else kept
    # What is still too wide is taken from the device and the check.
    left = {0, 1, *(titles.index(title) for title in _LEFT if title in titles)}
    for column in left.intersection(kept[:2]):
        widths[column] = max(min(8, widths[column]), widths[column] - max(0, excess()))
    above = ""
    for row in (titles, *rows):
        if apart and row[0] != above:
            yield clipped(row[0], width)
        above = row[0]
        yield (
            " " * apart
            + " ".join(
                clipped(row[column], widths[column]).ljust(widths[column])
                if column in left
                else row[column].rjust(widths[column])
                for column in kept
            ).rstrip()
        )


def _comparison(records: Sequence[CaseRecord], verbosity: int, width: int) -> Iterator[str]:
    """What changed most in each case that did not just pass; with -v every check that was made."""
    body = []
    for record in records:
        most = deciding(record.checks)
        if most and (verbosity > 0 or most.verdict in (*FAILING, *WARNING, Outcome.IMPROVED)):
            checks = record.checks if verbosity > 0 else (most,)
            rows = [(each.metric, *check_cells(each), str(each.verdict)) for each in checks]
            body.append((record, rows))
    if body:
        yield from _table(_COMPARED, body, width)


def _name(record: CaseRecord) -> str:
    """A program has no variant."""
    return record.id.replace(f"-{AS_EXPORTED}", "", 1)


def _short_cells(row: Mapping[str, str]) -> list[str]:
    texts = [*row.values()]
    for long, short in _SHORT:
        texts = [text.replace(long, short) for text in texts]
    return texts


def _findings_to_show(
    records: Sequence[CaseRecord], verbosity: int
) -> tuple[list[tuple[str, Advice]], int]:
    """The costliest of each model, and how many are left out."""
    found = run_findings(records)
    costliest = dict(reversed(found))
    shown = [one for one in found if costliest[one[0]] is one[1]][:MOST_FINDINGS]
    return (found, 0) if verbosity > 0 else (shown, len(found) - len(shown))


def _finding_lines(
    records: Sequence[CaseRecord], found: Sequence[tuple[str, Advice]], verbosity: int, width: int
) -> Iterator[str]:
    """What could not be exported, and what costs most."""
    for record in records:
        if not record.measured.structures:
            # That it could not be exported is its only check.
            for check in record.checks:
                yield bullet(f"{_short(record.id)}: {check.message}", width=width)
    for record in records[:_MOST_RESTS]:
        text = rest_text(record.measured)
        if text and verbosity >= 0:
            yield bullet(f"{_short(record.id)}: {text}", width=width)
    for model, entry in found:
        yield bullet(f"{_short(model)}: {cost_text(entry)}", width=width)
        if verbosity > 0 and (remedy := remedy_text(entry)):
            yield bullet(remedy, "    ", width)


def _short(name: str) -> str:
    """A name that fits on a line, since a word is never cut."""
    return clipped(name, WIDTH - 3)


def _notes(records: Sequence[CaseRecord]) -> Iterator[str]:
    """What limits the figures, once for all of them."""
    yield from _references(records)
    yield from _unmeasured(records)
    if precision := noise_text(records):
        yield precision
    for record in records:
        for text in (instructions_per_token(record.measured), tokens_per_second(record.measured)):
            if text:
                yield f"{_short(record.id)}: {text}"
    for reason in sorted({record.measured.uncounted for record in records} - {""}):
        if any(record.measured.emulated for record in records):
            yield f"cost is not shown everywhere: {reason}"
    remembered = sum(len(record.remembered) for record in records)
    if remembered:
        yield (
            f"{count(remembered, 'emulated run')} taken from the cache, made before with the same "
            "program, runner and emulator; --sme2-fresh makes them again"
        )


def _references(records: Sequence[CaseRecord]) -> Iterator[str]:
    """What ``--against`` came to: where a case has no baseline, its verdict does not tell."""
    found: dict[str, Counter[Outcome]] = {}
    for check in (check for record in records for check in record.checks):
        reference = reference_of(check.metric)
        if reference is not None:
            found.setdefault(reference, Counter())[check.verdict] += 1
    for name, verdicts in found.items():
        checks = count(verdicts.total(), "check")
        del verdicts[Outcome.PASS]
        others = ", ".join(f"{number} {verdict}" for verdict, number in verdicts.items())
        yield f"against {clipped(name, 40)}: {checks}, {others or 'all PASS'}"


def _unmeasured(records: Sequence[CaseRecord]) -> Iterator[str]:
    """What the device could not measure: green must not look like checked."""
    metrics: dict[str, dict[str, None]] = {}
    for check in (check for record in records for check in record.checks):
        # A reference that was not named is not missed.
        if check.verdict is Outcome.NOT_MEASURED and check.metric != "latency against":
            metrics.setdefault(check.message, {})[check.metric] = None
    for reason, names in metrics.items():
        yield f"not measured: {', '.join(names)}: {reason}"
