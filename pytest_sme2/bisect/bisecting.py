"""Measures changes of a row until the one is found that made a case worse."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path

from pytest_sme2.bisect.figures import LATENCY, missing_figures, worse_figure
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
from pytest_sme2.results import CaseResult, Check
from pytest_sme2.system.terminal import Say


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
        good, bad = (self._sure(self.probe(number)) for number in (0, self._last))
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

        border = find_border(len(self.row.changes), is_bad)
        return Bisection(self.row, self.probes, Culprit(figure.name, border))

    def by_latency(self) -> Bisection:
        """By pairs with the good end, on a device whose time means something."""
        self._sure(self.probe(0))
        with show_change(self.row, 0, self.out, self.say) as shown:
            good = shown.good_side(self.row.changes[0].short)
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

        border = find_border(len(self.row.changes), is_bad)
        return Bisection(self.row, self.probes, Culprit(LATENCY, border))

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
            return Probe(change, None, str(error))


def _pairs_of(probe: Probe) -> Check:
    if probe.latency is None:
        raise ValueError("it was compared")
    return probe.latency
