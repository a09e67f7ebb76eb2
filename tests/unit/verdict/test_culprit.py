"""Which line of the model a failed check names."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from pytest_sme2.results import Arm, CaseResult, Check, Outcome
from pytest_sme2.session.run_directory import read_record
from pytest_sme2.verdict import baselines
from pytest_sme2.verdict.growth import located

ROOT = Path(__file__).parents[3]
FLIP = "`features = self.widen(self.stem(image).flip(-1))` at models/toy_cnn/model.py:32"


@pytest.fixture(scope="module")
def flipped() -> CaseResult:
    return read_record(ROOT / "docs/sample/failing/toy_cnn-fp32/runs/emulated").measured


def where(measured: CaseResult, metric: str, outcome: Outcome = Outcome.REGRESSED) -> str:
    known = baselines.load_structure(
        ROOT / "baselines", measured.model, measured.variant, measured.fingerprint
    )
    assert known is not None
    (check,) = located([Check(metric, outcome, "")], measured, known, None)
    return check.where


@pytest.mark.parametrize("metric", ["cost (on)", "cost (off)", "operators (on)", "program size"])
def test_it_is_the_operator_that_grew_most(flipped: CaseResult, metric: str) -> None:
    assert where(flipped, metric) == FLIP


def test_without_cost_it_is_an_operator_that_there_is_more_of(flipped: CaseResult) -> None:
    assert "models/toy_cnn/model.py:" in where(replace(flipped, costs={}), "operators (on)")


def test_what_passed_or_is_about_the_measurement_has_no_place(flipped: CaseResult) -> None:
    assert where(flipped, "cost (on)", Outcome.PASS) == ""
    assert where(flipped, "evidence", Outcome.INVALID) == ""
    assert where(flipped, "cost against release") == ""
    assert where(replace(flipped, profiles={}), "cost (on)") == ""


def test_lost_coverage_names_an_operator_that_lost_it(flipped: CaseResult) -> None:
    profile = flipped.profiles[Arm.ON]
    member = next(each for each in profile.operators if each.module == "hidden")
    lost = replace(profile, coverage=replace(profile.coverage, missed=((member, "why"),)))
    found = where(replace(flipped, profiles={Arm.ON: lost}), "SME2 coverage")
    assert found.endswith(" in hidden (Linear)")


def test_a_place_that_a_check_has_itself_stays(flipped: CaseResult) -> None:
    own = Check("mine", Outcome.FAILED, "", where="here")
    assert located([own], flipped, None, None) == [own]
