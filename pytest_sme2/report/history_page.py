"""The history as a page: every change point with its commits, then each case with its charts.

One file without a script, so it is ready when it is loaded. It asks the network for nothing, and
its policy lets it ask for nothing. All colours come from its style, so that charts follow light
and dark. Every text is escaped.
"""

from __future__ import annotations

import importlib.resources
import math
from collections.abc import Iterator, Sequence
from html import escape

from pytest_sme2.report.history_series import (
    MISSING,
    Figure,
    FigureHistory,
    Point,
    Series,
    Step,
    not_looked_for,
    version_changes,
)
from pytest_sme2.report.text import clipped
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


def _row(number: int, series: Series, track: FigureHistory, step: Step) -> str:
    figure = track.figure
    versions = "; ".join(version_changes(step.before, step.after))
    cells = (
        ("", escape(step.after.recorded[:10])),
        ("name", f'<a href="#case-{number}">{escape(series.name)}</a>'),
        ("", escape(figure.name)),
        (f"number {tone(step, figure)}", escape(step.format())),
        ("number", escape(figure.format(step.old))),
        ("number", escape(figure.format(step.new))),
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


def _fact(track: FigureHistory) -> str:
    figure, last = track.figure, track.points[-1]
    if track.skip_reason:
        small = f"{count(len(track.points), 'run')}: {track.skip_reason}"
    elif track.whole is None:
        small = "unchanged" if figure.exact else "no change point"
    else:
        steps = count(len(track.steps), "change point")
        small = f"{track.whole.format()} in {steps} from {figure.format(track.whole.old)}"
    return (
        f"<div><dt>{escape(figure.name)}</dt><dd>{escape(figure.format(last.value))}"
        f"<small>{escape(small)}</small></dd></div>"
    )


# --- one figure over time, as SVG without a script ------------------------------------------------

# As wide as a phone shows it, so that its letters are never smaller than the page's.
_WIDTH, _HEIGHT = 420, 216
_LEFT, _RIGHT, _TOP, _BOTTOM = 72, 8, 34, 40
_LABEL = 54
"""How wide the label of a change is at most."""
_LETTER, _LONGEST = 6.2, 32
_MOST_DOTS = 60
_STRETCHED = 0.04


def chart(track: FigureHistory) -> str:
    """A figure element."""
    scale = _Scale(track)
    told = f"{track.figure.name}, {len(track.points)} runs, {len(track.steps)} change points"
    parts = [
        *_axis(scale, track.figure),
        *_versions(scale, track.points),
        *_line(scale, track),
        *_levels(scale, track),
        *_flags(scale, track),
        *_dates(track.points),
    ]
    return (
        f"<figure><figcaption>{escape(track.figure.name)}</figcaption>"
        f'<svg viewBox="0 0 {_WIDTH} {_HEIGHT}" role="img" aria-label="{escape(told)}">'
        f"{''.join(parts)}</svg></figure>"
    )


class _Scale:
    """From runs and values to places on the drawing."""

    def __init__(self, track: FigureHistory) -> None:
        values = [point.value for point in track.points]
        ends = [end for point in track.points for end in point.interval or ()]
        low, high = min(values + ends), max(values + ends)
        # A line that never moves is in the middle, and small noise stays small.
        room = max((high - low) * 0.08, abs(high) * _STRETCHED / 2, 1e-9)
        self.low, self.high = low - room, high + room
        self.count = len(values)

    def x(self, position: float) -> float:
        width = _WIDTH - _LEFT - _RIGHT
        return round(_LEFT + width * (position + 0.5) / self.count, 1)

    def y(self, value: float) -> float:
        height = _HEIGHT - _TOP - _BOTTOM
        return round(_TOP + height * (self.high - value) / (self.high - self.low), 1)


def _axis(scale: _Scale, figure: Figure) -> Iterator[str]:
    for value in _marks(scale.low, scale.high, whole=figure.unit not in ("ms", "x")):
        y = scale.y(value)
        yield f'<path class="grid" d="M{_LEFT} {y}H{_WIDTH - _RIGHT}"/>'
        told = escape(_short(value, figure))
        yield f'<text x="{_LEFT - 5}" y="{y + 4}" text-anchor="end">{told}</text>'


def _short(value: float, figure: Figure) -> str:
    """Large counts in millions, so that they fit beside the drawing."""
    return f"{value / 1e6:,.6g} M" if figure.exact and value >= 1e7 else figure.format(value)


def _marks(low: float, high: float, *, whole: bool) -> Iterator[float]:
    """Two to five round values between the ends."""
    power = 10.0 ** math.floor(math.log10((high - low) / 2))
    size = next(size for size in (5, 2, 1) if (high - low) / (size * power) >= 2) * power
    if whole:
        size = max(1.0, size)
    for number in range(math.ceil(low / size), math.floor(high / size) + 1):
        yield number * size


def _line(scale: _Scale, track: FigureHistory) -> Iterator[str]:
    points, kind = track.points, _kind(track.figure)
    for stretch in _stretches([point.interval is not None for point in points]):
        upper = [(at, (points[at].interval or (0, 0))[1]) for at in stretch]
        lower = [(at, (points[at].interval or (0, 0))[0]) for at in reversed(stretch)]
        if len(stretch) > 1:
            yield f'<path class="interval {kind}" d="{_path(scale, upper + lower)}Z"/>'
        else:
            yield f'<path class="whisker {kind}" d="{_path(scale, upper + lower)}"/>'
    values = [(at, point.value) for at, point in enumerate(points)]
    yield f'<path class="line {kind}" d="{_path(scale, values)}"/>'
    if len(points) <= _MOST_DOTS:
        for at, value in values:
            run = points[at].run
            about = f"{run.recorded[:10]} {run.commit or ''}: {track.figure.format(value)}"
            yield (
                f'<circle class="{kind}" cx="{scale.x(at)}" cy="{scale.y(value)}" r="2.5">'
                f"<title>{escape(about)}</title></circle>"
            )


def _kind(figure: Figure) -> str:
    return "off" if figure.name.endswith("(off)") else "on"


def _stretches(known: Sequence[bool]) -> Iterator[list[int]]:
    """Positions that follow each other and are known."""
    stretch: list[int] = []
    for at, there in enumerate([*known, False]):
        if there:
            stretch.append(at)
        elif stretch:
            yield stretch
            stretch = []


def _path(scale: _Scale, places: Sequence[tuple[int, float]]) -> str:
    return "M" + "L".join(f"{scale.x(at)} {scale.y(value)}" for at, value in places)


def _levels(scale: _Scale, track: FigureHistory) -> Iterator[str]:
    """What a noisy figure usually was between two change points."""
    if track.figure.exact or not track.steps:
        return
    ends = [0, *(step.at for step in track.steps), len(track.points)]
    levels = [track.steps[0].old, *(step.new for step in track.steps)]
    for start, end, level in zip(ends, ends[1:], levels, strict=False):
        d = f"M{scale.x(start - 0.5)} {scale.y(level)}H{scale.x(end - 0.5)}"
        yield f'<path class="level" d="{d}"/>'


def _flags(scale: _Scale, track: FigureHistory) -> Iterator[str]:
    """In two rows; a label that would cover another is left out, the page's table has it."""
    figure = track.figure
    taken = [-math.inf, -math.inf]
    for number, step in enumerate(track.steps):
        x, row = scale.x(step.at - 0.5), number % 2
        # A label never leaves the drawing.
        start = min(x, _WIDTH - _LABEL)
        about = f"{step.commits()}: {figure.format(step.old)} → {figure.format(step.new)}"
        label = ""
        if start >= taken[row]:
            taken[row] = start + _LABEL
            label = f'<text x="{start}" y="{_TOP - 22 + 12 * row}">{escape(step.format())}</text>'
        yield (
            f'<g class="change {tone(step, figure)}"><title>{escape(about)}</title>'
            f'<path d="M{x} {_TOP - 8}V{_HEIGHT - _BOTTOM}"/>{label}</g>'
        )


def tone(step: Step, figure: Figure) -> str:
    """Whether it got worse or better, as a class of the page's style."""
    direction = (step.new > step.old) - (step.new < step.old)
    return {1: "bad", -1: "good", 0: "weak"}[direction * figure.worse]


def _versions(scale: _Scale, points: Sequence[Point]) -> Iterator[str]:
    """A flag wherever one changed, with its name as long as there is room."""
    taken = -math.inf
    for at in range(1, len(points)):
        changes = version_changes(points[at - 1].run, points[at].run)
        if not changes:
            continue
        x, bottom = scale.x(at - 0.5), _HEIGHT - _BOTTOM
        label = ""
        if x >= taken:
            told = clipped("; ".join(changes), _LONGEST)
            taken = x + _LETTER * len(told)
            start = min(x + 8, _WIDTH - _LETTER * len(told))
            label = f'<text x="{start:.1f}" y="{bottom + 11}">{escape(told)}</text>'
        yield (
            f'<g class="version"><title>{escape("; ".join(changes))}</title>'
            f'<path d="M{x} {_TOP}V{bottom}"/>'
            f'<path class="flag" d="M{x} {bottom}l-5 9h10z"/>{label}</g>'
        )


def _dates(points: Sequence[Point]) -> Iterator[str]:
    days = [points[end].run.recorded[:10] for end in (0, -1)]
    yield f'<text x="{_LEFT}" y="{_HEIGHT - 4}">{escape(days[0])}</text>'
    if days[1] != days[0]:
        x = _WIDTH - _RIGHT
        yield f'<text x="{x}" y="{_HEIGHT - 4}" text-anchor="end">{escape(days[1])}</text>'
