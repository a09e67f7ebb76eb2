"""Verdicts about the evidence, and about a baseline that cannot be used."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from pytest_sme2.errors import BaselineError
from pytest_sme2.results import (
    Check,
    Evidence,
    Outcome,
)
from pytest_sme2.verdict import structure
from tests.support.gate_examples import (
    assert_same_check,
    measured,
)


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


CASES: dict[str, tuple[Callable[[], Check], Check]] = {
    "no evidence": (
        lambda: structure.check_evidence(measured(evidence=None)),
        Check(
            "evidence",
            Outcome.INVALID,
            "Only the off arm ran: linux has no SME2, so nothing is shown about it. "
            "Choose a device that has it, or --device=emulated.",
        ),
    ),
    "evidence": (
        lambda: structure.check_evidence(measured()),
        Check(
            "evidence",
            Outcome.PASS,
            "4 of 4 matrix operators on SME2 with SME2 on, none off.",
            new=4,
            unit="count",
        ),
    ),
}


@pytest.mark.parametrize("case", CASES)
def test_whole_check(case: str) -> None:
    make, expected = CASES[case]
    assert_same_check(make(), expected)
