"""Looks at changes of a row until the one is found that made a case worse.

What was measured is kept in the run directory, one folder per change, so that a search can go on.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator
from contextlib import closing, contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import cast

from pytest_sme2.bisect.row import Border, Row, RowEntry, find_border
from pytest_sme2.errors import DeviceTimeoutError, RunError, Sme2Error, TargetError, UsageError
from pytest_sme2.results import RUNTIME, Arm, CaseResult, Check, Limits, Outcome
from pytest_sme2.runners.sdk import sdk_version
from pytest_sme2.session.cases import Case
from pytest_sme2.session.reference import OpenReference, Reference
from pytest_sme2.session.run_directory import CaseRecord, find_records, read_record
from pytest_sme2.session.session import Session
from pytest_sme2.session.versus import Versus
from pytest_sme2.system.files import file_sha256
from pytest_sme2.system.terminal import Say
from pytest_sme2.system.wording import count
from pytest_sme2.verdict import times
from pytest_sme2.verdict.judging import metric_against

EMULATED = "emulated"
TRIES = (1, 4)
"""In time budgets: pairs that did not decide are measured once more, and longer."""


@dataclass(frozen=True)
class ExactFigure:
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
        low, high, here = map(self.value, (good, bad, now))
        if low is None or high is None or here is None:
            return None
        return (here - low) / (high - low) >= 0.5


# What is looked at, the most telling first.
FIGURES = {
    "cost": ExactFigure(
        "instructions with SME2 on",
        lambda case: case.costs[Arm.ON].total.instructions if Arm.ON in case.costs else None,
        tolerance=Limits().max_cost_growth,
    ),
    "coverage": ExactFigure(
        "matrix operators on SME2",
        lambda case: None if case.coverage is None else case.coverage.sme2_operators,
        more_is_worse=False,
    ),
    "operators": ExactFigure(
        "operators",
        lambda case: case.structures[case.arm].total if case.arm in case.structures else None,
    ),
    "size": ExactFigure("bytes of the program", lambda case: case.pte_bytes, tolerance=0.01),
}
LATENCY = "latency"
"""Not exact: pairs tell changes apart by it."""


def worse_figure(good: CaseResult, bad: CaseResult, asked: str | None) -> str | None:
    """The figure to look at: the one asked for, else the first that is worse; None if none is.
    Where an end does not have all figures, nothing is known then: that is an error.
    """
    looked_at = {name: figure for name, figure in FIGURES.items() if asked in (None, name)}
    missing = []
    for name, figure in looked_at.items():
        if figure.is_worse(good, bad):
            return name
        if None in (figure.value(good), figure.value(bad)):
            missing.append(name)
    if missing:
        raise RunError(
            f"Nothing that could be compared is worse, but {', '.join(missing)} could not: "
            f"{good.uncounted or bad.uncounted or 'an end of the search does not have it'}."
        )
    return None


def same_as_good(good: str) -> Check:
    """Of a change that runs the same program on the same runtime: no pair is needed."""
    message = f"The program and the runtime are those of {good}, byte for byte."
    return Check(metric_against("latency", good), Outcome.PASS, message)


def is_slower(check: Check) -> bool | None:
    """None where the pairs cannot tell: such a change is neither good nor bad."""
    if check.verdict is Outcome.REGRESSED:
        return True
    return False if check.verdict in (Outcome.PASS, Outcome.IMPROVED) else None


def decided(checks: Iterable[Check], good: str, threshold: float) -> Check | None:
    """What earlier pairs with the good change said by the same measure, if they could tell."""
    wanted = (metric_against("latency", good), threshold)
    found = (check for check in checks if (check.metric, check.limit) == wanted)
    return next((check for check in found if is_slower(check) is not None), None)


def halfway(bad: Check, tolerated: float) -> float:
    """The slowdown that tells good from bad: half of what the bad end is sure to have. Bad is what
    is nearer to the bad end, as with exact figures, and a large slowdown is decided soon.
    """
    sure = bad.interval[0] - 1 if bad.interval is not None else 0.0
    return max(tolerated, sure / 2)


def looks_needed(changes: int) -> int:
    """How many comparisons a search takes, if each one decides: the bad end, and the halving."""
    return 1 + math.ceil(math.log2(max(1, changes - 1)))


@dataclass(frozen=True)
class Probe:
    change: RowEntry
    measured: CaseResult | None
    problem: str = ""
    """Why it could not be measured."""
    absent: bool = False
    """Whether the model is not there yet."""
    latency: Check | None = None
    """Its pairs with the good one, where these are what is searched by."""


@dataclass
class ShownChange:
    """One change, shown, with a session of its own."""

    session: Session
    case: Case

    def measured(self) -> CaseResult:
        """Without times."""
        record = self._kept()
        if record is not None:
            return record.measured
        found = self.session.measured(self.case, timed=False)
        self.session.keep(self.case, found, ())
        return found

    def good_side(self, name: str) -> tuple[OpenReference, Limits]:
        """What the good change runs, and what it allows."""
        bench, artifact = self.session.bench, self.session.artifact(self.case)
        bench.require_timing()
        programs = {(artifact.model, artifact.variant): artifact}
        good = OpenReference(Reference("change", name), bench.runner, programs)
        return good, self.session.limits(self.case)

    def compared(
        self, good: OpenReference, limits: Limits, family: int
    ) -> tuple[CaseResult, Check]:
        """In pairs with the good one; again, and longer, where they did not decide."""
        record = self._kept()
        if record is not None:
            known = decided(record.checks, good.reference.name, limits.max_regression)
            if known is not None:
                return record.measured, known
        return self.session.retry_on_one_device(lambda: self._pairs(good, limits, family))

    @property
    def identity(self) -> tuple[str, ...]:
        """What runs, by its content. Two that are the same take the same time."""
        artifact, runner = self.session.artifact(self.case), self.session.bench.runner
        return (artifact.sha256, runner.sha256, *map(file_sha256, artifact.input_files))

    def _pairs(self, good: OpenReference, limits: Limits, family: int) -> tuple[CaseResult, Check]:
        session, case = self.session, self.case
        found = session.measured(case, timed=False)
        versus = Versus(
            session.bench,
            case.id,
            session.folder(case) / "pairs",
            session.request(case, session.bench.arms[0]),
            good,
            family=family * len(TRIES),
        )
        for budgets in TRIES:
            session.bench.cool_down()
            check = times.check_against(versus.measure(limits.max_regression, budgets), limits)
            if is_slower(check) is not None:
                break
        session.keep(case, found, (check,))
        return found, check

    def _kept(self) -> CaseRecord | None:
        """What an earlier search that was broken off has measured of this program."""
        out = self.session.out
        for folder in find_records(out) if out.is_dir() else ():
            try:
                record = read_record(folder)
            except Sme2Error:
                continue  # broken off while it was written: measured again
            if self._is_of_this(record.measured):
                return record
        return None

    def _is_of_this(self, found: CaseResult) -> bool:
        session, case = self.session, self.case
        if (found.model, found.variant) != (case.model, case.variant_name):
            return False
        # The model may have changed since then, or what exports it, or the ExecuTorch that runs it.
        artifact, settings = session.artifact(case), session.settings
        bundled = settings.device_bundle is not None
        runtime = session.bench.runner.executorch if bundled else sdk_version(settings.runtime)
        if found.pte_sha256 != artifact.sha256 or found.versions.get(RUNTIME) != runtime:
            return False
        if not found.versions.items() >= artifact.versions.items():
            return False
        # The emulator's figures are those of any emulator, so none is needed to read them.
        if settings.device == EMULATED:
            return found.fingerprint.target == EMULATED
        return found.fingerprint == session.bench.target.fingerprint()


@contextmanager
def show_change(row: Row, number: int, out: Path, say: Say) -> Iterator[ShownChange]:
    """Show a change, with its part of the run directory ``out``."""
    with row.shown(number) as settings:
        settings = replace(settings, out=out / row.changes[number].key)
        with closing(Session(settings, say)) as session:
            cases = session.cases()
            if len(cases) != 1:
                raise UsageError(f"it has {count(len(cases), 'case')} of that name.")
            yield ShownChange(session, cases[0])


@dataclass
class Bisecting:
    """One search: it ends with the border, or with None where nothing is worse."""

    row: Row
    out: Path
    say: Say
    probes: dict[int, Probe] = field(default_factory=dict)
    _judged: dict[tuple[str, ...], Check] = field(default_factory=dict)
    """What the pairs said, by what ran: most changes do not change the program."""
    _good: OpenReference | None = None
    """What all others are compared with in pairs; None while exact figures are enough."""
    _limits: Limits = field(default_factory=Limits)

    @property
    def _last(self) -> int:
        return len(self.row.changes) - 1

    def by_figure(self, asked: str | None) -> Border | None:
        """By the exact figure that is asked for, else the first that is worse."""
        first = self._first()
        good, bad = (self._sure(self._probe(number)) for number in (first, self._last))
        name = worse_figure(good, bad, asked)
        if name is None:
            return None

        def is_bad(number: int) -> bool | None:
            measured = self._probe(number).measured
            return None if measured is None else FIGURES[name].is_bad(good, bad, measured)

        return replace(find_border(self._last + 1, is_bad, first), figure=name)

    def by_latency(self) -> Border | None:
        """By pairs with the good end, on a device whose time means something."""
        first = self._first()
        self._sure(self._probe(first))
        with show_change(self.row, first, self.out, self.say) as shown:
            good = self.row.changes[first].short
            self._good, self._limits = shown.good_side(good)
            self._judged[shown.identity] = same_as_good(good)
        probe = self._probe(self._last)
        self._sure(probe)
        check = cast(Check, probe.latency)
        slower = is_slower(check)
        if slower is None:
            raise RunError(
                f"Pairs cannot tell whether {probe.change.short} is slower than {good}. "
                f"{check.message}"
            )
        if not slower:
            return None
        threshold = halfway(check, self._limits.max_regression)
        self._limits = replace(self._limits, max_regression=threshold)

        def is_bad(number: int) -> bool | None:
            found = self._probe(number).latency
            return None if found is None else is_slower(found)

        return replace(find_border(self._last + 1, is_bad, first), figure=LATENCY)

    def _first(self) -> int:
        """The good end: the first change from there on that has the model."""
        # Where the bad end has none either, it is not worth looking between them.
        if not self._probe(0).absent or self._tried(self._last).absent:
            return 0
        return next((n for n in range(1, self._last) if not self._probe(n).absent), 0)

    def _sure(self, probe: Probe) -> CaseResult:
        """One that has to be measured: an end of the row."""
        if probe.measured is None:
            name = "--good" if probe.change == self.row.changes[0] else "--bad"
            raise UsageError(
                f"{probe.change.short}, which {name} names, cannot be measured: {probe.problem} "
                f"Name a {self.row.noun} that can."
            )
        return probe.measured

    def _probe(self, number: int) -> Probe:
        """The exact figures of one change, or its pairs with the good one."""
        if number not in self.probes:
            self.probes[number] = self._tried(number)
        return self.probes[number]

    def _tried(self, number: int) -> Probe:
        change = self.row.changes[number]
        self.say(f"{change.short} {change.subject}".strip())
        try:
            with show_change(self.row, number, self.out, self.say) as shown:
                if self._good is None:
                    return Probe(change, shown.measured())
                same = self._judged.get(shown.identity)
                if same is not None:
                    return Probe(change, shown.measured(), latency=same)
                family = looks_needed(len(self.row.changes))
                found, check = shown.compared(self._good, self._limits, family)
                if is_slower(check) is not None:
                    self._judged[shown.identity] = check
                return Probe(change, found, latency=check)
        except Sme2Error as error:
            if isinstance(error, TargetError) and not isinstance(error, DeviceTimeoutError):
                # Without the device, no other change can be measured either.
                raise
            return Probe(change, None, str(error), absent=isinstance(error, UsageError))
