"""The history as a page: of each case one chart, with its changes and their commits.

One file. It asks the network for nothing, and its policy lets it ask for nothing and run nothing.
All colours come from its style, so that charts follow light and dark. Every text is escaped.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from html import escape

from pytest_sme2.report.history import Figure
from pytest_sme2.report.history_series import Change, FigureHistory, Series, version_changes
from pytest_sme2.report.html import filled, page_part, page_policy
from pytest_sme2.system.wording import count

# A chart takes 8 KB, and nobody looks at hundreds.
_MOST = 80
# As wide as a phone shows it, so that its letters are never smaller than the page's.
_WIDTH, _HEIGHT = 420, 216
_LEFT, _RIGHT, _TOP, _BOTTOM = 80, 8, 34, 24
_LABEL = 70
"""How wide the label of a change is at most."""
_STRETCHED = 0.04
"""A figure that moves by less fills less than the chart."""


def history_page(series: Sequence[Series]) -> str:
    """What changed most comes first."""
    order = sorted(series, key=lambda each: -max((one.effect for one in each.changes), default=-1))
    left = count(max(0, len(order) - _MOST), "case")
    more = f"<p>{left} more changed less: --case chooses.</p>\n" if len(order) > _MOST else ""
    return filled(
        "history.html",
        policy=[escape(page_policy())],
        style=[page_part("report.css"), page_part("history.css")],
        cases=[*map(_section, order[:_MOST]), more],
    )


def _section(series: Series) -> str:
    """Drawn is the latency on hardware, else the first figure with SME2 that there is."""
    track = max(series.tracks, key=lambda track: track.figure.name.endswith("(on)"))
    rows = "".join(
        f'<li><b class="{change.tone}">{escape(change.format())}</b> '
        f"{escape(change.figure.name)}: <code>{escape(change.where())}</code></li>"
        for change in series.changes
    )
    return (
        f"<section><h2>{escape(series.title)}</h2>{_chart(track)}"
        f"<ul>{rows or '<li>Nothing changed.</li>'}</ul></section>\n"
    )


def _chart(track: FigureHistory) -> str:
    """A figure element."""
    plot, name = _Plot(track), escape(track.figure.name)
    parts = [*plot.frame(), *plot.changes(), *plot.course()]
    told = f"{name}, {count(len(track.points), 'run')}, {count(len(track.changes), 'change')}"
    return (
        f"<figure><figcaption>{name}: {escape(track.summary)}</figcaption>"
        f'<svg viewBox="0 0 {_WIDTH} {_HEIGHT}" role="img" aria-label="{told}">'
        f"{''.join(parts)}</svg></figure>"
    )


class _Plot:
    """From runs and values to places on the drawing."""

    def __init__(self, track: FigureHistory) -> None:
        self.track, self.points = track, track.points
        ends = [end for point in track.points for end in (point.value, *(point.interval or ()))]
        self.least, self.most = min(ends), max(ends)
        room = max(0.0, (abs(self.most) * _STRETCHED or 1) - (self.most - self.least)) / 2
        self.low, self.high = self.least - room, self.most + room

    def x(self, position: float) -> float:
        return round(_LEFT + (_WIDTH - _LEFT - _RIGHT) * (position + 0.5) / len(self.points), 1)

    def y(self, value: float) -> float:
        part = float((self.high - value) / (self.high - self.low))
        return round(_TOP + (_HEIGHT - _TOP - _BOTTOM) * part, 1)

    def path(self, kind: str, places: Iterable[tuple[float, float]], end: str = "") -> str:
        told = "L".join(f"{self.x(at)} {self.y(value)}" for at, value in places)
        return f'<path class="{kind}" d="M{told}{end}"/>'

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
            if told := version_changes(self.points[at - 1].run, self.points[at].run):
                line = self.path("", ((at - 0.5, self.low), (at - 0.5, self.high)))
                yield f'<g class="version"><title>{escape("; ".join(told))}</title>{line}</g>'

    def course(self) -> Iterator[str]:
        """All runs with their intervals, and what a noisy figure is without its noise."""
        arm = "off" if self.track.figure.name.endswith("(off)") else "on"
        known = [(at, point.interval) for at, point in enumerate(self.points) if point.interval]
        upper, lower = ([(at, ends[side]) for at, ends in known] for side in (1, 0))
        if len(known) > 1:
            yield self.path(f"interval {arm}", upper + lower[::-1], "Z")
        yield self.path(f"line {arm}", ((at, each.value) for at, each in enumerate(self.points)))
        if self.track.model is not None:
            yield self.path("level", enumerate(self.track.model.levels()))

    def changes(self) -> Iterator[str]:
        """The largest first; a label that would cover another is left out."""
        taken: tuple[list[float], list[float]] = ([], [])
        for change in sorted(self.track.changes, key=lambda change: -change.effect):
            start, label = min(self.x(change.first), _WIDTH - _LABEL), ""
            for row, others in enumerate(taken):
                if not label and all(abs(start - other) >= _LABEL for other in others):
                    others.append(start)
                    label = _text(start, _TOP - 22 + 12 * row, change.format().split()[0])
            yield self._change(change, label)

    def _change(self, change: Change, label: str) -> str:
        levels = (self.track.figure.format(level) for level in (change.old, change.new))
        about = escape(f"{change.where()}: {' → '.join(levels)}")
        ends = ((change.first, self.low), (change.first, self.high))
        area = self.path("", (*ends, *((change.last, end) for _, end in ends[::-1])), "Z")
        return f'<g class="change {change.tone}"><title>{about}</title>{area}{label}</g>'


def _text(at: float, height: float, words: str, anchor: str = "start") -> str:
    return f'<text x="{at}" y="{height}" text-anchor="{anchor}">{escape(words)}</text>'


def _short(value: float, figure: Figure) -> str:
    """Large counts in millions, so that they fit beside the drawing."""
    return f"{value / 1e6:,.6g} M" if figure.exact and value >= 1e7 else figure.format(value)
