"""The text of a failed test: what got worse, by how much, what grew, and how to see it again.

Pure, and nothing is decided here: the checks come from ``verdict/``.
"""

from __future__ import annotations

import shlex
import textwrap
from collections.abc import Collection, Sequence
from itertools import groupby

from pytest_sme2.report.text import clipped, duration, printable
from pytest_sme2.report.versus_baseline import headline, summary, value_text
from pytest_sme2.results import Change, Check, Outcome, Verdict
from pytest_sme2.system.wording import count
from pytest_sme2.verdict.growth import Growth
from pytest_sme2.verdict.judging import FAILING

WIDTH = 100
MOST_LINES = 10
"""Of one list; the rest is counted."""
NEGLIGIBLE = 0.01
"""What grew by less than this part of end-to-end time is not worth a line."""


def reproduce(words: Sequence[str]) -> str:
    """The command that runs one test again, as it can be pasted into a shell."""
    return shlex.join(("pytest", *words))


def failure_text(
    verdict: Verdict,
    *,
    command: str,
    growth: Growth | None = None,
    shown: Collection[Outcome] = FAILING,
    width: int = WIDTH,
) -> str:
    """What a failed test says.

    Args:
        verdict: the checks and what they come to.
        command: how to see it again, as ``reproduce`` makes it.
        growth: where the time went, where times were measured.
        shown: the outcomes that are explained; the rest is counted.
        width: of the terminal.
    """
    explained = [check for check in verdict.checks if check.verdict in shown]
    # pytest's summary shows the first line only, and cuts it: what got worse comes first.
    case = f"{verdict.model}-{verdict.variant} on {verdict.target}: {verdict.outcome}"
    # It is not cut here: the place in the model is there to be copied.
    lines = [line for line in (printable(summary(explained)), clipped(case, width)) if line]
    # Both arms often say the same: that is told once, under the lines of both.
    for _, alike in groupby(explained, key=lambda each: (each.message, each.where, each.details)):
        lines += ["", *_check_lines(list(alike), width, headline(explained)[1])]
    if growth is not None:
        lines += _growth_lines(growth, width)
    others = len(verdict.checks) - len(explained)
    if others:
        lines += ["", f"{count(others, 'other check')}: {_summary(verdict.checks, shown)}."]
    # The command is kept whole, however long: it is there to be copied.
    lines += ["", f"Reproduce: {printable(command)}"]
    return "\n".join(lines)


def _summary(checks: Sequence[Check], shown: Collection[Outcome]) -> str:
    found = [check.verdict for check in checks if check.verdict not in shown]
    return ", ".join(f"{found.count(outcome)} {outcome}" for outcome in dict.fromkeys(found))


def _check_lines(alike: Sequence[Check], width: int, said: str) -> list[str]:
    lines = []
    for check in alike:
        head = f"{check.metric}: {check.verdict}"
        values = _values(check)
        lines += _wrapped(f"{head}  {values}" if values else head, width, "  ", "      ")
    check = alike[0]
    lines += _wrapped(check.message, width, "    ", "    ")
    if check.where not in ("", said):
        lines += _wrapped(f"In the model: {check.where}", width, "    ", "      ")
    for line in check.details[:MOST_LINES]:
        lines += _wrapped(line, width, "      ", "        ")
    if len(check.details) > MOST_LINES:
        lines.append(f"      and {len(check.details) - MOST_LINES} more")
    return lines


def _values(check: Check) -> str:
    """Old and new, the interval, and the limit; whatever of them there is."""
    parts = []
    if check.old is not None and check.new is not None:
        parts.append(f"{value_text(check.old, check.unit)} -> {value_text(check.new, check.unit)}")
    elif check.new is not None:
        parts.append(value_text(check.new, check.unit))
    if check.interval is not None:
        low, high = (_bound(bound, check.unit) for bound in check.interval)
        parts.append(f"[{low}, {high}]")
    if check.limit is not None:
        parts.append(f"limit {_limit(check)}")
    return ", ".join(parts)


def _bound(bound: float, unit: str) -> str:
    """The interval of a time is that of new over old: shown as a change."""
    return f"{(bound - 1) * 100:+.1f} %" if unit == "ns" else value_text(bound, unit)


def _limit(check: Check) -> str:
    limit = check.limit or 0.0
    return f"{limit * 100:+.1f} %" if check.unit == "ns" else value_text(limit, check.unit)


def _growth_lines(growth: Growth, width: int) -> list[str]:
    since = printable(growth.since)
    lines = []
    if growth.structure:
        lines += ["", f"  Operators added (+) or removed (-) since {since}:"]
        lines += [f"    {clipped(line, width - 4)}" for line in growth.structure[:MOST_LINES]]
        if len(growth.structure) > MOST_LINES:
            lines.append(f"    and {len(growth.structure) - MOST_LINES} more")
    least = NEGLIGIBLE * max(growth.end_to_end.before_ns, growth.end_to_end.after_ns)
    sections = (("Categories", growth.categories), ("Operators", growth.operators))
    named = False
    for title, changes in sections:
        grown = sorted(
            (change for change in changes if change.delta_ns > least),
            key=lambda change: -change.delta_ns,
        )
        if grown:
            named = True
            lines += ["", f"  {title} that take longer since {since} (traced runs):"]
            lines += [_growth_line(change, width) for change in grown[:MOST_LINES]]
            if len(grown) > MOST_LINES:
                lines.append(f"    and {len(grown) - MOST_LINES} more")
    if not named:
        lines += ["", f"  No operator takes significantly longer since {since} (traced runs)."]
    return lines


def _growth_line(change: Change, width: int) -> str:
    amounts = (
        f"{duration(change.before_ns)} -> {duration(change.after_ns)}, +{duration(change.delta_ns)}"
    )
    part = change.delta_ns / change.before_ns if change.before_ns else None
    amounts += " (new)" if part is None else f" ({part * 100:+.1f} %)"
    name = clipped(change.name, max(20, width - 4 - 2 - len(amounts)))
    return f"    {name}  {amounts}"


def _wrapped(text: str, width: int, first: str, rest: str) -> list[str]:
    return textwrap.wrap(
        printable(text),
        width,
        initial_indent=first,
        subsequent_indent=rest,
        break_long_words=False,  # a path that is cut cannot be copied
        break_on_hyphens=False,
    )
