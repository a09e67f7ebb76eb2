"""Profiles, comparisons and numbers of threads as tables for a terminal. Pure."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Sequence

from pytest_sme2.profile.coverage import sme2_states
from pytest_sme2.report.findings import comparison_findings, profile_findings
from pytest_sme2.report.text import WIDTH, aligned, bullet, clipped, duration, percent, times
from pytest_sme2.results import (
    CaseResult,
    Change,
    Comparison,
    Frontier,
    FrontierCell,
    OperatorChange,
    Profile,
)
from pytest_sme2.system.wording import count
from pytest_sme2.timing.stats import centre_interval
from pytest_sme2.verdict.ratios import arm_word, cell_name, decision_text

TOP = 10
_SUMMARY = "{:<34}{:>10}{:>16}{:>12}"
_COUNT = "{:<34}{:>10}"
_OPERATOR = "{:<46}{:>13}{:>10}{:>8}"
_CHANGE = "{:<38}{:>14}{:>14}{:>10}"
UNTIMED = "times of an emulated CPU say nothing about hardware and are left out"


def profile_text(name: str, profile: Profile, *, timed: bool = True) -> str:
    """The whole answer for one profile: breakdown, costliest operators, findings.

    Without ``timed`` nothing but counts: the times of an emulated CPU would mislead.
    """
    latency = profile.end_to_end
    heading = f"{count(profile.runs, 'run')} of {clipped(profile.method, 20)!r}"
    if timed:
        median, low, high = map(duration, (latency.median, latency.p5, latency.p95))
        heading += f": median {median}, 5-95 % {low} to {high}"
    return "\n".join(
        [
            clipped(name, WIDTH),
            heading,
            "",
            *_breakdown(profile, timed),
            "",
            *([*_costliest(profile), ""] if timed else [bullet(UNTIMED)]),
            *(bullet(finding) for finding in profile_findings(profile, timed=timed)),
        ]
    )


def _breakdown(profile: Profile, timed: bool) -> Iterator[str]:
    """Categories with their kinds, by time, or without ``timed`` their numbers alone."""
    form = _SUMMARY if timed else _COUNT

    def row(name: str, number: int | str, ns: float) -> str:
        return form.format(name, number, duration(ns), percent(profile.share(ns)))

    def rank(part: tuple[object, float]) -> float:
        return -part[1] if timed else 0.0

    yield form.format("category", "operators", "time", "share")
    for category, ns in sorted(profile.category_ns.items(), key=rank):
        if not profile.category_counts[category]:
            continue
        yield row(category, profile.category_counts[category], ns)
        for (place, kind), kind_ns in sorted(profile.kind_ns.items(), key=rank):
            if place is category:
                number = profile.kind_counts[category, kind]
                yield row("  " + clipped(kind, 30), number, kind_ns)
    if timed:
        yield row("overhead", "", profile.overhead_ns)
    yield row("total", len(profile.operators), profile.end_to_end.median)


def _costliest(profile: Profile) -> Iterator[str]:
    ranked = sorted(profile.operators, key=lambda member: -member.share)[:TOP]
    states = sme2_states(profile)
    yield _OPERATOR.format("operator", "time", "share", "SME2")
    for member in ranked:
        state = states[member.index]
        word = "?" if state is None else "yes" if state else "no"
        yield _OPERATOR.format(
            clipped(member.label, 45),
            duration(member.time_ns),
            percent(member.share),
            word if member.operator.matrix else "",
        )
    left = len(profile.operators) - len(ranked)
    if left:
        yield f"and {count(left, 'operator')} more"


def comparison_text(comparison: Comparison, *, timed: bool = True, more: Sequence[str] = ()) -> str:
    """Two profiles side by side, and what was found, with ``more`` of that."""
    if not timed:
        findings = [*comparison_findings(comparison, timed=False), *more] or ["the same operators"]
        return "\n".join(bullet(line) for line in (UNTIMED, *findings))
    before, after = clipped(comparison.before_name, 13), clipped(comparison.after_name, 13)
    ranked = sorted(comparison.operators, key=lambda change: -abs(change.delta_ns))[:TOP]
    return "\n".join(
        [
            _CHANGE.format("", before, after, "faster"),
            *(_part(change) for change in comparison.categories),
            _part(comparison.overhead),
            _part(comparison.end_to_end),
            "",
            _CHANGE.format("kind", before, after, "faster"),
            *(_part(change) for change in comparison.kinds),
            "",
            _CHANGE.format("operators that changed most", before, after, "faster"),
            *(_operator(change) for change in ranked),
            "",
            *(bullet(finding) for finding in (*comparison_findings(comparison), *more)),
        ]
    )


def _change(name: str, *times_ns: float | None, ratio: float | None) -> str:
    told = ("-" if ns is None else duration(ns) for ns in times_ns)
    return _CHANGE.format(clipped(name, 37), *told, times(ratio))


def _part(change: Change) -> str:
    ratio = change.ratio if change.before_ns else None
    return _change(change.name, change.before_ns, change.after_ns, ratio=ratio)


def _operator(change: OperatorChange) -> str:
    before, after = change.before, change.after
    member = after or before
    label = member.label if member else ""
    sides = (None if side is None else side.time_ns for side in (before, after))
    return _change(label, *sides, ratio=change.ratio)


def sme2_moves(
    comparison: Comparison, before: Profile, after: Profile
) -> tuple[list[str], list[str]]:
    """The operators that moved to SME2 kernels, and those that left them, as 'A -> B'."""
    states = sme2_states(before), sme2_states(after)
    moved: list[str] = []
    left: list[str] = []
    for change in comparison.operators:
        if change.before is None or change.after is None:
            continue
        old, new = states[0][change.before.index], states[1][change.after.index]
        names = f"{change.before.operator.name} -> {change.after.operator.name}"
        if new is True and old is not True:
            moved.append(names)
        elif old is True and new is not True:
            left.append(names)
    return moved, left


def sme2_move_lines(comparison: Comparison, before: Profile, after: Profile) -> list[str]:
    """What moved to SME2, what left it, or that nothing is on it."""
    lines = []
    matrix = after.coverage.matrix_operators
    moved, left = sme2_moves(comparison, before, after)
    for word, names in (("moved to", moved), ("left", left)):
        if names:
            counted = Counter(names).most_common()
            shown = "; ".join(f"{many} x {name}" for name, many in counted)
            lines.append(f"{len(names)} of {count(matrix, 'matrix operator')} {word} SME2: {shown}")
    if not before.coverage.sme2_operators and not after.coverage.sme2_operators:
        lines.append(f"on neither side is one of {count(matrix, 'matrix operator')} on SME2")
    return lines


CHOSEN = "*"


def frontier_rows(measured: CaseResult, found: Frontier) -> tuple[list[str], list[list[str]]]:
    """The titles, and the rows with the best of each arm marked."""
    arms = list(dict.fromkeys(cell.arm for cell in found.cells))
    both, best = not found.alone, found.best
    known: dict[str, Callable[[FrontierCell], str]] = {
        "cores": lambda cell: cell.cores,
        "on slow cores": _slow,
    }
    shown = {name: text for name, text in known.items() if any(map(text, found.cells))}
    sme1 = measured.fingerprint.sme1
    names = [arm_word(arm, sme1) if both else "time" for arm in arms]
    rows = []
    for threads in dict.fromkeys(cell.threads for cell in found.cells):
        members = {
            cell.arm: (index, cell)
            for index, cell in enumerate(found.cells)
            if cell.threads == threads
        }
        measured_times = [_time(*members[arm], best) for arm in arms]
        more = [
            " / ".join(dict.fromkeys(text(cell) for _, cell in members.values()))
            for text in shown.values()
        ]
        rows.append([str(threads), *measured_times, *more])
    return ["threads", *names, *shown], rows


def _time(index: int, cell: FrontierCell, best: frozenset[int]) -> str:
    bounds = centre_interval(cell.medians_ns)
    text = duration(cell.median_ns)
    if bounds is not None:
        low, high = (duration(bound).split()[0] for bound in bounds)
        text += f" [{low}, {high}]"
    return f"{text} {CHOSEN}" if index in best else text


def _slow(cell: FrontierCell) -> str:
    return "" if cell.efficiency_share is None else percent(cell.efficiency_share)


def frontier_lines(measured: CaseResult) -> Iterator[str]:
    """The table, then the decision, then what to know about it."""
    found = measured.frontier
    if found is None:
        return
    titles, rows = frontier_rows(measured, found)
    yield from aligned([titles, *rows])
    yield from frontier_notes(measured, found)


def frontier_notes(measured: CaseResult, found: Frontier) -> Iterator[str]:
    sme1 = measured.fingerprint.sme1
    yield decision_text(found, sme1)
    yield (
        f"{CHOSEN} is the best of its arm, chosen on one half of {count(found.rounds, 'round')}, "
        f"judged on the other; {found.speedup.confidence:.1%} confidence; {found.stopped_because}"
    )
    if found.unsure:
        names = ", ".join(cell_name(found.cells[index], found, sme1) for index in found.unsure)
        yield f"not told apart from the best of its arm: {names}; measure longer (--budget)"
    hot = found.throttled
    if hot:
        yield f"the device slowed itself down in {count(hot, 'round')} that counts"
    yield from found.notes
