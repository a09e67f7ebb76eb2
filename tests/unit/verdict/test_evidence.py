"""Verdicts about the evidence, and about a baseline that cannot be used."""

from __future__ import annotations

from collections.abc import Callable

from pytest_sme2.errors import BaselineError
from pytest_sme2.results import (
    Check,
    Evidence,
    Outcome,
)
from pytest_sme2.verdict import structure
from tests.support.gate_examples import (
    measured,
)
from tests.support.golden import check_whole_checks


def test_evidence_verdicts() -> None:
    assert structure.check_evidence(measured()).verdict is Outcome.PASS
    wrong = Evidence(False, "The off run shows 4 SME2 operators.", 4, 4, 4)
    found = structure.check_evidence(measured(evidence=wrong))
    assert (found.verdict, found.message) == (Outcome.INVALID, wrong.message)
    found = structure.check_evidence(measured(evidence=None))
    assert found.verdict is Outcome.INVALID
    assert "no SME2" in found.message


def test_unusable_baseline_is_invalid() -> None:
    found = structure.baseline_problem(BaselineError("x.json: of another target"))
    assert (found.metric, found.verdict) == ("baseline", Outcome.INVALID)
    assert "x.json" in found.message


CASES: dict[str, Callable[[], Check]] = {
    "no evidence": (lambda: structure.check_evidence(measured(evidence=None))),
    "evidence": (lambda: structure.check_evidence(measured())),
}


def test_whole_checks() -> None:
    check_whole_checks("evidence", CASES)
