"""Looks at one change: what was measured of it, and its pairs with the good one.

It is kept in the run directory, one folder per change, so that a search can go on.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path

from pytest_sme2.bisect.row import Candidate, Row
from pytest_sme2.errors import Sme2Error, UsageError
from pytest_sme2.results import RUNTIME, Artifact, CaseResult, Check, Limits, Outcome
from pytest_sme2.runners.base import Runner
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

TRIES = (1, 4)
"""In time budgets: pairs that did not decide are measured once more, and longer."""


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
    """The slowdown that tells good from bad: half of what the bad end is sure to have.

    So a change is bad if it is nearer to the bad end, as with exact figures, and the pairs of a
    large slowdown decide soon.
    """
    sure = bad.interval[0] - 1 if bad.interval is not None else 0.0
    return max(tolerated, sure / 2)


def looks_needed(changes: int) -> int:
    """How many comparisons a search takes, if each one decides: the bad end, and the halving."""
    return 1 + math.ceil(math.log2(max(1, changes - 1)))


EMULATED = "emulated"


@dataclass(frozen=True)
class Probe:
    """One change that was looked at."""

    change: Candidate
    measured: CaseResult | None
    problem: str = ""
    """Why it could not be measured."""
    absent: bool = False
    """Whether the model is not there yet."""
    latency: Check | None = None
    """Its pairs with the good one, where these are what is searched by."""


Identity = tuple[str, ...]
"""What runs, by its content. Two that are the same take the same time."""


@dataclass(frozen=True)
class GoodSide:
    """What the good change runs: a program and a runner."""

    name: str
    artifact: Artifact
    runner: Runner
    limits: Limits

    @property
    def reference(self) -> OpenReference:
        key = (self.artifact.model, self.artifact.variant)
        return OpenReference(Reference("change", self.name), self.runner, {key: self.artifact})


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

    def good_side(self, name: str) -> GoodSide:
        bench = self.session.bench
        bench.require_timing()
        limits = self.session.limits(self.case)
        return GoodSide(name, self.session.artifact(self.case), bench.runner, limits)

    def compared(self, good: GoodSide, threshold: float, family: int) -> tuple[CaseResult, Check]:
        """In pairs with the good one; again, and longer, where they did not decide."""
        record = self._kept()
        if record is not None:
            known = decided(record.checks, good.name, threshold)
            if known is not None:
                return record.measured, known
        return self.session.retry_on_one_device(lambda: self._pairs(good, threshold, family))

    @property
    def identity(self) -> Identity:
        artifact, runner = self.session.artifact(self.case), self.session.bench.runner
        return (artifact.sha256, runner.sha256, *map(file_sha256, artifact.input_files))

    def _pairs(self, good: GoodSide, threshold: float, family: int) -> tuple[CaseResult, Check]:
        session, case = self.session, self.case
        found = session.measured(case, timed=False)
        limits = replace(good.limits, max_regression=threshold)
        versus = Versus(
            session.bench,
            case.id,
            session.folder(case) / "pairs",
            session.request(case, session.bench.arms[0]),
            good.reference,
            family=family * len(TRIES),
        )
        for budgets in TRIES:
            session.bench.cool_down()
            check = times.check_against(versus.measure(threshold, budgets), limits)
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
        # The model may have changed since then, or what exports it.
        artifact = session.artifact(case)
        if found.pte_sha256 != artifact.sha256:
            return False
        if not found.versions.items() >= artifact.versions.items():
            return False
        if found.versions.get(RUNTIME) != self._runtime:
            return False
        # The emulator's figures are those of any emulator, so none is needed to read them.
        if session.settings.device == EMULATED:
            return found.fingerprint.target == EMULATED
        return found.fingerprint == session.bench.target.fingerprint()

    @property
    def _runtime(self) -> str:
        """The version of ExecuTorch that runs it."""
        settings = self.session.settings
        bundled = settings.device_bundle is not None
        return self.session.bench.runner.executorch if bundled else sdk_version(settings.runtime)


@contextmanager
def show_change(row: Row, number: int, out: Path, say: Say) -> Iterator[ShownChange]:
    """Show a change, with its part of the run directory ``out``."""
    with row.shown(number) as settings:
        session = Session(replace(settings, out=out / row.changes[number].key), say)
        try:
            cases = session.cases()
            if len(cases) != 1:
                raise UsageError(f"it has {count(len(cases), 'case')} of that name.")
            yield ShownChange(session, cases[0])
        finally:
            session.close()
