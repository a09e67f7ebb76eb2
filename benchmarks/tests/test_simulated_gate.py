"""The simulation's own arithmetic, on one small scenario."""

from __future__ import annotations

from benchmarks.simulated_gate import Scenario, account, claims, pair_rates, run, session_rates
from pytest_sme2.results import Outcome


def test_a_scenario_is_judged_by_what_is_true():
    trials = run(Scenario("small", 100, 1, 1, (1.05,), 0.0, sessions=1))
    assert [(trial.factor, trial.outcome, trial.green) for trial in trials] == [
        (1.0, Outcome.PASS, True),
        (1.05, Outcome.REGRESSED, False),
    ]
    assert account(trials) == {"small": {"1": {"PASS": 1}, "1.05": {"REGRESSED": 1}}}
    found = {claim.key: (claim.value, claim.met) for claim in claims(trials)}
    assert found["green"] == (0, True)
    assert found["alarms"] == (0, True)
    # Two verdicts prove nothing.
    assert found["slower"] == (1, False)
    assert found["equal"] == (1, False)


def test_noise_makes_equal_programs_open_before_it_makes_them_suspected():
    quiet, rough = pair_rates(0.005, 0.0), pair_rates(0.02, 0.0)
    assert quiet == {"REGRESSED": 0.0, "SUSPECTED": 0.0, "INCONCLUSIVE": 0.0}
    assert rough["REGRESSED"] == rough["SUSPECTED"] == 0.0
    assert rough["INCONCLUSIVE"] > 0.1


def test_more_sessions_that_agree_give_more_answers():
    one, six = session_rates(0.003, 1), session_rates(0.003, 6)
    assert one["0"].get("PASS", 0) < six["0"]["PASS"]
    assert one["0.05"].get("REGRESSED", 0) < six["0.05"]["REGRESSED"]
