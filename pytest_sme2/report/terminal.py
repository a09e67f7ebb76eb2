"""What a terminal shows: the end of a run, profiles, comparisons, numbers of threads. Pure.

The verdict is the last word of a row, so that the caller can colour it.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

from pytest_sme2.report.case_summary import cells, noise_text, notes
from pytest_sme2.report.cost import instructions_per_token, rest_text, tokens_per_second
from pytest_sme2.report.csv_files import breakdown
from pytest_sme2.report.findings import (
    Advice,
    comparison_findings,
    cost_text,
    next_step,
    profile_findings,
    remedy_text,
    run_findings,
    sme2_moves,
)
from pytest_sme2.report.text import (
    NOTHING,
    PROOFS,
    TOP,
    WIDTH,
    aligned,
    bullet,
    clipped,
    duration,
    percent,
    printable,
    times,
)
from pytest_sme2.report.versus_baseline import check_cells, deciding, failed_cases, summary
from pytest_sme2.results import (
    AS_EXPORTED,
    Arm,
    CaseResult,
    Change,
    Comparison,
    Frontier,
    FrontierCell,
    OperatorChange,
    Outcome,
    Profile,
    Ship,
)
from pytest_sme2.session.run_directory import CaseRecord
from pytest_sme2.system.wording import count
from pytest_sme2.timing.stats import centre_interval
from pytest_sme2.verdict.generation import sentence
from pytest_sme2.verdict.judging import FAILING, WARNING, estimate_text, reference_of
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
    lines = [clipped(name, WIDTH), heading, "", *_breakdown(profile, timed), ""]
    lines += [*_costliest(profile), ""] if timed else [bullet(UNTIMED)]
    return "\n".join([*lines, *map(bullet, profile_findings(profile, timed=timed))])


def spent(profile: Profile, ns: float) -> list[str]:
    return [duration(ns), percent(profile.share(ns))]


def _breakdown(profile: Profile, timed: bool) -> list[str]:
    """Categories with their kinds, or without ``timed`` their numbers alone."""
    titles = ["category", "operators", *["time", "share"] * timed]
    rows = [
        [
            f"  {clipped(kind, 30)}" if kind else name,
            str(number) if number else "",
            *spent(profile, ns) * timed,
        ]
        for name, kind, number, ns in breakdown(profile)
        if number or name == "total" or (timed and name == "overhead")
    ]
    return aligned([titles, *rows])


def _costliest(profile: Profile) -> list[str]:
    ranked = sorted(profile.operators, key=lambda member: -member.share)[:TOP]
    rows = [
        [
            clipped(member.label, 45),
            *spent(profile, member.time_ns),
            PROOFS[member.operator.proof] if member.operator.matrix else "",
        ]
        for member in ranked
    ]
    left = len(profile.operators) - len(ranked)
    more = [f"and {count(left, 'operator')} more"] if left else []
    return aligned([["operator", "time", "share", "SME2"], *rows]) + more


def comparison_text(comparison: Comparison, *, timed: bool = True) -> str:
    """Two profiles side by side, and what was found."""
    found = [*comparison_findings(comparison, timed=timed), *sme2_moves(comparison)]
    if not timed:
        return "\n".join(map(bullet, (UNTIMED, *(found or ["the same operators"]))))
    names = (clipped(comparison.before_name, 13), clipped(comparison.after_name, 13), "faster")
    ranked = sorted(comparison.operators, key=lambda change: -abs(change.delta_ns))[:TOP]
    parts = (*comparison.categories, comparison.overhead, comparison.end_to_end)
    blocks = {"": _parts(parts), "kind": _parts(comparison.kinds)}
    blocks["operators that changed most"] = [*map(_operator, ranked)]
    rows = [row for title, body in blocks.items() for row in ((title, *names), *body, [""] * 4)]
    return "\n".join([*aligned(rows), *map(bullet, found)])


def _parts(changes: Iterable[Change]) -> list[list[str]]:
    return [_compared(change.name, change.before_ns, change.after_ns) for change in changes]


def _operator(change: OperatorChange) -> list[str]:
    member = change.after or change.before
    sides = (None if side is None else side.time_ns for side in (change.before, change.after))
    return _compared(member.label if member else "", *sides)


def _compared(name: str, before: float | None, after: float | None) -> list[str]:
    told = ("-" if ns is None else duration(ns) for ns in (before, after))
    return [clipped(name, 37), *told, times(before / after if before and after else None)]


CHOSEN = "*"


def arm_word(arm: Arm, sme1: bool) -> str:
    return "NEON" if arm is Arm.OFF else "SME1" if sme1 else "SME2"


def cell_name(cell: FrontierCell, found: Frontier, sme1: bool) -> str:
    threads = count(cell.threads, "thread")
    return threads if found.alone else f"{arm_word(cell.arm, sme1)} with {threads}"


def decision_text(found: Frontier, sme1: bool = False) -> str:
    """The decision in one sentence."""
    best, other = found.cells[found.candidate], found.cells[found.reference]
    text = estimate_text(found.speedup)
    name, rival = (cell_name(cell, found, sme1) for cell in (best, other))
    of = f"the next best ({rival})"
    if not found.alone:
        of = f"your best {arm_word(other.arm, sme1)} ({count(other.threads, 'thread')})"
    if found.ship is Ship.CANDIDATE:
        return f"Ship {name}: {text} of {of}."
    if found.ship is Ship.REFERENCE:
        return f"{rival} is better: {name} is {text} of it."
    head = "No difference that matters" if found.ship is Ship.EITHER else "Too close to tell"
    return f"{head}: {name} is {text} of {of}."


def frontier_rows(measured: CaseResult, found: Frontier) -> tuple[list[str], list[list[str]]]:
    """The titles, and the rows with the best of each arm marked."""
    arms = list(dict.fromkeys(cell.arm for cell in found.cells))
    sme1 = measured.fingerprint.sme1
    names = ["time" if found.alone else arm_word(arm, sme1) for arm in arms]
    rows = []
    for threads in dict.fromkeys(cell.threads for cell in found.cells):
        members = {
            cell.arm: (index, cell)
            for index, cell in enumerate(found.cells)
            if cell.threads == threads
        }
        cores = dict.fromkeys(_cores(cell) for _, cell in members.values())
        taken = [_time(*members[arm], found.best) for arm in arms]
        rows.append([str(threads), *taken, " / ".join(cores)])
    return ["threads", *names, "cores"], rows


def _time(index: int, cell: FrontierCell, best: frozenset[int]) -> str:
    bounds = centre_interval(cell.medians_ns)
    text = duration(cell.median_ns)
    if bounds is not None:
        low, high = (duration(bound).split()[0] for bound in bounds)
        text += f" [{low}, {high}]"
    return f"{text} {CHOSEN}" if index in best else text


def _cores(cell: FrontierCell) -> str:
    slow = cell.efficiency_share
    return cell.cores if slow is None else f"{cell.cores} ({percent(slow)} on slow ones)".lstrip()


def frontier_lines(measured: CaseResult) -> Iterator[str]:
    """The table, then the decision, then what to know about it."""
    found = measured.frontier
    if found is None:
        return
    titles, rows = frontier_rows(measured, found)
    yield from aligned([titles, *rows])
    yield from frontier_notes(measured, found)


def frontier_notes(measured: CaseResult, found: Frontier) -> Iterator[str]:
    sme1 = measured.fingerprint.sme1
    yield decision_text(found, sme1)
    yield (
        f"{CHOSEN} is the best of its arm, chosen on one half of {count(found.rounds, 'round')}, "
        f"judged on the other; {found.speedup.confidence:.1%} confidence; {found.stopped_because}"
    )
    if found.unsure:
        names = ", ".join(cell_name(found.cells[index], found, sme1) for index in found.unsure)
        yield f"not told apart from the best of its arm: {names}; measure longer (--budget)"
    hot = found.throttled
    if hot:
        yield f"the device slowed itself down in {count(hot, 'round')} that counts"
    yield from found.notes


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
            blocks.append([f"{printable(record.id)}:", *_wrapped(record, width)])
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


def _wrapped(record: CaseRecord, width: int) -> Iterator[str]:
    """The table of threads as it is, sentences to the width."""
    for line in frontier_lines(record.measured):
        yield line if len(line) <= width else bullet(line, "", width)


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
