"""What a search found, in words and as JSON. Pure but for the commands, which name folders."""

from __future__ import annotations

from pytest_sme2.bisect.bisecting import FIGURES, LATENCY, NAMES, Bisection, Culprit, ExactFigure
from pytest_sme2.bisect.probing import Probe, is_slower
from pytest_sme2.results import CaseResult, Check
from pytest_sme2.system.wording import count
from pytest_sme2.verdict.judging import reference_of
from pytest_sme2.verdict.structure import difference_lines

_SHOWN = 12


def lines(found: Bisection, case: str, asked: str | None, run: str) -> list[str]:
    """A sentence, a table and the commands that show it; ``run`` is what runs the case."""
    row, culprit = found.row, found.culprit
    table = [_measured(found), *_table(found)]
    if culprit is None:
        what = asked or ", ".join(name for name in NAMES if name != LATENCY)
        good, bad = row.changes[0].short, row.changes[-1].short
        return [f"{case}: nothing is worse at {bad} than at {good} ({what}).", "", *table]
    border = culprit.border
    change = row.changes[border.first_bad]
    what = f"{change.short} made {case} worse"
    if row.backwards:
        fine = row.changes[border.last_good].short
        what = f"{case} is worse up to {change.short}, and fine from {fine} on"
    told = [f"{what}: {_change(found, culprit)}"]
    if change.subject:
        told.append(f"  {change.subject}")
    if border.doubtful:
        told.append(
            f"  {count(border.doubtful, row.noun)} between could not be judged: it may be one of "
            "them."
        )
    told += _causes(found, culprit)
    return [*told, "", *table, "", *row.commands(border, run)]


def _measured(found: Bisection) -> str:
    row = found.row
    return f"{count(len(found.probes), row.noun)} of {len(row.changes)} measured:"


def _figure_of(culprit: Culprit) -> ExactFigure | None:
    return next((figure for figure in FIGURES if figure.name == culprit.figure), None)


def _change(found: Bisection, culprit: Culprit) -> str:
    figure = _figure_of(culprit)
    if figure is None:
        probe = found.probes[culprit.border.first_bad]
        return "" if probe.latency is None else _latency(probe, probe.latency)
    old, new = (figure.value(side) or 0.0 for side in _sides(found, culprit))
    percent = f" ({(new / old - 1) * 100:+.2f} %)" if old else ""
    return f"{figure.what} {old:,.0f} -> {new:,.0f}{percent}"


def _latency(probe: Probe, check: Check) -> str:
    """In pairs with the good end, whichever change comes before this one."""
    old, new = ((value or 0.0) / 1e6 for value in (check.old, check.new))
    arm = "" if probe.measured is None else f" with SME2 {probe.measured.arm}"
    against = f"against {reference_of(check.metric)}"
    return f"latency{arm} {old:.3f} ms -> {new:.3f} ms ({_growth(check)}, {against})"


def _growth(check: Check) -> str:
    """How much slower, as surely as the pairs say it."""
    if check.old is None or check.new is None:
        return "the same"
    if check.interval is None:
        return f"{(check.new / check.old - 1) * 100:+.1f} %"
    low, high = ((end - 1) * 100 for end in check.interval)
    return f"{low:+.1f} % to {high:+.1f} %"


def _sides(found: Bisection, culprit: Culprit) -> list[CaseResult]:
    numbers = (culprit.border.last_good, culprit.border.first_bad)
    sides = [found.probes[number].measured for number in numbers]
    return [side for side in sides if side is not None]


def _causes(found: Bisection, culprit: Culprit) -> list[str]:
    """What else differs between the last good one and the first bad one."""
    old, new = _sides(found, culprit)
    program, runtime = old.pte_sha256 != new.pte_sha256, old.runtime != new.runtime
    told = []
    if runtime:
        told.append(f"  The runtime changed; the program {'did, too' if program else 'did not'}.")
    before, now = (case.structures.get(new.arm) for case in (old, new))
    changes = () if before is None or now is None else difference_lines(before, now)
    told += [f"    {line}" for line in changes[:_SHOWN]]
    if len(changes) > _SHOWN:
        told.append(f"    and {len(changes) - _SHOWN} more")
    return told


# --- the table ------------------------------------------------------------------------------------


def _table(found: Bisection) -> list[str]:
    rows = [_cells(found, number) for number in sorted(found.probes)]
    widths = [max((len(cells[column]) for cells in rows), default=0) for column in range(3)]
    return [
        f"  {name:{widths[0]}}  {value:>{widths[1]}}  {side:{widths[2]}}  {subject}".rstrip()
        for name, value, side, subject in rows
    ]


def _cells(found: Bisection, number: int) -> tuple[str, str, str, str]:
    probe = found.probes[number]
    change = probe.change
    if probe.measured is None:
        return change.short, "-", "skip", f"cannot be measured: {probe.problem.splitlines()[0]}"
    if probe.latency is not None:
        slower = is_slower(probe.latency)
        side = "skip" if slower is None else "bad" if slower else "good"
        reason = f"cannot tell: {probe.latency.message}" if slower is None else change.subject
        return change.short, _growth(probe.latency), side, reason
    return change.short, _value(found, probe), _side(found, number), change.subject


def _value(found: Bisection, probe: Probe) -> str:
    """The figure that was searched by, else the one that is looked at first."""
    figure = FIGURES[0] if found.culprit is None else _figure_of(found.culprit)
    if figure is None or probe.measured is None:
        return "-"
    value = figure.value(probe.measured)
    return "-" if value is None else f"{value:,.0f}"


def _side(found: Bisection, number: int) -> str:
    culprit = found.culprit
    return "bad" if culprit is not None and number >= culprit.border.first_bad else "good"


# --- JSON -----------------------------------------------------------------------------------------


def document(found: Bisection) -> dict[str, object]:
    culprit, row = found.culprit, found.row
    return {
        "kind": row.noun,
        "changes": len(row.changes),
        "figure": culprit and culprit.figure,
        "first_bad": culprit and row.changes[culprit.border.first_bad].key,
        "last_good": culprit and row.changes[culprit.border.last_good].key,
        "doubtful": culprit and culprit.border.doubtful,
        "probes": [_probe_document(found.probes[number]) for number in sorted(found.probes)],
    }


def _probe_document(probe: Probe) -> dict[str, object]:
    figures: dict[str, object] = {
        figure.name: None if probe.measured is None else figure.value(probe.measured)
        for figure in FIGURES
    }
    check = probe.latency
    if check is not None:
        figures[LATENCY] = {
            "good_ns": check.old,
            "here_ns": check.new,
            "interval": check.interval,
            "verdict": str(check.verdict),
        }
    return {"change": probe.change.key, "problem": probe.problem or None, "figures": figures}
