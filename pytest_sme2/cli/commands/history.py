"""``sme2 history``: what changed over many runs, and whether that is too much."""

from __future__ import annotations

import argparse
import fnmatch
import re
import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from pytest_sme2.cli.options import Arguments, chosen, shared, show
from pytest_sme2.errors import UsageError
from pytest_sme2.report.history import DIGITS, HistoryRecord, read_history
from pytest_sme2.report.history_events import Event, events, only, size_of
from pytest_sme2.report.history_page import history_page
from pytest_sme2.report.history_series import (
    MISSING,
    FigureHistory,
    Series,
    all_series,
    latest,
    not_looked_for,
    odd_phones,
    version_changes,
    worse_by,
    worsened,
    worst_step,
)
from pytest_sme2.results import AS_EXPORTED, Limits
from pytest_sme2.session.settings import parse_report
from pytest_sme2.system.files import write_text
from pytest_sme2.system.wording import count
from pytest_sme2.verdict.limits import parse_fraction, resolve

EXAMPLE = "sme2 history history --case 'toy_cnn*' --html history.html"
ARGUMENTS: Arguments = {
    "folder DIR": "the folder that pytest --sme2-history DIR writes to",
    "--case PATTERN": "only these cases, as in 'toy_cnn*'",
    "--device PATTERN": "only these devices",
    "--figure PATTERN": "only these figures, as in 'latency*'",
    "--at-least PERCENT": "only changes of this size",
    "--rename OLD=NEW...": "the model or case OLD is called NEW now; may be repeated",
    "--html FILE": "write a page with charts to this file",
    "--fail-on [step=]PERCENT|gate...": "exit with 1 where a figure got worse by more, all changes "
    "added up, or in one step, or by more than the gate's limits allow; may be repeated",
    "--window N": "for --fail-on PERCENT: only the last runs (default: all)",
    "--since COMMIT": 'only what changed after this one, as "$(git rev-parse v1.0)"',
    "--json": "print all changes as JSON",
    **shared("baseline-dir", "limit"),
}
# More series than this are told by what happened to them.
_FEW = 6
_MOST_ROWS = 40


def run(arguments: argparse.Namespace) -> int:
    limits = _limits(arguments)
    html = None if arguments.html is None else parse_report(str(arguments.html))
    least = _fraction(arguments.at_least or "0%", "--at-least")
    records = [
        record
        for record in _renamed(read_history(arguments.folder), arguments.rename)
        if fnmatch.fnmatchcase(record.case, arguments.case or "*")
        and fnmatch.fnmatchcase(record.device, arguments.device or "*")
    ]
    if not records:
        raise UsageError(f"{arguments.folder} has no record of such a case.")
    since = None if arguments.since is None else _commit(records, arguments.since)
    series = all_series(records)
    recent = events(series, since)
    found = only(recent, arguments.figure or "*", least)
    if html is not None:
        write_text(html, history_page(series, found))
    worse = list(_worse(series, limits, arguments.window, since))
    if "gate" in arguments.fail_on:
        worse += _gated(recent, chosen(arguments, baseline_dir=Path("baselines"), limits={}))
    document = {"changes": [_document(event) for event in found], "failed": worse}
    show(arguments, document, history_lines(series, found))
    for line in worse:
        print(f"sme2: {line}", file=sys.stderr)
    return 1 if worse else 0


def _fraction(text: str, option: str = "--fail-on") -> float:
    try:
        return parse_fraction(text)
    except ValueError as error:
        raise UsageError(f"{option}: {error}.") from error


def _limits(arguments: argparse.Namespace) -> dict[str, float]:
    """What a ``sum`` and a ``step`` may be at most."""
    limits = {
        "step" if text.startswith("step=") else "sum": _fraction(text.removeprefix("step="))
        for text in arguments.fail_on
        if text != "gate"
    }
    if arguments.window is not None and (arguments.window < 2 or not limits):
        raise UsageError("--window takes a number of runs from 2 on, and needs --fail-on PERCENT.")
    return limits


def _renamed(records: Sequence[HistoryRecord], texts: Sequence[str]) -> Iterator[HistoryRecord]:
    names = {old: new for old, _, new in (text.partition("=") for text in texts)}
    if not all(names.values()):
        raise UsageError("--rename takes OLD=NEW.")
    known = {(record.session, record.case, record.device) for record in records}
    for record in records:
        case = record.case
        for old, new in names.items():
            if case == old or case.startswith(f"{old}-"):
                case = new + case.removeprefix(old)
        if case != record.case and (record.session, case, record.device) in known:
            raise UsageError(f"--rename: one run has both {record.case} and {case}.")
        yield record if case == record.case else replace(record, case=case)


def _commit(records: Sequence[HistoryRecord], text: str) -> str:
    """As runs are recorded."""
    name = text[:DIGITS] if re.fullmatch("[0-9a-f]{40,64}", text) else text
    found = (record.commit for record in records if (record.commit or "").startswith(name))
    if (commit := next(found, None)) is not None:
        return commit
    raise UsageError(
        f"--since: no run is of the commit {text}. git knows what a tag or a branch is: "
        '--since "$(git rev-parse TAG)".'
    )


