"""Verdicts of check_against."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable

import pytest

from pytest_sme2.results import (
    TIME_LIMIT,
    Arm,
    Check,
    Outcome,
    PairedTiming,
)
from pytest_sme2.verdict import times
from tests.support.gate_examples import (
    LIMITS,
    measurement,
)
from tests.support.golden import check_whole_checks


@pytest.mark.parametrize("decided", [Outcome.PASS, Outcome.REGRESSED, Outcome.IMPROVED])
def test_decision_of_the_pairs_is_the_verdict(decided: Outcome) -> None:
    found = times.check_against(measurement(1.01, 1.05, decided), LIMITS)
    assert found.verdict is decided
    assert found.metric == "latency against executorch 1.5.0"
    assert found.old == 10e6
    assert found.interval == (1.01, 1.05)


@pytest.mark.parametrize(
    ("low", "high", "outcome"),
    [
        (1.03, 1.05, Outcome.REGRESSED),
        (0.99, 1.01, Outcome.PASS),
        (0.9, 0.95, Outcome.IMPROVED),
        (1.0, 1.03, Outcome.INCONCLUSIVE),
        (1.0, 1.05, Outcome.SUSPECTED),
    ],
)
def test_decision_for_another_limit_is_ignored(low: float, high: float, outcome: Outcome) -> None:
    for other in (measurement(low, high, None), measurement(low, high, Outcome.PASS, at=0.5)):
        assert times.check_against(other, LIMITS).verdict is outcome


@pytest.mark.parametrize(
    ("low", "high", "says", "outcome"),
    [
        (1.04, 1.06, Outcome.REGRESSED, Outcome.REGRESSED),
        # Waiting is not CPU time, but it is latency.
        (0.99, 1.01, Outcome.PASS, Outcome.INCONCLUSIVE),
        (0.89, 0.91, Outcome.IMPROVED, Outcome.INCONCLUSIVE),
    ],
)
def test_cpu_time_convicts_and_does_not_acquit_alone(
    low: float, high: float, says: Outcome, outcome: Outcome
) -> None:
    measured = measurement(low, high, says)
    (pair,) = measured.pairs
    taken = tuple(
        dataclasses.replace(pair, preempted=True, candidate_ns=ratio * pair.reference_ns)
        for ratio in (1.0, 1.5) * 5
    )
    found = times.check_against(dataclasses.replace(measured, pairs=taken), LIMITS)
    assert found.verdict is outcome
    assert "so this is CPU time" in found.message
    assert found.message.endswith("measure again.") is (outcome is Outcome.INCONCLUSIVE)


def test_cpu_time_acquits_where_wall_time_agrees() -> None:
    measured = measurement(0.99, 1.01, Outcome.PASS)
    (pair,) = measured.pairs
    taken = tuple(
        dataclasses.replace(pair, preempted=True, candidate_ns=ratio * pair.reference_ns)
        for ratio in (*[1.0] * 9, 1.5)
    )
    found = times.check_against(dataclasses.replace(measured, pairs=taken), LIMITS)
    assert found.verdict is Outcome.PASS


def test_a_program_that_waits_is_suspected_though_its_cpu_time_is_the_same() -> None:
    measured = measurement(0.99, 1.01, Outcome.PASS)
    waits = tuple(
        dataclasses.replace(pair, preempted=True, candidate_ns=6 * pair.reference_ns)
        for pair in measured.pairs
    )
    found = times.check_against(dataclasses.replace(measured, pairs=waits), LIMITS)
    assert found.verdict is Outcome.SUSPECTED
    assert "changed by +500%. Does it wait for something?" in found.message


@pytest.mark.parametrize("high", [1.051, 1.2, None])
def test_pairs_that_rule_nothing_out_do_not_pass(high: float | None) -> None:
    """A slowdown of 5 % could hide in them, though the estimate lies within the limit."""
    noisy = measurement(0.8, high or 1.2, Outcome.INCONCLUSIVE)
    if high is None:
        few = dataclasses.replace(noisy.looks[0], interval=None)
        noisy = dataclasses.replace(noisy, looks=(few,))
    found = times.check_against(noisy, LIMITS)
    assert found.verdict is Outcome.INVALID
    told = "a slowdown" if high is None else f"{high - 1:.1%} slower"
    assert found.message.startswith(
        f"The machine is too noisy for a verdict: {told} cannot be ruled out. So far: "
    )
    assert found.message.endswith("Measure on an idle machine, or longer (--sme2-budget).")


CASES: dict[str, Callable[[], Check]] = {
    "slower than the reference": (
        lambda: times.check_against(measurement(1.01, 1.05, Outcome.REGRESSED), LIMITS)
    ),
    "faster than the reference": (
        lambda: times.check_against(measurement(0.9, 0.94, None), LIMITS)
    ),
    "too close to the reference": (
        lambda: times.check_against(measurement(1.0, 1.05, None), LIMITS)
    ),
}


def test_whole_checks() -> None:
    check_whole_checks("against", CASES)


def cut_short(ratio: float) -> PairedTiming:
    few = measurement(ratio, ratio, Outcome.INCONCLUSIVE)
    looks = (dataclasses.replace(few.looks[0], interval=None),)
    return dataclasses.replace(few, looks=looks, stopped_because=TIME_LIMIT, seconds=300.0)


def test_measurement_ended_by_the_time_limit_is_invalid() -> None:
    found = times.check_against(cut_short(1.92), LIMITS, Arm.OFF)
    assert found.verdict is Outcome.INVALID
    assert found.metric == "latency (off) against executorch 1.5.0"
    assert found.message == (
        "The time limit ended the measurement after 300 s, before there were enough pairs for a "
        "verdict. So far: 92.0% slower than executorch 1.5.0 over 1 interleaved pair. Give more "
        "time (--sme2-budget TIME,LIMIT), or measure a smaller input."
    )


@pytest.mark.parametrize("stored", [Outcome.REGRESSED, Outcome.SUSPECTED, Outcome.INCONCLUSIVE])
@pytest.mark.parametrize("paired", list(Outcome))
def test_pairs_decide_unless_they_cannot_tell(stored: Outcome, paired: Outcome) -> None:
    found = times.settle(Check("s", stored, "Slower."), Check("p", paired, "Perhaps."))
    unsure = paired in (Outcome.INCONCLUSIVE, Outcome.SUSPECTED, Outcome.INVALID)
    if stored is Outcome.REGRESSED and unsure:
        assert found == Check("s", stored, "Slower. Pairs did not decide: Perhaps.")
    else:
        assert found.verdict is paired


@pytest.mark.parametrize("decided", [Outcome.PASS, Outcome.REGRESSED, Outcome.IMPROVED])
def test_throttled_pairs_give_no_verdict(decided: Outcome) -> None:
    cool = measurement(1.01, 1.05, decided)
    hot = (dataclasses.replace(cool.pairs[0], throttled=True), *cool.pairs[1:])
    found = times.check_against(dataclasses.replace(cool, pairs=hot), LIMITS)
    assert found.verdict is Outcome.INVALID
    assert found.message.startswith("The device slowed itself down against heat in 1 measured pair")
