"""Compares one case with its baseline and limits, and keeps what each check found.

It knows nothing of pytest, which makes one failure of all failed checks when a test has ended.
"""

from __future__ import annotations

import contextlib
import functools
import inspect
import statistics
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Concatenate, ParamSpec

from pytest_sme2.errors import BaselineError, NotMeasurableError
from pytest_sme2.results.case import Baseline, CaseResult, Check, Limits
from pytest_sme2.results.run import Arm
from pytest_sme2.results.timing import Outcome
from pytest_sme2.session.cases import Case
from pytest_sme2.session.reference import AgainstReference, OpenReference
from pytest_sme2.session.session import Session
from pytest_sme2.verdict import (
    cost,
    generation,
    judging,
    numerics,
    ratios,
    structure,
    times,
)
from pytest_sme2.verdict.structure import TRACED_PAIRS, Growth, growth_of, located

_Choices = ParamSpec("_Choices")
_Make = Callable[Concatenate["Gate", _Choices], Iterable[Check]]
_Checking = Callable[Concatenate["Gate", _Choices], None]


def _reported(metric: str) -> Callable[[_Make[_Choices]], _Checking[_Choices]]:
    """Of what makes checks: they are concluded. What the device cannot measure is reported, and
    the next check goes on.
    """

    def decorate(make: _Make[_Choices]) -> _Checking[_Choices]:
        @functools.wraps(make)
        def check(self: Gate, /, *given: _Choices.args, **choices: _Choices.kwargs) -> None:
            try:
                self._check(lambda: make(self, *given, **choices))
            except NotMeasurableError as error:
                self.checks.append(Check(metric, Outcome.NOT_MEASURED, str(error)))

        # As users call it.
        shown = inspect.signature(make).replace(return_annotation=None)
        check.__signature__ = shown  # type: ignore[attr-defined]
        return check

    return decorate


