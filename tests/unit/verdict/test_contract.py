"""What of the contract a run is held to."""

from __future__ import annotations

from dataclasses import replace

from pytest_sme2.results import Arm
from pytest_sme2.verdict.contract import CasePart, Contract, Part, gaps, join

KEY = "emulated", "toy-fp32"
FIGURES = ("cost (on)", "cost (sme1)", "coverage (sme1)", "evidence")
CONTRACT = Contract({KEY: dict.fromkeys(FIGURES, "test_it")})


def part(*compared: str) -> Part:
    return Part((KEY[0],), (CasePart(*KEY, compared, {}, {}),), (KEY[1],))


def test_the_lines_of_an_arm_bind_where_it_was_asked_for() -> None:
    two = part("cost (on)", "evidence")
    assert gaps(CONTRACT, two) == []
    three = replace(two, arms=tuple(Arm))
    (gap,) = gaps(CONTRACT, three)
    assert gap.figures == ("cost (sme1)", "coverage (sme1)")
    assert gaps(CONTRACT, join([two, three])) != []
    whole = replace(part(*FIGURES), arms=tuple(Arm))
    assert gaps(CONTRACT, join([two, whole])) == []
