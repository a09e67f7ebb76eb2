"""An interval against a limit, and several verdicts together."""

from __future__ import annotations

import itertools
import math
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pytest_sme2.results import (
    Arm,
    CaseResult,
    Change,
    Check,
    Estimate,
    OperatorShapes,
    Outcome,
)
from pytest_sme2.session.run_directory import read_record
from pytest_sme2.system.files import decode
from pytest_sme2.verdict import baselines, judging
from pytest_sme2.verdict.growth import Growth, located
from tests.support.gate_examples import measured


@pytest.mark.parametrize(
    ("verdicts", "outcome"),
    [
        (["PASS", "PASS"], "PASS"),
        (["PASS", "IMPROVED"], "IMPROVED"),
        (["IMPROVED", "NO_BASELINE"], "NO_BASELINE"),
        (["NO_BASELINE", "INCONCLUSIVE"], "INCONCLUSIVE"),
        (["INCONCLUSIVE", "INVALID"], "INVALID"),
        (["INVALID", "PASS", "REGRESSED", "IMPROVED"], "REGRESSED"),
    ],
)
def test_worst_verdict_decides(verdicts: list[str], outcome: str) -> None:
    checks = [Check("x", Outcome(verdict), "") for verdict in verdicts]
    for order in itertools.permutations(checks):
        assert judging.combine(order) is Outcome(outcome)
    evidence = Check("evidence", Outcome.INVALID, "")
    assert judging.combine([*checks, evidence]) is Outcome.INVALID


@pytest.mark.parametrize(
    ("name", "verdict"),
    [
        ("SUSPECTED", Outcome.INVALID),
        ("MACHINE_CHANGED", Outcome.INCONCLUSIVE),
        ("STORED", Outcome.PASS),
        ("NOT_STORED", Outcome.NO_BASELINE),
    ],
)
def test_names_of_earlier_versions_are_read(name: str, verdict: Outcome) -> None:
    assert len(Outcome) == 8
    check = {"metric": "latency (on)", "verdict": name, "message": ""}
    assert decode(check, Check, Path("case.json")).verdict is verdict
    with pytest.raises(ValueError, match="FASTER"):
        Outcome("FASTER")


def test_no_check_is_an_error() -> None:
    with pytest.raises(ValueError, match="nothing to pass"):
        judging.combine([])


def test_verdict_names_model_variant_and_target() -> None:
    found = judging.verdict(measured(), [Check("x", Outcome.PASS, "")])
    assert (found.model, found.variant, found.target) == ("toy_cnn", "fp16", "linux")
    assert found.outcome is Outcome.PASS


@pytest.mark.parametrize(
    ("low", "high", "limit", "outcome"),
    [
        (1.021, 1.03, 0.02, Outcome.REGRESSED),
        (1.02, 1.03, 0.02, Outcome.INCONCLUSIVE),
        (0.99, 1.02, 0.02, Outcome.PASS),
        (0.99, 1.0201, 0.02, Outcome.INCONCLUSIVE),
        (0.9, 0.979, 0.02, Outcome.IMPROVED),
        (0.9, 0.981, 0.02, Outcome.PASS),
        (0.25, 0.5, 1.0, Outcome.PASS),
        (0.25, 0.4999, 1.0, Outcome.IMPROVED),
    ],
)
def test_interval_against_limit(low: float, high: float, limit: float, outcome: Outcome) -> None:
    assert judging.judge(low, high, limit) is outcome


@given(
    st.floats(1e-3, 1e3), st.floats(1.0, 1.5), st.floats(0, 1.0),
)  # fmt: skip
def test_larger_limit_never_gives_a_worse_verdict(low: float, width: float, limit: float) -> None:
    order = (Outcome.REGRESSED, Outcome.INCONCLUSIVE, Outcome.PASS)
    verdict = judging.judge(low, low * width, limit)
    looser = judging.judge(low, low * width, limit + 0.1)
    if Outcome.IMPROVED not in (verdict, looser):
        assert order.index(looser) >= order.index(verdict)


@pytest.mark.parametrize(
    ("estimate", "text"),
    [
        (Estimate(1.854, 1.71, 2.02, 0.99, 12), "1.85x [1.71, 2.02]"),
        (Estimate(1.854, 0.0, math.inf, 0.99, 1), "1.85x (1 pair)"),
        (Estimate(1.854, 0.0, math.inf, 0.99, 3), "1.85x (3 pairs)"),
    ],
)
def test_an_interval_that_says_nothing_is_left_out(estimate: Estimate, text: str) -> None:
    assert judging.estimate_text(estimate) == text


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


def test_it_is_what_took_longer_where_that_is_known(flipped: CaseResult) -> None:
    slower = [Change("nothing of this name", 0.0, 9e6), Change("native_call_flip.out", 1e6, 3e6)]
    linear = next(e for e in flipped.profiles[Arm.ON].operators if e.module == "hidden")
    slower.append(Change(linear.operator.name, 1e6, 2e6))
    growth = Growth("the baseline", Change("end to end", 1e6, 4e6), operators=tuple(slower))
    (check,) = located([Check("latency (on)", Outcome.REGRESSED, "")], flipped, None, growth)
    assert check.where == FLIP


def test_wrong_outputs_name_the_layer_norm_that_is_known_to_be_wrong(flipped: CaseResult) -> None:
    profile = flipped.profiles[Arm.ON]
    member = next(each for each in profile.operators if each.module == "hidden")
    wide = OperatorShapes("native_layer_norm", ((1, 256),), (1, 256))
    norm = replace(member.operator, operation="native_layer_norm")
    known = replace(profile, operators=(replace(member, operator=norm, shapes=wide),))
    wrong = replace(flipped, variant="fp16", profiles={Arm.ON: known})
    (check,) = located([Check("outputs against off", Outcome.REGRESSED, "")], wrong, None, None)
    assert check.where.endswith(" in hidden (Linear)")


def test_lines_that_are_not_known_are_not_made_up(flipped: CaseResult) -> None:
    profile = flipped.profiles[Arm.ON]
    nameless = replace(
        profile, operators=tuple(replace(each, origin=None) for each in profile.operators)
    )
    assert where(replace(flipped, profiles={Arm.ON: nameless}), "cost (on)") == ""


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