class Gate:
    """The checks of one case. Each measures what it needs, and no more."""

    def __init__(
        self,
        session: Session,
        case: Case,
        conclude: Callable[[Sequence[Check]], None],
    ) -> None:
        """``conclude`` hears of each check's verdict."""
        self.session = session
        self.case = case
        self._conclude = conclude
        self.growth: Growth | None = None
        """Where the time went, once pairs were traced."""
        self.checks: list[Check] = []
        self._open: list[Check] = []
        self.used_reference = False
        """Whether a check used what ``--against`` names."""

    @property
    def measured(self) -> CaseResult:
        """What was measured so far: timing is in it once a check has asked for it."""
        return self.session.measured(self.case, timed=False)

    @property
    def timed(self) -> CaseResult:
        """What was measured, timing included; an error where the target cannot measure it."""
        return self.session.measured(self.case, timed=True)

    @property
    def limits(self) -> Limits:
        return self.session.limits(self.case)

    @property
    def baseline(self) -> Baseline | None:
        return self.session.baseline(self.case)

    @_reported("evidence")
    def check_evidence(self) -> Iterator[Check]:
        """The on run shows SME2 kernels and the off run shows none."""
        self.session.bench.require_sme2()
        yield structure.check_evidence(self.measured)

    @_reported("SME2 coverage")
    def check_coverage(self) -> Iterator[Check]:
        """The share of matrix operators on SME2 kernels."""
        self.session.bench.require_sme2()
        for arm in self.session.bench.arms:
            if arm is not Arm.OFF:
                yield structure.check_coverage(self.measured, self.baseline, self.limits, arm)

    @_reported("operators")
    def check_operators(self) -> Iterator[Check]:
        """The operators of the program, name by name, on each arm."""
        for arm in self.session.bench.arms:
            yield structure.check_operators(self.measured, self.baseline, arm)

    @_reported("portable operators")
    def check_delegation(self) -> Iterator[Check]:
        """How many operators XNNPACK took, and how many fell back to portable kernels."""
        for arm in self.session.bench.arms:
            yield structure.check_delegation(self.measured, self.baseline, arm)

    @_reported("kernels")
    def check_kernels(self) -> Iterator[Check]:
        """The kernels that ran, where the target can name them."""
        known = self.measured.kernels
        if not known:
            raise NotMeasurableError(
                f"{self.session.bench.target.name} does not tell which kernels ran"
            )
        for arm in known:
            yield structure.check_kernels(self.measured, self.baseline, arm)

    @_reported("program size")
    def check_size(self) -> Iterator[Check]:
        """The size of the program's file."""
        yield ratios.check_size(self.measured, self.baseline, self.limits)

    @_reported("cost")
    def check_cost(self) -> Iterator[Check]:
        """The instructions that one inference executes, where the target can count them; of a
        language model those of each phase of a generation, too.
        """
        reason = self.session.uncounted(self.case)
        if reason:
            raise NotMeasurableError(reason)
        for arm in self.session.bench.arms:
            yield cost.check_cost(self.measured, self.baseline, self.limits, arm)
        yield from generation.check_costs(self.measured, self.baseline, self.limits)

    @_reported("outputs")
    def check_outputs(self, against: str = "reference") -> Iterator[Check]:
        """The outputs against the eager model (``reference``) or SME2 on against ``off``; with the
        former, those of a generation's last step.
        """
        if against == "off":
            self.session.bench.require_sme2()
        yield numerics.check_outputs(self.measured, self.limits, against)
        yield from generation.check_outputs(self.measured, self.limits, against)

    def check_latency(self) -> None:
        """The process medians of each arm against the stored sessions, and ``check_budgets``."""
        self._check_stored_latency()
        self.check_budgets()

    @_reported("budgets")
    def check_budgets(self) -> Iterator[Check]:
        """What an inference may take at most, and lose under load; nothing where nobody asks."""
        limits, asked = self.limits, self.session.settings.sustain_seconds is not None
        if asked or limits.max_latency or limits.max_p95 or limits.max_sustained_loss is not None:
            measured = self.timed if self.session.bench.timed else self.measured
            yield from times.check_budgets(measured, limits)
            yield from times.check_sustained(measured, limits, asked)

    @_reported("latency")
    def _check_stored_latency(self) -> Iterator[Check]:
        """The process medians of each arm against the stored sessions.

        Where the old program is at hand, it is run again beside the new one before a slower number
        fails a test.
        """
        measured, arms = self.timed, self.session.bench.arms
        given = (measured, self.baseline, self.limits)
        stored = {
            arm: [times.check_latency(*given, arm), *times.check_phases(*given, arm)]
            for arm in arms
        }
        doubtful = [arm for arm in arms if any(map(times.in_doubt, stored[arm]))]
        current = () if self.baseline is None else self.baseline.current(measured.threads)
        if doubtful and times.can_be_paired(measured, current):
            reference = self.session.baseline_reference(self.case)
            for arm in doubtful:
                if reference is not None:
                    stored[arm] = self._with_pairs(stored[arm], self._against(reference, arm), arm)
        for checks in stored.values():
            yield from checks

    def _with_pairs(self, stored: list[Check], against: AgainstReference, arm: Arm) -> list[Check]:
        """The stored times of an arm, the whole and its phases, with what pairs say of those in
        doubt.
        """
        operators, *phases, whole = self._compared(against, arm)
        paired = [whole, *phases]
        paired += stored[len(paired) :]
        return [
            operators,
            *(
                times.stored_or_paired(old, new) if times.in_doubt(old) else old
                for old, new in zip(stored, paired, strict=True)
            ),
        ]

    @_reported("speedup")
    def check_speedup(self) -> Iterator[Check]:
        """How many times faster SME2 makes it."""
        self.session.bench.require_sme2()
        yield ratios.check_speedup(self.timed, self.baseline, self.limits)

    @_reported("shares")
    def check_shares(self) -> Iterator[Check]:
        """Each category's part of end-to-end time, where ``limits.toml`` has bounds for it."""
        self.session.bench.require_timing()
        if not self.limits.shares:
            raise NotMeasurableError("limits.toml has no bounds ([shares.CATEGORY])")
        yield from ratios.check_shares(self.measured, self.limits)

    @_reported("peak memory")
    def check_memory(self) -> Iterator[Check]:
        """The peak resident set of each arm's processes."""
        measured = self.timed
        for arm in self.session.bench.arms:
            yield ratios.check_memory(measured, self.baseline, self.limits, arm)

    @_reported("load time")
    def check_load(self) -> Iterator[Check]:
        """The time until the program is ready to run."""
        measured = self.timed
        for arm in self.session.bench.arms:
            yield times.check_load(measured, self.baseline, self.limits, arm)

    @_reported("latency against")
    def check_against(self) -> Iterator[Check]:
        """What ``--against`` names: its operators exactly, its latency in interleaved pairs; on an
        emulator, its cost.

        Each arm is measured: one that is slower must not hide behind the other.
        """
        self.used_reference = True
        reference, arms = self.session.reference, self.session.bench.arms
        for arm in arms:
            named = arm if len(arms) > 1 else None
            yield from self._compared(self._against(reference, arm), named)

    def _against(self, reference: OpenReference, arm: Arm) -> AgainstReference:
        session, case = self.session, self.case
        return AgainstReference(
            session.bench,
            case.id,
            session.folder(case) / f"against_{arm}",
            session.request(case, arm),
            reference,
            # One alarm of the whole run must stay as rare as one verdict's would be alone.
            family=max(1, len(session.cases())) * len(session.bench.arms),
        )

    def _compared(self, against: AgainstReference, arm: Arm | None) -> list[Check]:
        """All of it on one device, so that only the versions differ; the latency comes last."""
        return self.session.on_one_device(lambda: self._compare(against, arm))

    def _compare(self, against: AgainstReference, arm: Arm | None) -> list[Check]:
        checks = [against.check_operators(arm)]
        if not (self.session.bench.timed or self.session.uncounted(self.case)):
            checks.append(against.check_cost(self.limits, arm))
        if self.session.bench.timed:
            self.session.bench.cool_down()
            measurement = against.measure(self.limits.max_regression)
            latency = times.check_against(measurement, self.limits, arm)
            if latency.verdict in judging.FAILING:
                seconds = statistics.median(pair.candidate_ns for pair in measurement.pairs) / 1e9
                pairs = self.session.bench.redo(lambda: against.traced_pairs(TRACED_PAIRS, seconds))
                self.growth = self.growth or growth_of(pairs, against.name)
            # The latency comes last: it may settle another check.
            checks += [*against.check_generation(self.limits, arm), latency]
        return checks

    def check(self, *checks: Check) -> None:
        """Checks of your own, to be concluded and reported like the built-in ones."""
        self._check(lambda: checks)

    def _check(self, make: Callable[[], Iterable[Check]]) -> None:
        try:
            checks = list(make())
        except BaselineError as error:
            checks = [Check("baseline", Outcome.INVALID, str(error))]
        else:
            checks = self._located(checks)
        self.checks += checks
        self._open += checks
        self._conclude(checks)

    def take_checks(self) -> list[Check]:
        """What was checked since this was asked last, and which then does not fail the test.

        A check does not end its test: the failed ones are reported together when the test ends.
        """
        taken, self._open = self._open, []
        return taken

    def _located(self, checks: list[Check]) -> list[Check]:
        """Those that failed, with the line of the model that they are about."""
        if not any(check.verdict in judging.FAILING for check in checks):
            return checks
        baseline = None
        # A check that needs no baseline has not said that it is damaged; one that does will.
        with contextlib.suppress(BaselineError):
            baseline = self.baseline
        changed = () if baseline is None else self.session.changed_lines(self.case)
        growth = self.growth if any(check.unit == "ns" for check in checks) else None
        return located(checks, self.measured, baseline, growth, changed)

    @property
    def unchecked(self) -> str | None:
        """Why nothing could be checked, where nothing was; else None."""
        if not self.checks:
            return "a test asks for sme2_gate and calls none of its checks"
        if any(c.verdict not in judging.UNCHECKED for c in self.checks):
            return None
        reasons = dict.fromkeys(f"{c.verdict}: {c.metric}: {c.message}" for c in self.checks)
        return "; ".join(reasons)

    @property
    def measured_anything(self) -> bool:
        return any(check.verdict is not Outcome.NOT_MEASURED for check in self.checks)
