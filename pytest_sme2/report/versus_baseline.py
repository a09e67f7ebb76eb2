"""How a case compares with its baseline: the largest effect, and every change. Pure.

What a failed test says, what ``--update-baselines`` stored, and what to post on a pull request.
That is JSON, not Markdown: who posts it has a token, and trusts nothing that a branch wrote;
``docs/ci/post_comment.py`` makes the Markdown of it.
"""

from __future__ import annotations

import math
import re
import shlex
from collections import Counter
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass

from pytest_sme2.report.text import WIDTH as TERMINAL
from pytest_sme2.report.text import (
    bullet,
    clipped,
    duration,
    few,
    json_text,
    percent,
    printable,
    times,
)
from pytest_sme2.results.case import BaselineChange, CaseResult, Check
from pytest_sme2.results.profile import Change
from pytest_sme2.results.timing import Outcome
from pytest_sme2.session.run_directory import CaseRecord
from pytest_sme2.system.wording import as_given, count, some_of
from pytest_sme2.verdict.judging import (
    FAILING,
    PASSING,
    SURE,
    UPDATE_HINT,
    WARNING,
    combine,
    reference_of,
)
from pytest_sme2.verdict.structure import Growth

# Of checks with the same verdict, the one a reader asks for first.
_FIRST = (
    "latency against",
    "latency",
    "cost",
    "prefill cost",
    "decode cost",
    "speedup",
    "SME2 coverage",
    "operators",
    "evidence",
    "kernels",
)
# Values of these are sums of many small parts: show a change as a part of the whole.
_RELATIVE = ("ns", "bytes", "ratio")
# How more and less of it are felt.
_FELT = {
    "latency": ("slower", "faster"),
    "cost": ("more instructions", "fewer instructions"),
    "prefill cost": (
        "more instructions per token of the prompt",
        "fewer instructions per token of the prompt",
    ),
    "decode cost": ("more instructions per new token", "fewer instructions per new token"),
    "load time": ("slower to load", "faster to load"),
    "peak memory": ("more memory", "less memory"),
    "program size": ("larger program", "smaller program"),
}
_FACTOR = 2.0
"""Growth from here on is shown as a multiple, not in percent."""


STATES = {"failed": FAILING, "warned": WARNING, "passed": PASSING}


def outcome_of(checks: Sequence[Check]) -> Outcome | None:
    """What they come to; None where nothing was checked."""
    return combine(checks) if checks else None


def count_cases(records: Sequence[CaseRecord]) -> dict[str, int]:
    """How many cases failed, warned or passed; one without a comparison was not checked."""
    found = [outcome_of(record.checks) for record in records]
    counted = {word: sum(each in members for each in found) for word, members in STATES.items()}
    return {**counted, "not checked": len(found) - sum(counted.values())}


def worst_first(records: Sequence[CaseRecord]) -> list[CaseRecord]:
    """Failed, the largest effect first, then warned, then the rest in the given order."""

    def rank(record: CaseRecord) -> tuple[int, float]:
        check = deciding(record.checks)
        if check is None or check.verdict not in FAILING:
            return 1 if check is not None and check.verdict in WARNING else 2, 0.0
        if check.metric.startswith("outputs"):
            return 0, -math.inf
        return 0, -check.new / check.old if check.old and check.new else 0.0

    return sorted(records, key=rank)


def failed_cases(records: Sequence[CaseRecord]) -> list[CaseRecord]:
    """The largest effect first."""
    return [record for record in worst_first(records) if outcome_of(record.checks) in FAILING]


def deciding(checks: Sequence[Check]) -> Check | None:
    """The check with the largest effect among those that decide the verdict; None of no checks."""
    if not checks:
        return None
    outcome = combine(checks)
    equal = SURE if outcome in SURE else (outcome,)
    return min((check for check in checks if check.verdict in equal), key=_order)


