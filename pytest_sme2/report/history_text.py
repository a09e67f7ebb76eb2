"""The history in the terminal: each case, what it is now, and every step on the way."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from pytest_sme2.report.change_points import MISSING
from pytest_sme2.report.history_series import Series, Track, not_looked_for, version_changes
from pytest_sme2.system.wording import count


def history_lines(series: Sequence[Series]) -> Iterator[str]:
    for each in series:
        if len(series) > 1 and not any(track.steps or track.unlooked for track in each.tracks):
            # One among many: its figures are shown when it is asked for alone.
            yield f"{each.name}: {each.span}, nothing changed"
            continue
        yield f"{each.name}: {each.span}"
        for track in each.tracks:
            yield from _track_lines(track)
    if not_looked_for(series):
        yield MISSING


def _track_lines(track: Track) -> Iterator[str]:
    figure, last = track.figure, track.points[-1]
    now = f"  {figure.name}: {figure.told(last.value)}"
    if last.interval is not None:
        now += f" [{', '.join(figure.told(end) for end in last.interval)}]"
    if track.unlooked:
        yield f"{now}, {count(len(track.points), 'run')}: {track.unlooked}"
    elif track.whole is None:
        yield f"{now}, {'unchanged' if figure.exact else 'no step'}"
    else:
        steps = count(len(track.steps), "step")
        yield f"{now}, {track.whole.told()} in {steps} from {figure.told(track.whole.old)}"
    for step in track.steps:
        where = "; ".join([step.commits(), *version_changes(step.before, step.after)])
        yield f"    {step.told():>8}  {where}"
