"""A comment for a pull request: the verdict in one line, and a small table. Pure.

The Markdown is what GitHub and GitLab share. The first line is a mark that nobody sees, by which a
workflow finds the comment again and replaces it.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

from pytest_sme2.report.text import code, document, prose, table
from pytest_sme2.report.versus_baseline import (
    change_text,
    count_cases,
    deciding,
    headline,
    interval_text,
    limit_text,
    value_text,
    worst_first,
)
from pytest_sme2.results import Check, Outcome
from pytest_sme2.session.run_directory import CaseRecord
from pytest_sme2.system.wording import count
from pytest_sme2.verdict.judging import FAILING, WARNING, combine

MARK = "<!-- pytest-sme2 -->"
# A character of no width after it makes it plain text.
_ALIVE = re.compile(r"@(?=\w)|:(?=//)|www(?=\.)|#(?=\d)", re.IGNORECASE)
MOST_CASES = 20
MOST_FAILURES = 5
_SIGNS = {**dict.fromkeys(FAILING, "❌"), **dict.fromkeys(WARNING, "⚠️"), Outcome.PASS: "✅"}
_SIGNS |= {Outcome.IMPROVED: "✅", Outcome.STORED: "✅"}


def comment_text(records: Sequence[CaseRecord]) -> str:
    """What to post about a run; failing cases first."""
    ranked = worst_first(records)
    lines = [MARK, f"**SME2: {_verdict(ranked)}**", ""]
    lines += table(
        ["case", "check", "baseline", "now", "change", "limit", "verdict"],
        [_row(record) for record in ranked[:MOST_CASES]],
    )
    left = len(ranked) - MOST_CASES
    if left > 0:
        lines += ["", f"{count(left, 'more case')} in report.md."]
    failed = [
        (record, check) for record in ranked for check in record.checks if check.verdict in FAILING
    ]
    if failed:
        lines += ["", "<details><summary>What failed</summary>", ""]
        # What is wrong on both arms is said once.
        told = list(dict.fromkeys(_failure(record, check) for record, check in failed))
        lines += told[:MOST_FAILURES]
        more = len(told) - MOST_FAILURES
        if more > 0:
            lines.append(f"- {count(more, 'more check')} in report.md")
        lines += ["", "</details>"]
    devices = dict.fromkeys(record.measured.fingerprint.target for record in records)
    if devices:
        notes = [f"Device: {', '.join(map(code, devices))}."]
        if any(record.measured.emulated for record in records):
            notes.append("Emulated: cost is executed instructions (Minst: a million), no time.")
        lines += ["", " ".join(notes)]
    return document(lines)


def _words(sentence: str) -> str:
    """A sentence in which nobody is mentioned and nothing is a link: names come from others."""
    return _ALIVE.sub("\\g<0>\u200b", prose(sentence))


def _verdict(ranked: Sequence[CaseRecord]) -> str:
    """``❌ 28x more instructions: `x.flip(-1)` at net.py:8 in toy-fp16 (1 failed, 2 passed)``."""
    if not ranked:
        return "nothing was measured"
    worst = ranked[0]
    outcome = combine(worst.checks) if worst.checks else None
    if outcome not in (*FAILING, *WARNING):
        return f"{_sign(outcome)} {count_cases(ranked)}"
    effect, where = headline(worst.checks)
    place = f": {_place(where)}" if where else ""
    return f"{_sign(outcome)} {_words(effect)}{place}, {code(worst.id)} ({count_cases(ranked)})"


def _place(where: str) -> str:
    return code(where.replace("`", ""))


def _sign(outcome: Outcome | None) -> str:
    return "❔" if outcome is None else _SIGNS.get(outcome, "❔")


def _row(record: CaseRecord) -> list[str]:
    check = deciding(record.checks)
    if check is None:
        return [code(record.id), "-", "-", "-", "-", "-", "-"]
    interval = interval_text(check)
    change = change_text(check) + (f" {interval}" if interval else "")
    return [
        code(record.id),
        _words(check.metric),
        value_text(check.old, check.unit, check.metric),
        value_text(check.new, check.unit, check.metric),
        _words(change),
        limit_text(check) or "-",
        f"{_sign(check.verdict)} {check.verdict}",
    ]


def _failure(record: CaseRecord, check: Check) -> str:
    metric = check.metric.removesuffix(" (on)").removesuffix(" (off)")
    place = f" {_place(check.where)}" if check.where else ""
    return f"- {code(record.id)}: **{_words(metric)}**:{place} {_words(check.message)}"
