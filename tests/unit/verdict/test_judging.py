"""An interval against a limit, and several verdicts together."""

from __future__ import annotations

import itertools
import math
from dataclasses import replace
from pathlib import Path

import pytest
import scipy.stats

from pytest_sme2.results.case import CaseResult, Check
from pytest_sme2.results.profile import Change
from pytest_sme2.results.run import Arm
from pytest_sme2.results.timing import Outcome
from pytest_sme2.session.run_directory import read_record
from pytest_sme2.verdict import baselines, judging
from pytest_sme2.verdict.judging import (
    RARE_QUANTILES,
    SESSION_QUANTILES,
    largest_by_chance,
    session_interval,
)
from pytest_sme2.verdict.structure import Growth, located
from tests.support.gate_examples import medians
from tests.support.stored_sessions import outcomes


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


def test_it_is_what_took_longer_where_that_is_known(flipped: CaseResult) -> None:
    slower = [Change("nothing of this name", 0.0, 9e6), Change("native_call_flip.out", 1e6, 3e6)]
    linear = next(e for e in flipped.profiles[Arm.ON].operators if e.module == "hidden")
    slower.append(Change(linear.operator.name, 1e6, 2e6))
    growth = Growth("the baseline", Change("end to end", 1e6, 4e6), operators=tuple(slower))
    (check,) = located([Check("latency (on)", Outcome.REGRESSED, "")], flipped, None, growth)
    assert check.where == FLIP


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


def test_the_quantiles_are_those_of_scipy() -> None:
    for quantiles, probability in ((SESSION_QUANTILES, 0.975), (RARE_QUANTILES, 0.995)):
        expected = scipy.stats.t.ppf(probability, range(1, 21))
        assert quantiles == pytest.approx(expected, rel=5e-6)


@pytest.mark.slow
@pytest.mark.parametrize("spread", [0.003, 0.005])
def test_each_session_makes_verdicts_better(spread: float) -> None:
    """Equal programs are less often open, and 5 % slower ones more often caught."""
    counts = (1, 3, 6, 12)
    still_open = [outcomes(spread, count, 0.0).count(Outcome.INCONCLUSIVE) for count in counts]
    caught = [outcomes(spread, count, 0.05).count(Outcome.REGRESSED) for count in counts]
    assert still_open == sorted(still_open, reverse=True)
    assert still_open[0] >= 0.95 * 200
    assert still_open[-1] <= 0.1 * 200
    assert caught[:3] == sorted(caught[:3])
    assert caught[0] == 0
    assert caught[-1] >= 0.9 * 200


@pytest.mark.parametrize("spread", [0.003, 0.01, 0.03])
@pytest.mark.parametrize("count", [1, 3, 6])
def test_sessions_rarely_call_equal_programs_slower_or_slower_ones_equal(
    spread: float, count: int
) -> None:
    """Whatever the spread between sessions is, and however few of them there are."""
    assert outcomes(spread, count, 0.0).count(Outcome.REGRESSED) <= 0.03 * 200
    assert outcomes(spread, count, 0.05).count(Outcome.PASS) <= 0.03 * 200


@pytest.mark.slow
@pytest.mark.parametrize("count", [1, 3, 12])
def test_equal_programs_are_rarely_red_and_slower_ones_mostly(count: int) -> None:
    for spread, caught in ((0.005, 0.98), (0.01, 0.93), (0.03, 0.65)):
        equal, slower = (
            sum(map(outcomes(spread, count, slowdown, 500).count, judging.FAILING))
            for slowdown in (0.0, 0.05)
        )
        assert equal <= 0.01 * 500
        assert slower >= caught * 500


def test_what_is_explained_by_chance_follows_the_sessions_and_their_yardsticks() -> None:
    new = medians(10)
    calm, rough = ([medians(ms) for ms in row] for row in ((10, 10, 10), (9.5, 10, 10.5)))
    none = [None] * 3
    assert 1 < largest_by_chance(new, calm, none) < largest_by_chance(new, calm[:1], none[:1])
    assert largest_by_chance(new, calm, none) < largest_by_chance(new, rough, none)
    # A yardstick that felt the same explains it; one that is missing explains nothing.
    felt = [0.95, 1.0, 1.05]
    assert largest_by_chance(new, rough, felt) == pytest.approx(
        largest_by_chance(new, calm, none), rel=1e-3
    )
    assert largest_by_chance(new, rough, [*felt[:2], None]) == largest_by_chance(new, rough, none)


def test_a_single_process_has_no_spread_to_go_by() -> None:
    for new, old in (([11.0], [medians(10)]), (medians(11), [[10.0, 10.0]])):
        assert session_interval(new, old) == (0.0, math.inf)
        assert judging.judge(*session_interval(new, old), 0.02) is Outcome.INCONCLUSIVE
