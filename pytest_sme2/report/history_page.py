"""The history as a page: what happened, with its commits; then each case with its charts.

One file. It asks the network for nothing, and its policy lets it ask for nothing and run only the
script that is in it: that filters the tables, which are ready without it. All colours come from its
style, so that charts follow light and dark. Every text is escaped.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Sequence
from html import escape

from pytest_sme2.report.history import Figure
from pytest_sme2.report.history_events import Event, events, size_of
from pytest_sme2.report.history_series import (
    MISSING,
    FigureHistory,
    Series,
    not_looked_for,
    odd_phones,
    version_changes,
)
from pytest_sme2.report.html import page_part, page_policy
from pytest_sme2.system.wording import count

_HEADINGS = ("change", "figures", "cases", "devices", "commits", "day", "versions that changed")
_CASE_HEADINGS = ("case", "device", "figure", "now", "all changes", "course", "runs")
_MOST_ROWS, _MOST_NAMED, _MOST_LISTED = 200, 3, 20
# A chart takes 8 KB, and nobody looks at hundreds.
_MOST_CHARTS = 80
# Hidden until the script fills them.
_FILTERS = """<form id="filters" class="controls" hidden>
<label>Case <input name="case" type="search"></label>
<label>Figure <select name="figure"><option value="">all</option></select></label>
<label>Device <select name="device"><option value="">all</option></select></label>
<label>At least <input name="least" type="number" min="0" step="any"> %</label>
<output class="quiet"></output></form>
"""
TITLE = "History of SME2 performance"


def history_page(series: Sequence[Series], found: Sequence[Event] | None = None) -> str:
    """``found`` is what to tell of all that happened."""
    script, found = page_part("history.js"), events(series) if found is None else found
    policy = escape(page_policy(script))
    numbers = {id(each): number for number, each in enumerate(series)}
    return "".join(
        (
            '<!doctype html>\n<html lang="en">\n<head>\n<meta charset="utf-8">\n',
            f'<meta http-equiv="Content-Security-Policy" content="{policy}">\n',
            '<meta name="viewport" content="width=device-width, initial-scale=1">\n',
            '<meta name="color-scheme" content="light dark">\n',
            f"<title>{TITLE}</title>\n<style>\n{page_part('report.css')}{page_part('history.css')}</style>",
            f"\n</head>\n<body>\n<header><h1>{TITLE}</h1><p>{escape(size_of(series))}</p></header>\n",
            f"<main>\n<h2>{count(len(found), 'change')}, the largest first</h2>\n",
            _FILTERS,
            *_table("Changes", _HEADINGS, [_event(event, numbers) for event in found[:_MOST_ROWS]]),
            "" if len(found) <= _MOST_ROWS else f"<p>{len(found) - _MOST_ROWS} are smaller.</p>\n",
            *(f'<p class="note">{escape(text)}</p>\n' for text in _notes(series)),
            "<h2>Each case</h2>\n",
            *_table("Cases", _CASE_HEADINGS, [_case(*each) for each in enumerate(series)]),
            *_charts(series, found, numbers),
            f"</main>\n<script>{script}</script>\n</body>\n</html>\n",
        )
    )


def _notes(series: Sequence[Series]) -> Iterator[str]:
    if not_looked_for(series):
        yield MISSING
    yield from odd_phones(series)
    if any(not track.figure.exact for each in series for track in each.tracks):
        yield (
            "Latency, speedup and memory are noisy: a change is one of level, and lies within its "
            "commits at 95 %. Where the yardstick, a program that never changes, has one as well, "
            "the machine changed."
        )


def _table(label: str, headings: Sequence[str], rows: Sequence[str]) -> Iterator[str]:
    if rows:
        told = "".join(f'<th scope="col">{heading}</th>' for heading in headings)
        yield f'<div class="scroll" tabindex="0" role="region" aria-label="{label}"><table><thead>'
        yield f"<tr>{told}</tr></thead><tbody>\n{''.join(rows)}</tbody></table></div>\n"


def _row(facts: str, headings: Sequence[str], cells: Sequence[tuple[str, str]]) -> str:
    told = (
        f'<td class="{kind}" data-label="{heading}">{text}</td>'
        for heading, (kind, text) in zip(headings, cells, strict=True)
    )
    return f"<tr {facts}>{''.join(told)}</tr>\n"


def _event(event: Event, numbers: dict[int, int]) -> str:
    """The script finds its cases by their numbers."""
    where, largest = event.where, event.changes[0]
    members = sorted({numbers[id(change.series)] for change in event.changes})
    versions = "; ".join(version_changes(where.before, where.after))
    named = ", ".join(event.cases[:_MOST_NAMED])
    more = len(event.cases) - _MOST_NAMED
    listed = "".join(
        f'<li><a href="#case-{numbers[id(change.series)]}">{escape(change.series.name)}</a>: '
        f"{escape(change.track.figure.name)} {escape(change.step.format())}</li>"
        for change in event.changes[:_MOST_LISTED]
    )
    left = len(event.changes) - _MOST_LISTED
    told = named if more <= 0 else f"{len(event.cases)} cases: {named}, …"
    facts = (
        f'data-size="{100 * largest.share:.6g}" data-cases=" {" ".join(map(str, members))} " '
        f'data-figure="{escape(event.figures)}"'
    )
    cells = (
        (f"number {largest.tone}", escape(largest.step.format())),
        ("name", escape(event.title())),
        (
            "name",
            f"<details><summary>{escape(told)}</summary><ul>{listed}"
            f"{f'<li>and {left} more</li>' if left > 0 else ''}</ul></details>",
        ),
        ("name", escape(", ".join(event.devices))),
        ("", f"<code>{escape(where.commits())}</code>"),
        ("day", escape(where.after.recorded[:10])),
        ("name prose" if versions else "name empty", escape(versions)),
    )
    return _row(facts, _HEADINGS, cells)


def _case(number: int, series: Series) -> str:
    """By the first figure that there is, which is the latency on hardware."""
    track = max(series.tracks, key=lambda track: track.figure.name.endswith("(on)"))
    whole = track.whole
    changed = ("weak", "") if whole is None else (whole.tone(track.figure), whole.format())
    facts = (
        f'id="case-{number}" data-number="{number}" data-case="{escape(series.case)}" '
        f'data-device="{escape(series.device)}"'
    )
    cells = (
        ("name", escape(series.case)),
        ("name", escape(", ".join((series.device, *series.conditions)))),
        ("", escape(track.figure.name)),
        ("number", escape(track.figure.format(track.points[-1].value))),
        (f"number {changed[0]}", escape(changed[1])),
        ("", _sparkline(track)),
        ("number", str(len(series.runs))),
    )
    return _row(facts, _CASE_HEADINGS, cells)


def _sparkline(track: FigureHistory) -> str:
    values = [point.value for point in track.points]
    every = math.ceil(len(values) / 50)
    low, high = min(values), max(values)
    # Small noise stays small.
    height = max(high - low, abs(high) * _STRETCHED) or 1
    places = " ".join(
        f"{2 * at},{18 - 16 * (value - low) / height:.0f}"
        for at, value in enumerate(values[::every])
    )
    return (
        f'<svg class="spark" viewBox="-1 0 102 20" role="img" aria-label="{len(values)} runs">'
        f'<polyline class="line on" points="{places}"/></svg>'
    )


def _charts(
    series: Sequence[Series], found: Sequence[Event], numbers: dict[int, int]
) -> Iterator[str]:
    """Of what changed most, then of the rest, as long as there is room."""
    order = {id(change.series): None for event in found for change in event.changes}
    room = _MOST_CHARTS
    yield "<h2>Charts</h2>\n"
    for number in dict.fromkeys((*(numbers[key] for key in order), *range(len(series)))):
        each = series[number]
        drawn = [
            track
            for track in each.tracks
            if len(track.points) > 1 and (track.whole or not track.figure.exact)
        ]
        if len(drawn) > room:
            yield "<p>There is no room for the others: choose them with --case.</p>\n"
            return
        room -= len(drawn)
        yield _detail(each, [chart(track) for track in drawn])


def _detail(series: Series, charts: Sequence[str]) -> str:
    """Open where something changed. An exact figure that never changed needs no chart."""
    facts = "".join(
        f"<div><dt>{escape(track.figure.name)}</dt>"
        f"<dd>{escape(track.figure.format(track.points[-1].value))}"
        f"<small>{escape(track.summary)}</small></dd></div>"
        for track in series.tracks
    )
    return (
        f"<details{' open' if any(track.steps for track in series.tracks) else ''}>"
        f"<summary><h3>{escape(series.name)}</h3> "
        f'<span class="quiet">{escape(series.span)}</span></summary>'
        f'<dl class="facts">{facts}</dl><div class="charts">{"".join(charts)}</div></details>\n'
    )


# As wide as a phone shows it, so that its letters are never smaller than the page's.
_WIDTH, _HEIGHT = 420, 216
_LEFT, _RIGHT, _TOP, _BOTTOM = 80, 8, 34, 24
_LABEL = 70
"""How wide the label of a change is at most."""
_STRETCHED = 0.04


def chart(track: FigureHistory) -> str:
    """A figure element."""
    plot, name = _Plot(track), escape(track.figure.name)
    parts = [*plot.frame(), *plot.course(), *plot.steps()]
    told = f"{name}, {len(track.points)} runs, {len(track.steps)} change points"
    return (
        f"<figure><figcaption>{name}</figcaption>"
        f'<svg viewBox="0 0 {_WIDTH} {_HEIGHT}" role="img" aria-label="{told}">'
        f"{''.join(parts)}</svg></figure>"
    )


class _Plot:
    """From runs and values to places on the drawing."""

    def __init__(self, track: FigureHistory) -> None:
        self.track, self.points = track, track.points
        ends: list[float] = [
            end for point in track.points for end in (point.value, *(point.interval or ()))
        ]
        self.least, self.most = min(ends), max(ends)
        # A line that never moves is in the middle, and small noise stays small.
        room = max((self.most - self.least) * 0.08, abs(self.most) * _STRETCHED / 2, 1e-9)
        self.low, self.high = self.least - room, self.most + room

    def x(self, position: float) -> float:
        return round(_LEFT + (_WIDTH - _LEFT - _RIGHT) * (position + 0.5) / len(self.points), 1)

    def y(self, value: float) -> float:
        height = _HEIGHT - _TOP - _BOTTOM
        return round(_TOP + height * (self.high - value) / (self.high - self.low), 1)

    def path(self, kind: str, places: Iterable[tuple[float, float]], end: str = "") -> str:
        told = "L".join(f"{self.x(at)} {self.y(value)}" for at, value in places)
        return f'<path class="{kind}" d="M{told}{end}"/>'

    def upright(self, kind: str, at: int, about: str, label: str = "") -> str:
        line = self.path("", ((at - 0.5, self.low), (at - 0.5, self.high)))
        return f'<g class="{kind}"><title>{escape(about)}</title>{line}{label}</g>'

    def frame(self) -> Iterator[str]:
        """The least, the last and the largest figure, the days, and where a version changed."""
        last = self.points[-1].value
        for value in dict.fromkeys((self.least, last, self.most)):
            if value == last or abs(self.y(value) - self.y(last)) > 14:
                yield self.path("grid", ((-0.5, value), (len(self.points) - 0.5, value)))
                yield _text(_LEFT - 5, self.y(value) + 4, _short(value, self.track.figure), "end")
        days = dict.fromkeys(self.points[end].run.recorded[:10] for end in (0, -1))
        for day, at, anchor in zip(days, (_LEFT, _WIDTH - _RIGHT), ("start", "end"), strict=False):
            yield _text(at, _HEIGHT - 4, day, anchor)
        for at in range(1, len(self.points)):
            if changes := version_changes(self.points[at - 1].run, self.points[at].run):
                yield self.upright("version", at, "; ".join(changes))

    def course(self) -> Iterator[str]:
        """All runs with their intervals, and what a noisy figure usually was between two steps."""
        figure, steps = self.track.figure, self.track.steps
        arm = "off" if figure.name.endswith("(off)") else "on"
        known = [(at, point.interval) for at, point in enumerate(self.points) if point.interval]
        if len(known) > 1:
            upper, lower = ([(at, ends[side]) for at, ends in known] for side in (1, 0))
            yield self.path(f"interval {arm}", upper + lower[::-1], "Z")
        yield self.path(f"line {arm}", ((at, each.value) for at, each in enumerate(self.points)))
        if steps and not figure.exact:
            ends = [0, *(step.at for step in steps), len(self.points)]
            levels = [steps[0].old, *(step.new for step in steps)]
            for start, end, level in zip(ends, ends[1:], levels, strict=False):
                yield self.path("level", ((start - 0.5, level), (end - 0.5, level)))

    def steps(self) -> Iterator[str]:
        """In two rows, the largest first; a label that would cover another is left out."""
        figure = self.track.figure
        taken: tuple[list[float], list[float]] = ([], [])
        for step in sorted(self.track.steps, key=lambda step: -abs(step.new - step.old)):
            # A label never leaves the drawing.
            start, label = min(self.x(step.at - 0.5), _WIDTH - _LABEL), ""
            for row, others in enumerate(taken):
                if not label and all(abs(start - other) >= _LABEL for other in others):
                    others.append(start)
                    label = _text(start, _TOP - 22 + 12 * row, step.format())
            about = f"{step.commits()}: {figure.format(step.old)} → {figure.format(step.new)}"
            yield self.upright(f"change {step.tone(figure)}", step.at, about, label)


def _text(at: float, height: float, words: str, anchor: str = "start") -> str:
    return f'<text x="{at}" y="{height}" text-anchor="{anchor}">{escape(words)}</text>'


def _short(value: float, figure: Figure) -> str:
    """Large counts in millions, so that they fit beside the drawing."""
    return f"{value / 1e6:,.6g} M" if figure.exact and value >= 1e7 else figure.format(value)
