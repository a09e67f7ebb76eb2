"""``sme2 history``: what changed over many runs, and whether that is too much."""

from __future__ import annotations

import argparse
import fnmatch
import re
import sys
from collections.abc import Iterator, Sequence

from pytest_sme2.cli.options import Arguments, show
from pytest_sme2.errors import UsageError
from pytest_sme2.report.history import HistoryRecord, read_history
from pytest_sme2.report.history_series import Change, Series, all_series
from pytest_sme2.report.html import history_page
from pytest_sme2.session.settings import parse_report
from pytest_sme2.system.files import write_text
from pytest_sme2.system.processes import COMMIT_DIGITS
from pytest_sme2.system.wording import count
from pytest_sme2.verdict.limits import parse_fraction

EXAMPLE = "sme2 history history --case 'toy_cnn*' --html history.html"
ARGUMENTS: Arguments = {
    "folder DIR": "the folder that pytest --sme2-history DIR writes to",
    "--case PATTERN": "only these cases, as in 'toy_cnn*'",
    "--device PATTERN": "only these devices",
    "--figure PATTERN": "only these figures, as in 'latency*'",
    "--since COMMIT": 'only what changed after this one, as "$(git rev-parse v1.0)"',
    "--window N": "only what changed in the last N runs",
    "--fail-on PERCENT": "exit with 1 where all of that made a figure worse by more",
    "--html FILE": "write a page with a chart of each case to this file",
    "--json": "print all changes as JSON",
}
# More series than this are told by what happened to them.
_FEW = 6
_MOST_ROWS = 40


def run(arguments: argparse.Namespace) -> int:
    html = None if arguments.html is None else parse_report(str(arguments.html))
    window = arguments.window
    if window is not None and window < 2:
        raise UsageError("--window takes a number of runs from 2 on.")
    records = [
        record
        for record in read_history(arguments.folder)
        if fnmatch.fnmatchcase(record.case, arguments.case or "*")
        and fnmatch.fnmatchcase(record.device, arguments.device or "*")
    ]
    if not records:
        raise UsageError(f"{arguments.folder} has no record of such a case.")
    moment = "" if arguments.since is None else _moment(records, arguments.since)
    every = all_series(records, arguments.figure or "*")
    worse = list(_failures(arguments.fail_on, every, moment, window))
    series = [each.after(moment, window) for each in every if each.tracks]
    if html is not None:
        write_text(html, history_page(series))
    document = {"changes": [_document(*found) for found in _changes(series)], "failed": worse}
    show(arguments, document, history_lines(series))
    for line in worse:
        print(f"sme2: {line}", file=sys.stderr)
    return 1 if worse else 0


def _failures(
    limit: str | None, series: Sequence[Series], moment: str, window: int | None
) -> Iterator[str]:
    try:
        yield from () if limit is None else worsened(series, parse_fraction(limit), moment, window)
    except ValueError as error:
        raise UsageError(f"--fail-on: {error}.") from error


def _moment(records: Sequence[HistoryRecord], text: str) -> str:
    """When the commit was first measured, which git knows by other names as well."""
    name = text[:COMMIT_DIGITS] if re.fullmatch("[0-9a-f]{40,64}", text) else text
    for record in records:
        if (record.commit or "").startswith(name):
            return record.recorded
    raise UsageError(
        f"--since: no run is of the commit {text}. git knows what a tag or a branch is: "
        '--since "$(git rev-parse TAG)".'
    )


def worsened(
    series: Sequence[Series], limit: float, moment: str = "", window: int | None = None
) -> Iterator[str]:
    """What got worse by more than the limit, whatever of its interval is true."""
    for each in series:
        for track in each.tracks:
            start = track.since(moment, window)
            part = track.worse_by(start)
            if part is not None and part[0] > limit:
                told = " to ".join(dict.fromkeys(f"{end:.2%}" for end in part))
                runs = count(len(track.points) - start, "run")
                yield (
                    f"{each.name}: {track.figure.name} got {told} worse over {runs}; "
                    f"{limit:.2%} is allowed (--fail-on)."
                )


def _changes(series: Sequence[Series]) -> list[tuple[Series, Change]]:
    """The largest first."""
    found = [(each, change) for each in series for change in each.changes]
    return sorted(found, key=lambda found: -found[1].effect)


def _document(series: Series, change: Change) -> dict[str, object]:
    return {
        "series": series.name,
        "case": series.runs[0].case,
        "device": series.runs[0].device,
        "figure": change.figure.name,
        "kind": "drift" if change.drift else "step",
        "machine": change.machine,
        "commits": [run.commit or run.recorded for run in (change.before, change.after)],
        "old": change.old,
        "new": change.new,
        "interval": change.interval,
        "effect": {"bad": "worse", "good": "better", "weak": "other"}[change.tone],
    }


def history_lines(series: Sequence[Series]) -> Iterator[str]:
    """Few cases figure by figure; of many, what changed between the same commits in one line."""
    if len(series) <= _FEW:
        for each in series:
            yield each.title
            for track in each.tracks:
                yield f"  {track.figure.name}: {track.summary}"
                yield from (f"    {one.format():>8}  {one.where()}" for one in track.changes)
        return
    groups: dict[str, list[tuple[Series, Change]]] = {}
    for found in _changes(series):
        groups.setdefault(found[1].where(), []).append(found)
    yield f"{count(len(series), 'case')}: {count(len(groups), 'change')}"
    for where, members in list(groups.items())[:_MOST_ROWS]:
        (first, change), cases = members[0], {each.name for each, _ in members}
        told = first.name if len(cases) == 1 else f"{len(cases)} cases, most of {first.name}"
        yield f"  {change.format():>8}  {where}; {change.figure.name} of {told}"
    if len(groups) > _MOST_ROWS:
        yield f"  {len(groups) - _MOST_ROWS} are smaller: --case chooses, --json has all"