def _order(check: Check) -> tuple[bool, bool, int, bool]:
    place = next(
        (number for number, name in enumerate(_FIRST) if check.metric.startswith(name)), len(_FIRST)
    )
    # A wrong answer is worse than a slow one. What was compared says more than what was only
    # looked at; SME2 on comes before off.
    return (
        not (check.metric.startswith("outputs") and check.verdict in FAILING),
        check.old is None,
        place,
        "(off" in check.metric,
    )


def _is_cost(metric: str) -> bool:
    """Of an inference, or of a phase of a generation."""
    return "cost" in metric.split()


def value_text(value: float | None, unit: str, metric: str = "") -> str:
    """``12.345 ms``, ``1.20 MB``, ``1.85x``, ``43.0 %``, ``741,587``; a dash for nothing."""
    if value is None:
        return "-"
    if unit in ("ns", "ms"):
        return duration(value if unit == "ns" else value * 1e6)
    if unit == "bytes":
        return f"{value / 1e6:.2f} MB"
    if unit == "ratio":
        return times(value)
    if unit == "share":
        # A small value stands beside a limit that may be as small.
        return percent(value) if not value or abs(value) >= 0.001 else f"{value * 100:.2g} %"
    if _is_cost(metric):
        return f"{value / 1e6:.3f} Minst" if value >= 1000 else f"{value:g}"
    # From here on `g` would round, and then change to powers of ten.
    return f"{value:,.0f}" if abs(value) >= 10_000 else f"{value:g}"


def change_text(check: Check) -> str:
    """``+11.5 %``, ``+3`` or ``+2.1 points``; a dash where nothing was compared."""
    old, new = check.old, check.new
    if old is None or new is None:
        return "-"
    if check.unit == "share":
        text = f"{(new - old) * 100:+.1f}"
        return f"{text} points" if float(text) else "0"
    if old and (check.unit in _RELATIVE or _is_cost(check.metric)):
        # Two digits of what is counted, one of what is measured; never "-0.0".
        digits = 2 if _is_cost(check.metric) else 1
        text = f"{(new / old - 1) * 100:+.{digits}f}"
        return f"{text if float(text) else f'{0:.{digits}f}'} %"
    difference = new - old
    return f"{difference:+g}" if difference else "0"


def interval_text(check: Check) -> str:
    """The interval of the change: ``[+10.2, +12.9]``, in percent; empty where there is none."""
    if check.interval is None or check.old is None:
        return ""
    low, high = check.interval
    if check.unit == "ns":  # already new over old
        low, high = low - 1, high - 1
    elif check.unit == "ratio" and check.old:
        low, high = low / check.old - 1, high / check.old - 1
    else:
        return ""
    return f"[{low * 100:+.1f}, {high * 100:+.1f}]"


def limit_text(check: Check) -> str:
    """``2 %`` of a time, as it was allowed; the value itself of what has no percentage."""
    limit = check.limit
    if limit is None or (check.unit in ("count", "share") and limit == check.old):
        return ""
    if check.unit == "ns":
        return f"{as_given(limit)} %"
    if check.old and (check.unit == "bytes" or _is_cost(check.metric)):
        return f"{(limit / check.old - 1) * 100:.3g} %"
    if check.unit == "share" and check.old is not None:
        return f"{(limit - check.old) * 100:+.3g} points"
    if check.unit == "share":
        return f"{as_given(limit)} %"
    return value_text(limit, check.unit, check.metric)


def check_cells(check: Check) -> tuple[str, ...]:
    """Old, new, the change, its interval and the limit; a dash for what there is not."""
    old, new = (value_text(value, check.unit, check.metric) for value in (check.old, check.new))
    rest = (change_text(check), interval_text(check), limit_text(check))
    return old, new, *(text or "-" for text in rest)


