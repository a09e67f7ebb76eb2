"""A gate over a session that is told what it can do; the checks themselves are the gate's."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any, cast

import pytest

from pytest_sme2.errors import NotMeasurableError
from pytest_sme2.results.case import CaseResult, Check, Limits
from pytest_sme2.results.run import Arm
from pytest_sme2.results.timing import Outcome
from pytest_sme2.session.cases import Case
from pytest_sme2.session.gate import Gate
from pytest_sme2.session.session import Session
from pytest_sme2.verdict.judging import failing
from tests.support.gate_examples import emulated


class EmulatedSession:
    """What a session on an emulator answers."""

    bench = SimpleNamespace(
        arms=(Arm.OFF, Arm.ON),
        target=SimpleNamespace(name="emulated"),
        # It has SME2.
        require_sme2=lambda: None,
    )

    settings = SimpleNamespace(sustain_seconds=None)

    def __init__(self) -> None:
        self.kept: list[Check] = []

    def measured(self, case: object, *, timed: bool) -> CaseResult:
        if timed:
            raise NotMeasurableError("emulated cannot measure time")
        return emulated()

    def baseline(self, case: object) -> None:
        return None

    def limits(self, case: object) -> Limits:
        return Limits()


def test_check_that_the_device_cannot_measure_is_reported_and_others_go_on() -> None:
    session = EmulatedSession()
    gate = Gate(cast(Session, session), cast(Case, object()), lambda checks: None)
    gate.check_latency()
    assert gate.unchecked == "NOT_MEASURED: latency: emulated cannot measure time"
    assert not gate.measured_anything
    gate.check_evidence()
    assert gate.unchecked is None
    assert gate.measured_anything
    assert [(check.metric, check.verdict) for check in gate.checks] == [
        ("latency", Outcome.NOT_MEASURED),
        ("evidence", Outcome.PASS),
    ]


def test_which_verdicts_fail() -> None:
    def failed(*, strict: bool) -> set[Outcome]:
        return {each for each in Outcome if failing([Check("x", each, "")], strict=strict)}

    red = {Outcome.REGRESSED, Outcome.FAILED, Outcome.INVALID}
    assert failed(strict=False) == red
    assert failed(strict=True) == red | {Outcome.INCONCLUSIVE}


def test_pairs_decide_what_a_stored_time_leaves_in_doubt(monkeypatch: pytest.MonkeyPatch) -> None:
    def check(metric: str, verdict: Outcome) -> Check:
        return Check(metric, verdict, "", interval=(0.9, 1.1))

    gate = Gate(cast(Session, EmulatedSession()), cast(Case, object()), lambda checks: None)
    stored = [
        check("latency", Outcome.PASS),
        check("prefill", Outcome.INVALID),
        check("decode", Outcome.REGRESSED),
    ]
    operators, whole = check("operators", Outcome.PASS), check("paired latency", Outcome.PASS)
    phases = [check("paired prefill", Outcome.PASS), check("paired decode", Outcome.INVALID)]
    monkeypatch.setattr(gate, "_compared", lambda versus, arm: [operators, *phases, whole])
    found = gate._with_pairs(stored, cast(Any, object()), Arm.ON)
    assert [(one.metric, one.verdict) for one in found] == [
        ("operators", Outcome.PASS),
        ("latency", Outcome.PASS),
        ("paired prefill", Outcome.PASS),
        # What pairs do not decide stays as it was.
        ("decode", Outcome.REGRESSED),
    ]
    monkeypatch.setattr(gate, "_compared", lambda versus, arm: [operators, whole])
    assert gate._with_pairs(stored, cast(Any, object()), Arm.ON)[1:] == stored
