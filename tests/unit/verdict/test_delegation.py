"""Verdicts of check_delegation."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from pytest_sme2.results import (
    Arm,
    Check,
    Outcome,
)
from pytest_sme2.verdict import structure
from tests.support.gate_examples import (
    PORTABLE,
    baseline,
    measured,
    with_on,
)
from tests.support.gate_examples import (
    structure as structure_of,
)
from tests.support.golden import check_whole_checks


@pytest.mark.parametrize(
    ("before", "after", "outcome"),
    [
        (0, 0, Outcome.PASS),
        (1, 1, Outcome.PASS),
        (0, 1, Outcome.REGRESSED),
        (2, 1, Outcome.IMPROVED),
    ],
)
def test_delegation_verdicts(before: int, after: int, outcome: Outcome) -> None:
    def counts(portable: int) -> dict[str, int]:
        return {"conv": 4, **({"portable": portable} if portable else {})}

    old = baseline(structures=with_on(**counts(before)))
    found = structure.check_delegation(measured(structures=with_on(**counts(after))), old)
    assert (found.verdict, found.old, found.new) == (outcome, before, after)
    assert any(PORTABLE in line for line in found.details) == (before != after)


def test_delegated_operators_do_not_matter() -> None:
    old = baseline(structures=with_on(conv=4, portable=1, transpose=2))
    now = measured(structures=with_on(conv=4, portable=1, transpose=3))
    found = structure.check_delegation(now, old)
    assert (found.verdict, found.details) == (Outcome.PASS, ())


def test_another_portable_operator() -> None:
    old = baseline(structures={Arm.ON: structure_of({"aten::a": 1})})
    now = measured(structures={Arm.ON: structure_of({"aten::b": 1})})
    found = structure.check_delegation(now, old)
    assert found.verdict is Outcome.REGRESSED
    assert [line.split(" (")[0] for line in found.details] == ["+1 aten::b", "-1 aten::a"]
    assert structure.check_delegation(now, None).verdict is Outcome.NO_BASELINE
    assert structure.check_delegation(now, old, Arm.OFF).verdict is Outcome.INVALID


CASES: dict[str, Callable[[], Check]] = {
    "more portable operators": (
        lambda: structure.check_delegation(
            measured(structures=with_on(conv=4, portable=2)),
            baseline(structures=with_on(conv=4, portable=1)),
        )
    ),
    "fewer portable operators": (
        lambda: structure.check_delegation(
            measured(structures=with_on(conv=4, portable=1)),
            baseline(structures=with_on(conv=4, portable=2)),
        )
    ),
    "portable operators without baseline": (
        lambda: structure.check_delegation(measured(structures=with_on(conv=4, portable=1)), None)
    ),
}


def test_whole_checks() -> None:
    check_whole_checks("delegation", CASES)
