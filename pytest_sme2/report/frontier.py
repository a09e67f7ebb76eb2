"""A frontier as a table of text: a row per number of threads, a column per arm. Pure."""

from __future__ import annotations

from collections.abc import Callable, Iterator

from pytest_sme2.report.text import aligned, duration, percent
from pytest_sme2.results import CaseResult, Frontier, FrontierCell
from pytest_sme2.system.wording import count
from pytest_sme2.timing.stats import centre_interval
from pytest_sme2.verdict.frontier import arm_word, cell_name, decision_text

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
        times = [_time(*members[arm], best) for arm in arms]
        more = [
            " / ".join(dict.fromkeys(text(cell) for _, cell in members.values()))
            for text in shown.values()
        ]
        rows.append([str(threads), *times, *more])
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
