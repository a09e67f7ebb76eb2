"""``sme2 history``: what changed over many runs, and whether that is too much."""

from __future__ import annotations

import argparse
import fnmatch
import sys
from collections.abc import Iterator, Sequence

from pytest_sme2.cli.options import Arguments, show
from pytest_sme2.errors import UsageError
from pytest_sme2.report.history import Change, HistoryRecord, Series, all_series, read_history
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
# Of more series than these, only what changed is told.
_FEW = 6


def run(arguments: argparse.Namespace) -> int:
    html = None if arguments.html is None else parse_report(str(arguments.html))
    window = arguments.window
    if window is not None and window < 2:
        raise UsageError("--window takes a number of runs from 2 on.")
    try:
        limit = None if arguments.fail_on is None else parse_fraction(arguments.fail_on)
    except ValueError as error:
        raise UsageError(f"--fail-on: {error}.") from error
    records = [
        record
        for record in read_history(arguments.folder)
        if fnmatch.fnmatchcase(record.case, arguments.case or "*")
        and fnmatch.fnmatchcase(record.device, arguments.device or "*")
    ]
    if not records:
        raise UsageError(f"{arguments.folder} has no record of such a case.")
    moment = "" if arguments.since is None else _moment(records, arguments.since)
    every = [each for each in all_series(records, arguments.figure or "*") if each.tracks]
    worse = [] if limit is None else [*worsened(every, limit, moment, window)]
    series = [each.after(moment, window) for each in every]
    if html is not None:
        write_text(html, history_page(series))
    changes = [_document(each, change) for each in series for change in each.changes]
    show(arguments, {"changes": changes, "failed": worse}, history_lines(series))
    for line in worse:
        print(f"sme2: {line}", file=sys.stderr)
    return 1 if worse else 0


def _moment(records: Sequence[HistoryRecord], text: str) -> str:
    """When the commit was first measured, which git knows by other names as well."""
    for record in records:
        if (record.commit or "").startswith(text[:COMMIT_DIGITS]):
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
    """Figure by figure."""
    for each in series:
        if len(series) <= _FEW or each.changes:
            yield each.title
            for track in each.tracks:
                if len(series) <= _FEW or track.changes:
                    yield f"  {track.figure.name}: {track.summary}"
                    yield from (f"    {one.format():>8}  {one.where()}" for one in track.changes)
    if len(series) > _FEW:
        same = sum(not each.changes for each in series)
        yield f"{count(len(series), 'case')}, {same} of them without any change"