def effect(check: Check) -> str:
    """One check in a few words, as a person feels it: ``28x more instructions``."""
    change, limit = change_text(check), limit_text(check)
    felt = next((words for name, words in _FELT.items() if check.metric.startswith(name)), None)
    if check.metric.startswith("outputs") and check.verdict in FAILING:
        how = check.details[0].partition(": ")[2] if check.details else check.message
        return f"wrong {check.metric}: {how.removesuffix('.')}"
    if felt is not None and check.old and check.new and check.new != check.old:
        arm = " with SME2 off" * ("(off)" in check.metric)
        reference = reference_of(check.metric)
        ratio = check.new / check.old
        text = f"{_part(ratio)} {felt[ratio < 1]}{arm}{f' than {reference}' if reference else ''}"
        within = check.unit == "count" and check.limit is not None and check.new <= check.limit
        if within and ratio > 1 and check.verdict is Outcome.REGRESSED:
            # Work that moved from some operators to others.
            return f"{text} in all, but operators grew by more than the limit of {limit}"
        return f"{text}, limit {limit}" if limit and ratio < _FACTOR else text
    if change == "-" and (check.new is None or not limit):
        sentence = check.message.partition(". ")[0].removesuffix(".")
        return ": ".join(filter(None, (f"{check.metric} {check.verdict}", sentence)))
    if change == "-":
        text = f"{check.metric} {value_text(check.new, check.unit, check.metric)}"
    elif check.unit == "share":
        text = f"{check.metric} {change}"
    else:
        text = f"{check.metric} {' -> '.join(check_cells(check)[:2])}"
    return f"{text}, limit {limit}" if limit else text


def _part(ratio: float) -> str:
    """``28x``, ``2.3x``; ``11.5 %`` of what is less than twice as much."""
    if ratio < _FACTOR:
        return f"{abs(ratio - 1) * 100:.3g} %"
    return f"{ratio:.0f}x" if ratio >= 10 else f"{ratio:.1f}x"


def headline(checks: Sequence[Check]) -> tuple[str, str]:
    """The largest effect, and what it is about in the model, where that is known."""
    largest = deciding(checks)
    if largest is None:
        return "", ""
    failed = [largest, *(check for check in checks if check.verdict in FAILING)]
    return effect(largest), next(filter(None, map(cause_text, failed)), "")


def cause_text(check: Check) -> str:
    """``48 operators added: `self.head(x)` at net.py:33``."""
    return ": ".join(filter(None, (check.cause, check.where)))


def summary(checks: Sequence[Check]) -> str:
    """The largest effect, its place, and how many more checks failed."""
    text = ": ".join(filter(None, headline(checks)))
    failed = [check for check in checks if check.verdict in FAILING]
    others = {*map(_family, failed)} - {*map(_family, filter(None, [deciding(checks)]))}
    return text + (f"; {count(len(others), 'more check')} failed" if failed and others else "")


WIDTH = 100
MOST_LINES = 8
"""Of one list; the rest is counted."""
NEGLIGIBLE = 0.01
"""What grew by less than this part of end-to-end time is not worth a line."""
_ARM = re.compile(r" \((on|off|sme1)\)")


