"""What a frontier says in words, which of its cells moved, what a baseline keeps of it. Pure."""

from __future__ import annotations

import math
from collections.abc import Iterator

from pytest_sme2.results import MATTERS, Arm, Frontier, FrontierCell, Ship, StoredFrontier
from pytest_sme2.system.wording import count
from pytest_sme2.verdict.judging import estimate_text
from pytest_sme2.verdict.stored_latency import significant, steady_speedup


def arm_word(arm: Arm, sme1: bool) -> str:
    return "NEON" if arm is Arm.OFF else "SME1" if sme1 else "SME2"


def cell_name(cell: FrontierCell, found: Frontier, sme1: bool) -> str:
    threads = count(cell.threads, "thread")
    return threads if found.alone else f"{arm_word(cell.arm, sme1)} with {threads}"


def decision_text(found: Frontier, sme1: bool = False) -> str:
    """The decision in one sentence."""
    best, other = found.cells[found.candidate], found.cells[found.reference]
    text = estimate_text(found.speedup)
    name, rival = (cell_name(cell, found, sme1) for cell in (best, other))
    of = f"the next best ({rival})"
    if not found.alone:
        of = f"your best {arm_word(other.arm, sme1)} ({count(other.threads, 'thread')})"
    if found.ship is Ship.CANDIDATE:
        return f"Ship {name}: {text} of {of}."
    if found.ship is Ship.REFERENCE:
        return f"{rival} is better: {name} is {text} of it."
    head = "No difference that matters" if found.ship is Ship.EITHER else "Too close to tell"
    return f"{head}: {name} is {text} of {of}."


def same_cells(old: StoredFrontier | None, new: Frontier) -> bool:
    """Whether both are about the same cells: of others, the best is another thing."""
    cells = {(arm, count) for arm, of in (old.times_ns if old else {}).items() for count in of}
    return cells == {(cell.arm, str(cell.threads)) for cell in new.cells}


def stored_frontier(old: StoredFrontier | None, new: Frontier | None) -> StoredFrontier | None:
    """What a baseline keeps: the old one where the new one differs by noise, or says nothing."""
    if new is None or new.throttled or new.alone:
        return old
    before = old.speedup if old is not None and same_cells(old, new) else None
    speedup = steady_speedup(before, new.speedup)
    if speedup is None or speedup is before:
        return old
    times: dict[Arm, dict[str, float]] = {}
    for cell in new.cells:
        times.setdefault(cell.arm, {})[str(cell.threads)] = significant(cell.median_ns)
    chosen = (new.cells[index] for index in (new.candidate, new.reference))
    return StoredFrontier(speedup, {cell.arm: cell.threads for cell in chosen}, times)


def moved_cells(found: Frontier, stored: StoredFrontier, sme1: bool) -> Iterator[str]:
    """The cells whose time is not what it was, the largest change first; then other choices."""
    changes = []
    for cell in found.cells:
        before = stored.times_ns.get(cell.arm, {}).get(str(cell.threads))
        if before and abs(math.log(cell.median_ns / before)) > math.log1p(MATTERS):
            changes.append((cell, before))
    changes.sort(key=lambda entry: -abs(math.log(entry[0].median_ns / entry[1])))
    for cell, before in changes:
        now = cell.median_ns
        change = f"{abs(now / before - 1):.0%} {'longer' if now > before else 'less'}"
        name = cell_name(cell, found, sme1)
        yield f"{name} takes {change} ({before / 1e6:.3f} to {now / 1e6:.3f} ms)"
    for index in (found.candidate, found.reference):
        cell = found.cells[index]
        best = stored.best.get(cell.arm, cell.threads)
        if best != cell.threads:
            yield f"the best of {arm_word(cell.arm, sme1)} was {count(best, 'thread')}"
