"""The exact figures of a case by which commits are told apart. Pure."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from pytest_sme2.errors import UsageError
from pytest_sme2.results import Arm, CaseResult, Limits


@dataclass(frozen=True)
class ExactFigure:
    """One figure of a case."""

    name: str
    what: str
    value: Callable[[CaseResult], float | None]
    more_is_worse: bool = True
    tolerance: float = 0.0
    """How much it may grow, as a share of it, and still be the same."""

    def is_worse(self, old: CaseResult, new: CaseResult) -> bool:
        before, now = self.value(old), self.value(new)
        if before is None or now is None:
            return False
        growth = now - before if self.more_is_worse else before - now
        return growth > abs(before) * self.tolerance

    def is_bad(self, good: CaseResult, bad: CaseResult, now: CaseResult) -> bool | None:
        """Whether it is nearer to the bad end than to the good one; None where it is missing."""
        values = [self.value(case) for case in (good, bad, now)]
        if any(value is None for value in values):
            return None
        low, high, here = (float(value) for value in values if value is not None)
        return (here - low) / (high - low) >= 0.5


def _instructions(case: CaseResult) -> float | None:
    cost = case.costs.get(Arm.ON)
    return None if cost is None else cost.total.instructions


def _operators(case: CaseResult) -> float | None:
    structure = case.structures.get(case.arm)
    return None if structure is None else structure.total


def _on_sme2(case: CaseResult) -> float | None:
    coverage = case.coverage
    return None if coverage is None else coverage.sme2_operators


# What is looked at, the most telling first.
FIGURES = (
    ExactFigure(
        "cost", "instructions with SME2 on", _instructions, tolerance=Limits().max_cost_growth
    ),
    ExactFigure("coverage", "matrix operators on SME2", _on_sme2, more_is_worse=False),
    ExactFigure("operators", "operators", _operators),
    ExactFigure("size", "bytes of the program", lambda case: case.pte_bytes, tolerance=0.01),
)
LATENCY = "latency"
"""Not exact: ``pairs.py`` tells changes apart by it."""
NAMES = (*(figure.name for figure in FIGURES), LATENCY)


def worse_figure(good: CaseResult, bad: CaseResult, asked: str | None) -> ExactFigure | None:
    """The figure to look at: the one asked for, else the first that is worse; None if none is."""
    if asked is not None and asked not in NAMES:
        raise UsageError(f"{asked!r} is not a figure. Choose one of: {', '.join(NAMES)}.")
    chosen = [figure for figure in FIGURES if asked in (None, figure.name)]
    return next((figure for figure in chosen if figure.is_worse(good, bad)), None)


def missing_figures(good: CaseResult, bad: CaseResult, asked: str | None) -> list[str]:
    """Those that one of the ends does not have, so that nothing is known of them."""
    return [
        figure.name
        for figure in FIGURES
        if asked in (None, figure.name) and None in (figure.value(good), figure.value(bad))
    ]