def failure_text(
    measured: CaseResult,
    checks: Sequence[Check],
    *,
    arguments: Sequence[str] = (),
    growth: Growth | None = None,
    shown: Collection[Outcome] = FAILING,
    width: int = WIDTH,
    whole: bool = False,
) -> str:
    """What a failed test says: checks with the outcomes ``shown`` are explained, others counted.

    ``arguments`` are those of the pytest that runs it again; ``growth`` is where the time went.
    It is some twenty lines, or ``whole``.
    """
    explained = [check for check in checks if check.verdict in shown]
    name = f"{measured.model}-{measured.variant}"
    # pytest's summary shows the first line only, and cuts it: what got worse comes first.
    case = f"{name} on {measured.fingerprint.target}: {combine(checks)}"
    # It is not cut here: the place in the model is there to be copied.
    lines = [line for line in (printable(summary(explained)), clipped(case, width)) if line]
    first, place = deciding(explained), headline(explained)[1]
    lines += [""] if explained else []
    told: set[tuple[str, ...]] = {()}
    left_out: dict[str, None] = {}
    # What both arms say is said once.
    for check in sorted(explained, key=lambda each: each is not first):
        full = (whole or check is first) and (check.message, *check.details) not in told
        lines += _check_lines(check, width, place, full=full)
        if full:
            told |= {(check.message, *check.details), check.details}
        elif check.details not in told:
            left_out[_family(check)] = None
    if growth is not None:
        lines += _growth_lines(growth, width)
    closing = []
    others = Counter(check.verdict for check in checks if check.verdict not in shown)
    if others:
        counted = ", ".join(f"{number} {outcome}" for outcome, number in others.items())
        closing.append(f"{count(others.total(), 'other check')}: {counted}.")
    if left_out:
        closing.append(f"With -v also the details of: {', '.join(left_out)}.")
    if any(check.message.endswith(UPDATE_HINT) for check in explained):
        closing.append(UPDATE_HINT)
    lines += ["", bullet(" ".join(closing), "", width)] if closing else [""]
    # The command is kept whole, however long: it is there to be copied.
    return "\n".join([*lines, f"Reproduce: {printable(shlex.join(('pytest', *arguments)))}"])


def _family(check: Check) -> str:
    """Its metric without the arm."""
    return _ARM.sub("", check.metric)


def _check_lines(check: Check, width: int, place: str, *, full: bool) -> Iterator[str]:
    """Its values, or why there are none; in full also what it means and where."""
    why = check.message.removesuffix(UPDATE_HINT).rstrip()
    told = _values(check) if full or None not in (check.old, check.new) else why
    head = "  ".join(filter(None, (f"{check.metric}: {check.verdict}", told)))
    yield bullet(head, "  ", width, hang=4)
    if full:
        yield bullet(why, "    ", width)
        if (cause := cause_text(check)) not in ("", place):
            yield bullet(f"In the model: {cause}", "    ", width, hang=2)
        details = [bullet(line, "      ", width, hang=2) for line in check.details]
        yield from few(details, MOST_LINES, "      ")


def _values(check: Check) -> str:
    """Old and new, the interval of the change, and the limit; whatever of them there is."""
    if check.new is None:
        return ""
    old, new, _, interval, limit = check_cells(check)
    told = [" -> ".join(each for each in (old, new) if each != "-")]
    told += [f"{interval} %"] if interval != "-" else []
    told += [f"limit {limit}"] if limit != "-" else []
    return ", ".join(told)


def _growth_lines(growth: Growth, width: int) -> list[str]:
    since = printable(growth.since)
    least = NEGLIGIBLE * max(growth.end_to_end.before_ns, growth.end_to_end.after_ns)

    ranked = sorted(growth.operators, key=lambda change: -change.delta_ns)
    operators = [_growth_text(change) for change in ranked if change.delta_ns > least]
    blocks = {
        f"Operators added (+) or removed (-) since {since}:": growth.structure,
        f"Operators that take longer since {since} (traced runs):": operators,
    }
    lines = []
    for title, told in blocks.items():
        named = [bullet(each, "    ", width, hang=2) for each in told]
        lines += ["", f"  {title}", *few(named, MOST_LINES, "    ")] if named else []
    if not operators:
        lines += ["", f"  No operator takes significantly longer since {since} (traced runs)."]
    return lines


def _growth_text(change: Change) -> str:
    before, after, more = map(duration, (change.before_ns, change.after_ns, change.delta_ns))
    part = f"{change.delta_ns / change.before_ns * 100:+.1f} %" if change.before_ns else "new"
    return f"{change.name}  {before} -> {after}, +{more} ({part})"


MOST_KINDS = 8
MOST_NAMED = 6


@dataclass(frozen=True)
class Update:
    """One case whose baseline was brought up to date."""

    case: str
    path: str
    changes: tuple[BaselineChange, ...]
    new: bool
    """Whether there was no baseline before."""

    @property
    def state(self) -> str:
        return "new" if self.new else "changed" if self.changes else "unchanged"


