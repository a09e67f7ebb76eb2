"""The history as a page: every change point with its commits, then each case with its charts.

One file without a script, so it is ready when it is loaded. It asks the network for nothing, and
its policy lets it ask for nothing.
"""

from __future__ import annotations

import importlib.resources
from collections.abc import Iterator, Sequence
from html import escape

from pytest_sme2.report.change_points import MISSING
from pytest_sme2.report.history_chart import chart, tone
from pytest_sme2.report.history_series import (
    Series,
    Step,
    Track,
    not_looked_for,
    version_changes,
)
from pytest_sme2.system.wording import count

_POLICY = "default-src 'none'; style-src 'unsafe-inline'; base-uri 'none'; form-action 'none'"
_HEADINGS = ("day", "case", "figure", "change", "from", "to", "commits", "versions that changed")
_MOST_ROWS = 500
TITLE = "History of SME2 performance"


def history_page(series: Sequence[Series]) -> str:
    return "".join(
        (
            '<!doctype html>\n<html lang="en" data-ready="yes">\n<head>\n<meta charset="utf-8">\n',
            f'<meta http-equiv="Content-Security-Policy" content="{escape(_POLICY)}">\n',
            '<meta name="viewport" content="width=device-width, initial-scale=1">\n',
            '<meta name="color-scheme" content="light dark">\n',
            f"<title>{TITLE}</title>\n<style>\n{_part('report.css')}{_part('history.css')}</style>",
            f"\n</head>\n<body>\n<header><h1>{TITLE}</h1>{_headline(series)}</header>\n<main>\n",
            *(f'<p class="note">{escape(text)}</p>\n' for text in _notes(series)),
            *_changes(series),
            "<h2>Each case</h2>\n",
            *(_case(number, each) for number, each in enumerate(series)),
            "</main>\n</body>\n</html>\n",
        )
    )


def _part(name: str) -> str:
    folder = importlib.resources.files("pytest_sme2.report") / "page"
    return (folder / name).read_text(encoding="utf-8")


def _headline(series: Sequence[Series]) -> str:
    runs = [run for each in series for run in each.runs]
    recorded = [run.recorded[:10] for run in runs]
    days = dict.fromkeys((min(recorded), max(recorded)))
    sessions = len({run.session for run in runs})
    told = f"{count(len(series), 'case')}, {count(sessions, 'run')}, {' to '.join(days)}"
    return f"<p>{escape(told)}</p>"


def _notes(series: Sequence[Series]) -> Iterator[str]:
    if not_looked_for(series):
        yield MISSING
    if any(not track.figure.exact for each in series for track in each.tracks):
        yield (
            "Latency, speedup and memory are noisy: a change point is a change of level, and lies "
            "within its commits at 95 %. Where the yardstick, a program that never changes, has "
            "one as well, the machine changed."
        )


# --- the change points ----------------------------------------------------------------------------


def _changes(series: Sequence[Series]) -> Iterator[str]:
    found = sorted(
        (
            (step.after.recorded, number, each, track, step)
            for number, each in enumerate(series)
            for track in each.tracks
            for step in track.steps
        ),
        key=lambda row: row[:2],
        reverse=True,
    )
    yield f"<h2>{count(len(found), 'change point')}, the newest first</h2>\n"
    if not found:
        return
    yield '<div class="scroll" tabindex="0" role="region" aria-label="Change points"><table><thead>'
    headings = "".join(f'<th scope="col">{heading}</th>' for heading in _HEADINGS)
    yield f"<tr>{headings}</tr></thead><tbody>\n"
    for _, number, each, track, step in found[:_MOST_ROWS]:
        yield _row(number, each, track, step)
    yield "</tbody></table></div>\n"
    if len(found) > _MOST_ROWS:
        yield f"<p>{len(found) - _MOST_ROWS} older ones are marked in the charts.</p>\n"


def _row(number: int, series: Series, track: Track, step: Step) -> str:
    figure = track.figure
    versions = "; ".join(version_changes(step.before, step.after))
    cells = (
        ("", escape(step.after.recorded[:10])),
        ("name", f'<a href="#case-{number}">{escape(series.name)}</a>'),
        ("", escape(figure.name)),
        (f"number {tone(step, figure)}", escape(step.told())),
        ("number", escape(figure.told(step.old))),
        ("number", escape(figure.told(step.new))),
        ("", f"<code>{escape(step.commits())}</code>"),
        ("name prose" if versions else "name empty", escape(versions)),
    )
    told = (
        f'<td class="{kind}" data-label="{heading}">{text}</td>'
        for heading, (kind, text) in zip(_HEADINGS, cells, strict=True)
    )
    return f"<tr>{''.join(told)}</tr>\n"


# --- one case -------------------------------------------------------------------------------------


def _case(number: int, series: Series) -> str:
    """Open where something changed. An exact figure that never changed needs no chart."""
    changed = sum(len(track.steps) for track in series.tracks)
    drawn = [track for track in series.tracks if track.steps or not track.figure.exact]
    facts = "".join(_fact(track) for track in series.tracks)
    charts = "".join(chart(track) for track in drawn if len(track.points) > 1)
    return (
        f'<details id="case-{number}"{" open" if changed else ""}>'
        f"<summary><h3>{escape(series.name)}</h3> "
        f'<span class="quiet">{escape(series.span)}, {count(changed, "change point")}</span>'
        f'</summary><dl class="facts">{facts}</dl><div class="charts">{charts}</div></details>\n'
    )


def _fact(track: Track) -> str:
    figure, last = track.figure, track.points[-1]
    if track.unlooked:
        small = f"{count(len(track.points), 'run')}: {track.unlooked}"
    elif track.whole is None:
        small = "unchanged" if figure.exact else "no change point"
    else:
        steps = count(len(track.steps), "change point")
        small = f"{track.whole.told()} in {steps} from {figure.told(track.whole.old)}"
    return (
        f"<div><dt>{escape(figure.name)}</dt><dd>{escape(figure.told(last.value))}"
        f"<small>{escape(small)}</small></dd></div>"
    )
