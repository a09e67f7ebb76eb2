"""``sme2 history``: what changed over many runs, step by step."""

from __future__ import annotations

import argparse
import fnmatch
import json
import sys
from collections.abc import Iterator, Mapping, Sequence

from pytest_sme2.cli.options import Arguments
from pytest_sme2.errors import UsageError
from pytest_sme2.report.history import read_history
from pytest_sme2.report.history_page import history_page
from pytest_sme2.report.history_series import (
    MISSING,
    FigureHistory,
    Series,
    all_series,
    latest,
    not_looked_for,
    version_changes,
    worsened,
    worst_step,
)
from pytest_sme2.session.settings import parse_report
from pytest_sme2.system.files import encode, write_text
from pytest_sme2.system.wording import count
from pytest_sme2.verdict.limits import parse_fraction

EXAMPLE = "sme2 history history --case 'toy_cnn*' --html history.html"
ARGUMENTS: Arguments = {
    "folder DIR": "the folder that pytest --sme2-history DIR writes to",
    "--case PATTERN": "only these cases, as in 'toy_cnn*'",
    "--device PATTERN": "only these devices",
    "--html FILE": "write a page with charts to this file",
    "--fail-on [step=]PERCENT...": "exit with 1 where a figure got worse by more, all changes "
    "added up, or in one step; may be repeated",
    "--window N": "for --fail-on: only the last runs (default: all)",
    "--since COMMIT": "for --fail-on: only runs from this one on, as a release",
    "--json": "print the records, one per line",
}


def run(arguments: argparse.Namespace) -> int:
    limits = _limits(arguments)
    html = None if arguments.html is None else parse_report(str(arguments.html))
    records = [
        record
        for record in read_history(arguments.folder)
        if fnmatch.fnmatchcase(record.case, arguments.case or "*")
        and fnmatch.fnmatchcase(record.device, arguments.device or "*")
    ]
    if not records:
        raise UsageError(f"{arguments.folder} has no record of such a case.")
    if arguments.json:
        print("\n".join(json.dumps(encode(record), sort_keys=True) for record in records))
        if html is None and not limits:
            return 0
    series = all_series(records)
    if html is not None:
        write_text(html, history_page(series))
    if not arguments.json:
        print("\n".join(history_lines(series)))
    worse = list(_worse(series, limits, arguments.window, arguments.since)) if limits else []
    for line in worse:
        print(line, file=sys.stderr)
    return 1 if worse else 0


def _limits(arguments: argparse.Namespace) -> dict[str, float]:
    """What a ``sum`` and a ``step`` may be at most."""
    if arguments.window is not None and arguments.window < 2:
        raise UsageError("--window takes a number of runs from 2 on.")
    if not arguments.fail_on and (arguments.window is not None or arguments.since is not None):
        raise UsageError("--window and --since need --fail-on.")
    limits = {}
    for text in arguments.fail_on:
        kind = "step" if text.startswith("step=") else "sum"
        try:
            limits[kind] = parse_fraction(text.removeprefix("step="))
        except ValueError as error:
            raise UsageError(f"--fail-on: {error}.") from error
    return limits


def _worse(
    series: Sequence[Series], limits: Mapping[str, float], window: int | None, since: str | None
) -> Iterator[str]:
    if since is not None and not any(
        (run.commit or "").startswith(since) for each in series for run in each.runs
    ):
        raise UsageError(f"--since: no run is of the commit {since}.")
    for each in series:
        for track in each.tracks:
            part = latest(track, window, since)
            for kind, limit in limits.items():
                growth = worsened(part) if kind == "sum" else worst_step(part)
                if growth is not None and growth > limit:
                    runs = count(len(part.points), "run")
                    where = f"over {runs}" if kind == "sum" else f"in one step of {runs}"
                    yield (
                        f"sme2: {each.name}: {track.figure.name} got {growth:.2%} worse {where}; "
                        f"{limit:.2%} is allowed (--fail-on)."
                    )


def history_lines(series: Sequence[Series]) -> Iterator[str]:
    """Each case, what it is now, and every step on the way."""
    for each in series:
        if len(series) > 1 and not any(track.steps or track.skip_reason for track in each.tracks):
            # One among many: its figures are shown when it is asked for alone.
            yield f"{each.name}: {each.span}, nothing changed"
            continue
        yield f"{each.name}: {each.span}"
        for track in each.tracks:
            yield from _track_lines(track)
    if not_looked_for(series):
        yield MISSING


def _track_lines(track: FigureHistory) -> Iterator[str]:
    figure, last = track.figure, track.points[-1]
    now = f"  {figure.name}: {figure.format(last.value)}"
    if last.interval is not None:
        now += f" [{', '.join(figure.format(end) for end in last.interval)}]"
    if track.skip_reason:
        yield f"{now}, {count(len(track.points), 'run')}: {track.skip_reason}"
    elif track.whole is None:
        yield f"{now}, {'unchanged' if figure.exact else 'no step'}"
    elif track.drift is not None:
        runs = len(track.points)
        each = (track.drift.new / track.drift.old) ** (1 / max(1, runs - 1)) - 1
        yield f"{now}, {track.drift.format()} as a drift over {runs} runs ({each:+.2%} per run)"
    else:
        steps = count(len(track.steps), "step")
        yield f"{now}, {track.whole.format()} in {steps} from {figure.format(track.whole.old)}"
    for step in track.steps:
        where = "; ".join([step.commits(), *version_changes(step.before, step.after)])
        yield f"    {step.format():>8}  {where}"
