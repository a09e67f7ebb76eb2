"""The end of a run on a terminal: what failed, one table, what costs most. Pure: no colours.

The verdict is the last word of a row, so that the caller can colour it.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence

from pytest_sme2.report.case_summary import noise_of, notes, overall, summarize
from pytest_sme2.report.cost import instructions_per_token, rest_text, tokens_per_second
from pytest_sme2.report.findings import RunFinding, next_step, run_findings
from pytest_sme2.report.tables import frontier_lines
from pytest_sme2.report.text import NOTHING, WIDTH, bullet, clipped, columns, padded, printable
from pytest_sme2.report.versus_baseline import check_cells, deciding, failed_cases, summary
from pytest_sme2.results import AS_EXPORTED, Outcome, Topic
from pytest_sme2.session.run_directory import CaseRecord
from pytest_sme2.system.wording import count
from pytest_sme2.verdict.budgets import load_text
from pytest_sme2.verdict.generation import sentence
from pytest_sme2.verdict.judging import FAILING, WARNING, reference_of
from pytest_sme2.verdict.times import unlike_kin

# Title, and which text of the summary stands below it.
_COLUMNS = {
    "on SME2": "sme2",
    "work": "work",
    "on SME1": "sme1",
    "SME2 off": "off",
    "SME2 on": "on",
    "speedup": "speedup",
    "most time": "largest",
    "memory": "memory",
    "Minst off": "counted_off",
    "Minst sme1": "counted_sme1",
    "Minst on": "counted_on",
    "instructions": "fewer",
    "the rest": "rest",
    "verdict": "verdict",
}
_COMPARED = ("check", "baseline", "now", "change", "interval %", "limit", "verdict")
_LEFT = ("check", "most time", "the rest", "verdict")
# Which columns go first where the terminal is too narrow.
_EXPENDABLE = ("limit", "interval %", "memory")
_SHORT = (("DATA_MOVEMENT", "MOVE"), ("ELEMENTWISE", "ELEM"), (", ", ","))
MOST_FAILURES = 10
MOST_FINDINGS = 6
_PER_MODEL = 1
_MOST_RESTS = 2
_PER_FAILED_MODEL = 3


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
    blocks: list[Iterable[str]] = [
        _failures(failed),
        _table(tuple(_COLUMNS), [(record, [_row(record)]) for record in records], width),
        _comparison(records, verbosity, width),
    ]
    for record in records:
        if record.measured.frontier is not None:
            blocks.append([f"{printable(record.id)}:", *_wrapped(record, width)])
    said = [(one, sentence(g)) for one in records if (g := one.measured.generation)]
    blocks.append(f"{printable(record.id)}: {text}" for record, text in said if text)
    loads = [(record.id, load) for record in records if (load := record.measured.sustained)]
    blocks.append(bullet(f"{name}: {load_text(load)}", "", width) for name, load in loads)
    command = ""
    if verbosity >= 0:
        found, left = _chosen(records, {record.measured.model for record in failed}, verbosity)
        known = [*_notes(records, verbosity), *untold(notes(records))]
        if left:
            known.append(f"{count(left, 'more finding')} with -v, and in report.md")
        blocks.append(_told(records, found, verbosity, width))
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
    known = several or len(title) > max(columns(row[0]) for row in rows)
    titles = ("case" if known else title, "device", *headings)
    # Leave out a column that is empty in all rows, such as latency on an emulator.
    kept = [column for column in range(len(titles)) if any(row[column] != NOTHING for row in rows)]
    widths = [max(columns(row[place]) for row in (titles, *rows)) for place in range(len(titles))]

    def excess() -> int:
        return sum(widths[column] for column in kept) + len(kept) - 1 - width

    for title in _EXPENDABLE:
        if excess() > 0 and title in titles and titles.index(title) in kept:
            kept.remove(titles.index(title))
    models = [NOTHING] * len(rows)
    if excess() > 0:
        # Names that were cut do not tell data types apart: the model gets a line of its own.
        models = [printable(record.measured.model) for record, found in body for _ in found]
        for cells, model in zip(rows, models, strict=True):
            cells[0] = f" {cells[0].removeprefix(model).removeprefix('-') or model}"
        widths[0] = max(columns(row[0]) for row in (titles, *rows))
    # What is still too wide is taken from the names.
    left = {0, 1, *(titles.index(title) for title in _LEFT if title in titles)}
    for column in left.intersection(kept[:3]):
        widths[column] = max(min(8, widths[column]), widths[column] - max(0, excess()))
    if len(titles[0]) > widths[0]:
        titles = ("case", *titles[1:])
    above = NOTHING
    for model, row in zip((NOTHING, *models), (titles, *rows), strict=True):
        if model != above:
            yield clipped(model, width)
            above = model
        yield " ".join(
            padded(clipped(row[column], widths[column]), widths[column])
            if column in left
            else row[column].rjust(widths[column])
            for column in kept
        ).rstrip()


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


def _row(record: CaseRecord) -> list[str]:
    found = summarize(record.measured, record.checks)
    texts = [str(getattr(found, name)) for name in _COLUMNS.values()]
    for long, short in _SHORT:
        texts = [text.replace(long, short) for text in texts]
    return texts


def _chosen(
    records: Sequence[CaseRecord], failed: set[str], verbosity: int
) -> tuple[list[RunFinding], int]:
    """The findings to show of each model, and how many are left out. The table has the coverage."""
    found = run_findings(records)
    if verbosity > 0:
        return found, 0
    of_model: Counter[str] = Counter()
    shown: list[RunFinding] = []
    others = [finding for finding in found if finding.topic is not Topic.COVERAGE]
    for finding in others:
        of_model[finding.model] += 1
        most = _PER_FAILED_MODEL if finding.model in failed else _PER_MODEL
        if of_model[finding.model] <= most and len(shown) < MOST_FINDINGS:
            shown.append(finding)
    return shown, len(others) - len(shown)


def _told(
    records: Sequence[CaseRecord], found: Sequence[RunFinding], verbosity: int, width: int
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
    for finding in found:
        yield bullet(f"{_short(finding.model)}: {finding.text}", width=width)
        if verbosity > 0 and finding.remedy:
            yield bullet(finding.remedy, "    ", width)


def _short(name: str) -> str:
    """A name that fits on a line, since a word is never cut."""
    return clipped(name, WIDTH - 3)


def _notes(records: Sequence[CaseRecord], verbosity: int) -> Iterator[str]:
    """What limits the figures, once for all of them."""
    yield from _references(records)
    yield from _unmeasured(records)
    yield from _precisions(records, verbosity)
    yield from unlike_kin(
        (record.measured.fingerprint.key, record.state["serial"], record.measured.yardstick_ns)
        for record in records
        if "serial" in record.state and record.measured.yardstick_ns
    )
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
    for record in records:
        if record.measured.weights.endswith("bfloat16"):
            ran = record.measured.variant.partition("@")[0]
            yield f"{clipped(record.id, 40)}: its weights are bfloat16, and run as {ran}"


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


def _precisions(records: Sequence[CaseRecord], verbosity: int) -> Iterator[str]:
    """How well times were measured: of all cases in one sentence, with -v of each."""
    found = {record.id: noise for record in records if (noise := noise_of(record)) is not None}
    if found and verbosity > 0:
        yield from (f"{_short(name)}: {noise}" for name, noise in found.items())
    elif found:
        yield overall(found)
