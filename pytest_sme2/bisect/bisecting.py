"""Measures changes of a row until the one is found that made a case worse: by its exact figures."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

from pytest_sme2.bisect.probing import (
    GoodSide,
    Identity,
    Probe,
    halfway,
    is_slower,
    looks_needed,
    same_as_good,
    show_change,
)
from pytest_sme2.bisect.row import Border, Row, find_border
from pytest_sme2.errors import DeviceTimeoutError, RunError, Sme2Error, TargetError, UsageError
from pytest_sme2.results import Arm, CaseResult, Check, Limits
from pytest_sme2.system.terminal import Say


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
"""Not exact: ``probing.py`` tells changes apart by it."""
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


@dataclass(frozen=True)
class Culprit:
    """The first bad change, and the last good one before it."""

    figure: str
    border: Border


@dataclass(frozen=True)
class Bisection:
    """What came of it."""

    row: Row
    probes: dict[int, Probe]
    culprit: Culprit | None
    """None where nothing is worse."""


@dataclass
class Bisecting:
    """One search."""

    row: Row
    out: Path
    say: Say
    probes: dict[int, Probe] = field(default_factory=dict)
    _judged: dict[Identity, Check] = field(default_factory=dict)
    """What the pairs said, by what ran: most changes do not change the program."""

    @property
    def _last(self) -> int:
        return len(self.row.changes) - 1

    def by_figure(self, asked: str | None) -> Bisection:
        """By the exact figure that is asked for, else the first that is worse."""
        first = self._first()
        good, bad = (self._sure(self.probe(number)) for number in (first, self._last))
        figure = worse_figure(good, bad, asked)
        if figure is None:
            if missing := missing_figures(good, bad, asked):
                raise RunError(
                    f"Nothing that could be compared is worse, but {', '.join(missing)} could not: "
                    f"{good.uncounted or bad.uncounted or 'an end of the search does not have it'}."
                )
            return Bisection(self.row, self.probes, None)

        def is_bad(number: int) -> bool | None:
            measured = self.probe(number).measured
            return None if measured is None else figure.is_bad(good, bad, measured)

        border = find_border(len(self.row.changes), is_bad, first)
        return Bisection(self.row, self.probes, Culprit(figure.name, border))

    def by_latency(self) -> Bisection:
        """By pairs with the good end, on a device whose time means something."""
        first = self._first()
        self._sure(self.probe(first))
        with show_change(self.row, first, self.out, self.say) as shown:
            good = shown.good_side(self.row.changes[first].short)
            self._judged[shown.identity] = same_as_good(good.name)
        tolerated = good.limits.max_regression
        probe = self.compared(self._last, good, tolerated)
        self._sure(probe)
        check = _pairs_of(probe)
        slower = is_slower(check)
        if slower is None:
            raise RunError(
                f"Pairs cannot tell whether {probe.change.short} is slower than {good.name}. "
                f"{check.message}"
            )
        if not slower:
            return Bisection(self.row, self.probes, None)
        threshold = halfway(check, tolerated)

        def is_bad(number: int) -> bool | None:
            found = self.compared(number, good, threshold).latency
            return None if found is None else is_slower(found)

        border = find_border(len(self.row.changes), is_bad, first)
        return Bisection(self.row, self.probes, Culprit(LATENCY, border))

    def _first(self) -> int:
        """The good end: the first change from there on that has the model."""
        # Where the bad end has none either, it is not worth looking between them.
        if not self.probe(0).absent or self._tried(self._last, None, 0.0).absent:
            return 0
        return next((n for n in range(1, self._last) if not self.probe(n).absent), 0)

    def _sure(self, probe: Probe) -> CaseResult:
        """One that has to be measured: an end of the row."""
        if probe.measured is None:
            name = "--good" if probe.change == self.row.changes[0] else "--bad"
            raise UsageError(
                f"{probe.change.short}, which {name} names, cannot be measured: {probe.problem} "
                f"Name a {self.row.noun} that can."
            )
        return probe.measured

    def probe(self, number: int) -> Probe:
        """The exact figures of one change."""
        if number not in self.probes:
            self.probes[number] = self._tried(number, None, 0.0)
        return self.probes[number]

    def compared(self, number: int, good: GoodSide, threshold: float) -> Probe:
        """One change in pairs with the good one."""
        if number not in self.probes:
            self.probes[number] = self._tried(number, good, threshold)
        return self.probes[number]

    def _tried(self, number: int, good: GoodSide | None, threshold: float) -> Probe:
        change = self.row.changes[number]
        self.say(f"{change.short} {change.subject}".strip())
        try:
            with show_change(self.row, number, self.out, self.say) as shown:
                if good is None:
                    return Probe(change, shown.measured())
                same = self._judged.get(shown.identity)
                if same is not None:
                    return Probe(change, shown.measured(), latency=same)
                family = looks_needed(len(self.row.changes))
                found, check = shown.compared(good, threshold, family)
                if is_slower(check) is not None:
                    self._judged[shown.identity] = check
                return Probe(change, found, latency=check)
        except Sme2Error as error:
            if isinstance(error, TargetError) and not isinstance(error, DeviceTimeoutError):
                # Without the device, no other change can be measured either.
                raise
            return Probe(change, None, str(error), absent=isinstance(error, UsageError))


def _pairs_of(probe: Probe) -> Check:
    if probe.latency is None:
        raise ValueError("it was compared")
    return probe.latency