def update_lines(
    updates: Sequence[Update],
    root: str,
    verbosity: int = 0,
    width: int = TERMINAL,
    *,
    dry_run: bool = False,
) -> list[str]:
    """What was stored, or would be in a dry run: how many, and the changes that most cases share;
    with -v every value, old and new.
    """
    if not updates:
        return []
    cases: dict[str, list[str]] = {"new": [], "changed": [], "unchanged": []}
    for update in updates:
        cases[update.state].append(update.case)
    counted = ", ".join(f"{len(names)} {state}" for state, names in cases.items() if names)
    del cases["unchanged"]
    lines = [f"{state}: {some_of(names, MOST_NAMED)}" for state, names in cases.items() if names]
    shared = Counter(each.what for one in updates if not one.new for each in one.changes)
    kinds = [f"{count(number, 'case')}: {what}" for what, number in shared.most_common()]
    lines += few(kinds, MOST_KINDS)
    if verbosity > 0:
        for update in updates:
            lines += [f"{update.case}: {update.state} ({update.path})"]
            lines += [f"  {each.what}: {each.old} → {each.new}" for each in update.changes]
    else:
        lines += ["Every value, old and new, is shown with -v."] * any(cases.values())
    if dry_run:
        lines.append("--update-baselines=dry: no baseline was written.")
    elif cases["new"] or cases["changed"]:
        lines.append("Commit the files.")
    head = bullet(f"baselines: {counted}, in {root}", "", width)
    # With -v nothing is wrapped: paths are there to be copied.
    return [head, *(f"  {line}" if verbosity > 0 else bullet(line, "  ", width) for line in lines)]


# As post_comment.py has it.
COMMENT_SCHEMA = 1
MOST_CASES = 20
MOST_FAILURES = 5


def comment_json(records: Sequence[CaseRecord]) -> str:
    """What to post about a run; failing cases first."""
    ranked = worst_first(records)
    # What is wrong on both arms is said once.
    told = {
        tuple(failure.items()): failure
        for record in ranked
        for check in record.checks
        if check.verdict in FAILING
        for failure in [_failure(record, check)]
    }
    document = {
        "schema": COMMENT_SCHEMA,
        "counts": count_cases(records),
        "worst": _worst(ranked[0]) if ranked else None,
        "rows": [_row(record) for record in ranked[:MOST_CASES]],
        "failures": [*told.values()][:MOST_FAILURES],
        "more_failures": max(len(told) - MOST_FAILURES, 0),
        "devices": [*dict.fromkeys(record.measured.fingerprint.target for record in records)],
        "emulated": any(record.measured.emulated for record in records),
    }
    return json_text(document)


def _worst(record: CaseRecord) -> dict[str, str] | None:
    """``28x more instructions``, where, and in which case; None where all is well."""
    if _state(outcome_of(record.checks)) not in ("failed", "warned"):
        return None
    effect, where = headline(record.checks)
    return {"effect": effect, "place": where.replace("`", ""), "case": record.id}


def _state(outcome: Outcome | None) -> str:
    return next((state for state, members in STATES.items() if outcome in members), "unknown")


def _row(record: CaseRecord) -> dict[str, str]:
    check = deciding(record.checks)
    names = ("baseline", "now", "change", "interval", "limit")
    cells = ("-",) * len(names) if check is None else check_cells(check)
    return {
        "case": record.id,
        "check": "-" if check is None else check.metric,
        **dict(zip(names, cells, strict=True)),
        "verdict": "-" if check is None else str(check.verdict),
        "state": _state(None if check is None else check.verdict),
    }


def _failure(record: CaseRecord, check: Check) -> dict[str, str]:
    return {
        "case": record.id,
        "check": check.metric.removesuffix(" (on)").removesuffix(" (off)"),
        "place": check.where.replace("`", ""),
        "message": check.message,
    }