def _worse(
    series: Sequence[Series], limits: Mapping[str, float], window: int | None, since: str | None
) -> Iterator[str]:
    for each in series:
        for track in each.tracks:
            part = latest(track, window, since)
            for kind, limit in limits.items():
                growth = worsened(part) if kind == "sum" else worst_step(part)
                if growth is not None and growth > limit:
                    runs = count(len(part.points), "run")
                    where = f"over {runs}" if kind == "sum" else f"in one step of {runs}"
                    yield (
                        f"{each.name}: {track.figure.name} got {growth:.2%} worse {where}; "
                        f"{limit:.2%} is allowed (--fail-on)."
                    )


def _gated(found: Sequence[Event], settings: Mapping[str, Any]) -> Iterator[str]:
    """What the gate would not let pass; it does not blame a program for its machine either."""
    growth: dict[tuple[str, str, str], float] = {}
    blamed = (change for event in found if event.kind != "machine" for change in event.changes)
    for change in sorted(blamed, key=lambda change: change.last):
        figure, step = change.track.figure, change.step
        part = worse_by(figure, step.old, step.new) or 0.0
        key = (change.series.case, change.series.name, figure.name)
        # From or to 0 there is no sum: a figure that came from there begins anew.
        growth[key] = 0.0 if part == -1 else (1 + growth.get(key, 0.0)) * (1 + part) - 1
    allowed = {case: _gate_limits(case, settings) for case, _, _ in growth}
    for (case, name, metric), total in sorted(growth.items()):
        limit = _gate_limit(metric, allowed[case])
        if limit is not None and total > limit:
            yield f"{name}: {metric} got {total:.2%} worse; the gate allows {limit:.2%}."


def _gate_limits(case: str, settings: Mapping[str, Any]) -> Limits:
    model, _, variant = re.sub(r"-t[0-9]+$", "", case).rpartition("-")
    files = [settings["baseline_dir"] / "limits.toml", Path("models", model, "limits.toml")]
    try:
        return resolve(variant, files=files, command_line=settings["limits"])
    except UsageError:
        # A program's name may end in anything; what is wrong with a file is said now.
        return resolve(AS_EXPORTED, files=files, command_line=settings["limits"])


def _gate_limit(figure: str, limits: Limits) -> float | None:
    lost = 1 / (1 - limits.max_speedup_loss) - 1
    return {
        "latency": limits.max_regression,
        "speedup": lost,
        "best against best": lost,
        "instructions": limits.max_cost_growth,
        "operators on SME2": 0.0,
        "peak memory": limits.max_memory_growth,
        "program bytes": limits.max_size_growth,
    }.get(figure.partition(" (")[0])


def _document(event: Event) -> dict[str, object]:
    where = event.where
    return {
        "kind": event.kind,
        "commits": [run.commit or run.recorded for run in (where.before, where.after)],
        "versions": version_changes(where.before, where.after),
        "figures": [
            {
                "case": change.series.case,
                "device": change.series.device,
                "conditions": change.series.conditions,
                "figure": change.track.figure.name,
                "old": change.step.old,
                "new": change.step.new,
                "change": change.step.change,
                "effect": {"bad": "worse", "good": "better", "weak": "other"}[change.tone],
            }
            for change in event.changes
        ],
    }


def history_lines(series: Sequence[Series], found: Sequence[Event] | None = None) -> Iterator[str]:
    """What happened, the largest first. Few cases are told with what they are now, step by step."""
    found = events(series) if found is None else found
    if len(series) > 1:
        yield f"{size_of(series)}: {count(len(found), 'change')}"
        yield from (_event_line(event) for event in found[:_MOST_ROWS])
        if len(found) > _MOST_ROWS:
            yield f"  {len(found) - _MOST_ROWS} are smaller: --html shows more"
    for each in series if len(series) <= _FEW else ():
        if len(series) > 1 and not any(track.whole or track.skip_reason for track in each.tracks):
            # One among many: its figures are shown when it is asked for alone.
            yield f"{each.name}: {each.span}, nothing changed"
            continue
        yield f"{each.name}: {each.span}"
        for track in each.tracks:
            yield from _track_lines(track)
    if not_looked_for(series):
        yield MISSING
    yield from odd_phones(series)


def _event_line(event: Event) -> str:
    where = event.where
    cases = ", ".join(event.cases) if len(event.cases) <= 3 else f"{len(event.cases)} cases"
    told = f"{event.title()} of {cases} on {', '.join(event.devices)}"
    versions = version_changes(where.before, where.after)
    return f"  {event.changes[0].step.format():>8}  {'; '.join([where.commits(), told, *versions])}"


def _track_lines(track: FigureHistory) -> Iterator[str]:
    figure, last = track.figure, track.points[-1]
    now = f"  {figure.name}: {figure.format(last.value)}"
    if last.interval is not None:
        now += f" [{', '.join(figure.format(end) for end in last.interval)}]"
    yield f"{now}, {track.summary}"
    for step in track.steps:
        where = "; ".join([step.commits(), *version_changes(step.before, step.after)])
        yield f"    {step.format():>8}  {where}"
