"""What of the contract a run is held to."""

from __future__ import annotations

from dataclasses import replace

from pytest_sme2.results import Arm, Check, Outcome
from pytest_sme2.verdict.contract import CasePart, Contract, Part, add, case_part, gaps, join
from tests.support.gate_examples import emulated

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


def test_the_categories_of_a_changed_program_replace_those_of_the_old_one() -> None:
    old = Contract({KEY: {"evidence": "test_it", "share of CONV (on)": "test_shares"}})
    new = add(old, Contract({KEY: {"share of FC (on)": "test_shares"}}))
    assert new.checks == {KEY: {"evidence": "test_it", "share of FC (on)": "test_shares"}}


def test_a_comparison_with_another_version_was_not_promised() -> None:
    checks = [Check(f"cost{name}", Outcome.PASS, "") for name in (" against 1.5.0", " (on)")]
    assert case_part(emulated(), checks, "1.5.0").compared == ("cost (on)",)
