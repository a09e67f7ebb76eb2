"""What a run is held to by its baselines."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from pytest_sme2.results.case import Accepted, Check, Limits
from pytest_sme2.results.run import Arm
from pytest_sme2.results.timing import Outcome
from pytest_sme2.session.run_directory import CaseRecord
from pytest_sme2.verdict import baselines
from pytest_sme2.verdict.contract import Asked, Judgement, join, judge
from tests.support.gate_examples import emulated

FIGURES = ("cost (on)", "cost (sme1)", "coverage (sme1)", "evidence")
ASKED = Asked("emulated", known=("toy_cnn-fp16",))


@pytest.fixture
def root(tmp_path: Path) -> Path:
    accepted = Accepted(dict.fromkeys(FIGURES, "test_it"), Limits())
    baselines.store(tmp_path, emulated(), accepted=accepted)
    return tmp_path


def judged(root: Path, asked: Asked, *figures: str, verdict: Outcome = Outcome.PASS) -> Judgement:
    checks = tuple(Check(name, verdict, "", old=1) for name in figures)
    record = CaseRecord(2, "toy_cnn-fp16", emulated(), None, checks, {}, limits=Limits())
    return judge(root, [record], asked)


def test_the_figures_of_an_arm_bind_where_it_was_asked_for(root: Path) -> None:
    two = "cost (on)", "evidence"
    assert judged(root, ASKED, *two) == Judgement(2, 2, 0)
    three = replace(ASKED, arms=tuple(Arm))
    for asked in (three, join([ASKED, three])):
        (gap,) = judged(root, asked, *two).open
        assert "cost (sme1), coverage (sme1): no test compared it; test_it did." in gap
        assert judged(root, asked, *FIGURES) == Judgement(4, 4, 0)


def test_a_comparison_with_another_version_was_not_promised(root: Path) -> None:
    asked = replace(ASKED, against="1.5.0")
    assert judged(root, asked, "evidence", "cost (on) against 1.5.0").compared == 1
    # What a stored program was measured again for stands for the stored figure.
    assert judged(root, asked, "evidence", "cost (on) against the old program").compared == 2


@pytest.mark.parametrize(
    ("verdict", "strict", "words"),
    [
        (
            Outcome.REGRESSED,
            False,
            "REGRESSED, and no test failed: toy_cnn-fp16: cost (on), evidence",
        ),
        (Outcome.INCONCLUSIVE, True, "INCONCLUSIVE, and no test failed"),
        (Outcome.INCONCLUSIVE, False, ""),
        (Outcome.NO_BASELINE, True, "NO_BASELINE: 1 case (toy_cnn-fp16). Store what is missing"),
    ],
)
def test_the_checks_decide(root: Path, verdict: Outcome, strict: bool, words: str) -> None:
    found = judged(root, replace(ASKED, strict=strict), "cost (on)", "evidence", verdict=verdict)
    assert words in " ".join((*found.failed, *found.open))
    assert bool(found.failed) == (bool(words) and verdict is not Outcome.NO_BASELINE)
