"""What a frontier says."""

from __future__ import annotations

import pytest

from pytest_sme2.report.case_summary import decision_text
from pytest_sme2.results import Arm, Frontier, Ship
from tests.support.gate_examples import frontier

OFF = (Arm.OFF,)


@pytest.mark.parametrize(
    ("found", "said"),
    [
        (frontier(), "Ship SME2 with 2 threads: 1.40x [1.37, 1.43] of your best NEON (4 threads)."),
        (
            frontier(0.73, Ship.REFERENCE),
            "NEON with 4 threads is better: SME2 with 2 threads is 0.73x [0.72, 0.74] of it.",
        ),
        (
            frontier(1.0, Ship.EITHER),
            "No difference that matters: SME2 with 2 threads is 1.00x [0.98, 1.02] of your best "
            "NEON (4 threads).",
        ),
        (
            frontier(1.0, Ship.UNCLEAR),
            "Too close to tell: SME2 with 2 threads is 1.00x [0.98, 1.02] of your best NEON "
            "(4 threads).",
        ),
        (frontier(arms=OFF), "Ship 4 threads: 1.40x [1.37, 1.43] of the next best (2 threads)."),
    ],
)
def test_the_decision_is_one_sentence(found: Frontier, said: str) -> None:
    assert decision_text(found) == said


def test_a_chip_without_sme2_is_named() -> None:
    assert decision_text(frontier(), sme1=True).startswith("Ship SME1 with 2 threads")
