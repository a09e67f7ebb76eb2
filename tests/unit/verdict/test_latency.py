"""Verdicts of check_latency."""

from __future__ import annotations

import dataclasses
import math
from collections import Counter
from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest

from pytest_sme2.results.case import Baseline, CaseResult, Check, Limits
from pytest_sme2.results.run import PAIR, Arm
from pytest_sme2.results.timing import TIME_LIMIT, Moment, Outcome, PairedTiming, Sustained
from pytest_sme2.session.device import MOMENT_SECONDS, MOMENTS
from pytest_sme2.timing.stats import Floats
from pytest_sme2.verdict import baselines, ratios, times
from pytest_sme2.verdict.judging import MOVED_CAP
from pytest_sme2.verdict.times import ACQUITTAL, ALARM, bounds, check_budgets, check_sustained
from tests.support.gate_examples import (
    LIMITS,
    baseline,
    emulated,
    measured,
    measurement,
    medians,
    of_this_code,
    session,
    with_limits,
)
from tests.support.golden import check_whole_checks
from tests.support.stored_sessions import processes

BASELINE = baseline()
WITH_YARDSTICK = baseline(sessions=tuple(session(n, yardstick_ns=1e6) for n in (1, 2, 3)))


def latency(
    milliseconds: float = 10, old: Baseline | None = BASELINE, limits: Limits = LIMITS, **now: Any
) -> Check:
    found = measured(medians_ns={Arm.ON: medians(milliseconds)}, **now)
    return times.check_latency(found, old, limits)


@pytest.mark.parametrize(
    ("milliseconds", "outcome"),
    [
        (10.0, Outcome.PASS),
        (10.05, Outcome.PASS),
        (10.15, Outcome.INCONCLUSIVE),
        (10.25, Outcome.INCONCLUSIVE),
        (10.5, Outcome.REGRESSED),
        (9.5, Outcome.IMPROVED),
        (9.9, Outcome.PASS),
    ],
)
@pytest.mark.parametrize("arm", PAIR)
def test_latency_verdicts(milliseconds: float, outcome: Outcome, arm: Arm) -> None:
    factor = 1 if arm is Arm.ON else 2
    now = measured(medians_ns={arm: medians(milliseconds * factor)})
    found = times.check_latency(now, baseline(), LIMITS, arm)
    assert found.verdict is outcome
    assert found.metric == f"latency ({arm})"
    assert found.old == pytest.approx(10e6 * factor, rel=1e-3)
    assert found.new == pytest.approx(milliseconds * 1e6 * factor, rel=1e-3)
    assert found.interval[0] < milliseconds / 10 < found.interval[1]
    assert found.limit == 0.02


def test_larger_limit_passes() -> None:
    loose = latency(10.5, limits=with_limits(max_regression=0.1))
    assert (loose.verdict, loose.limit) == (Outcome.PASS, 0.1)


@pytest.mark.parametrize(
    ("milliseconds", "outcome"),
    [
        (10.0, Outcome.INCONCLUSIVE),
        (10.5, Outcome.INVALID),
        (12.0, Outcome.REGRESSED),
        (9.5, Outcome.INCONCLUSIVE),
        (8.0, Outcome.IMPROVED),
    ],
)
def test_one_session_needs_a_larger_difference(milliseconds: float, outcome: Outcome) -> None:
    found = latency(milliseconds, baseline(sessions=(session(1),)))
    assert found.verdict is outcome
    assert "provisional: 1 of 3 sessions" in found.message


@pytest.mark.parametrize(
    ("ratio", "outcome"),
    [
        # Stored at half the speed: as fast as that now is twice as slow.
        (1.0, Outcome.INVALID),
        (0.5, Outcome.INCONCLUSIVE),
        (0.4, Outcome.INCONCLUSIVE),
        (1.1, Outcome.REGRESSED),
    ],
)
def test_a_baseline_that_was_forced_on_a_busy_machine_never_gives_a_pass(
    ratio: float, outcome: Outcome
) -> None:
    forced = baseline(
        sessions=tuple(dataclasses.replace(one, interference=1.0) for one in BASELINE.sessions)
    )
    found = latency(10 * ratio, forced)
    assert found.verdict is outcome
    assert "The machine was busy when the baseline was stored: wall time was 100% over" in (
        found.message
    )


@pytest.mark.parametrize(("interference", "busy"), [(baselines.BUSY, False), (0.0501, True)])
def test_threshold_of_a_busy_machine(interference: float, busy: bool) -> None:
    found = latency(interference=interference)
    assert found.verdict is (Outcome.INCONCLUSIVE if busy else Outcome.PASS)
    assert ("The machine is busy" in found.message) == busy


@pytest.mark.parametrize(
    ("then", "now", "told"),
    [
        ((1e6, 1e6, 1e6), 1.04e6, ""),
        ((1e6, 1e6, 1e6), 1.06e6, "is 6% slower than it was: a program that never changes took "
         "1060 us, and 1000 us then."),
        ((1e6, 1e6, 1e6), 0.94e6, "is 6% faster than it was"),
        # Sessions without a yardstick tell nothing of the machine, and neither does a run.
        ((None, None, None), 1.06e6, ""),
        ((1e6, 1e6, 1e6), None, ""),
    ],
)  # fmt: skip
def test_threshold_of_a_changed_yardstick(
    then: tuple[float | None, ...], now: float | None, told: str
) -> None:
    sessions = tuple(
        session(number, yardstick_ns=time) for number, time in enumerate(then, start=1)
    )
    found = latency(9.5, baseline(sessions=sessions), yardstick_ns=now)
    assert found.verdict is (Outcome.INCONCLUSIVE if told else Outcome.IMPROVED)
    assert ("The machine itself" in found.message) == bool(told)
    assert told in found.message


@pytest.mark.parametrize(
    ("factor", "changes", "outcome"),
    [
        # Ten times slower is not a yardstick that is 6 % off, nor a machine that is busy.
        (10.0, {"yardstick_ns": 1.06e6}, Outcome.REGRESSED),
        (10.0, {"interference": 0.3}, Outcome.REGRESSED),
        (10.0, {"yardstick_ns": 2e6, "interference": 0.3}, Outcome.REGRESSED),
        (1.5, {"interference": 0.3}, Outcome.REGRESSED),
        # What the yardstick explains is taken off, and the rest may still be a slowdown.
        (1.40, {"yardstick_ns": 1.3e6}, Outcome.INVALID),
        (1.30, {"yardstick_ns": 1.3e6}, Outcome.INCONCLUSIVE),
        (1.0, {"yardstick_ns": 0.96e6}, Outcome.INVALID),
        (1.0, {"interference": 0.3}, Outcome.INCONCLUSIVE),
        (0.5, {"interference": 0.3}, Outcome.INCONCLUSIVE),
        (0.5, {"yardstick_ns": 0.5e6}, Outcome.INCONCLUSIVE),
    ],
)
def test_doubt_is_weighed_against_the_size(
    factor: float, changes: dict[str, float], outcome: Outcome
) -> None:
    facts: dict[str, Any] = {"yardstick_ns": 1e6, **changes}
    assert latency(10 * factor, WITH_YARDSTICK, **facts).verdict is outcome


def test_session_without_the_arm_is_ignored() -> None:
    off_alone = session(3, medians_ns={Arm.OFF: medians(20)})
    two = session(1), session(2)
    with_it = latency(old=baseline(sessions=(*two, off_alone)))
    assert with_it == latency(old=baseline(sessions=two))
    assert "provisional: 2 of 3 sessions" in with_it.message
    assert latency(old=baseline(sessions=(off_alone,))).verdict is Outcome.NO_BASELINE


@pytest.mark.parametrize(
    ("factor", "yardstick", "outcome"),
    [
        (1.585, 1.5, Outcome.INCONCLUSIVE),
        (1.05, 1.04, Outcome.INCONCLUSIVE),
        (1.585, 1.0, Outcome.INVALID),
        (3.0, 0.5, Outcome.INVALID),
        (3.0, None, Outcome.INVALID),
        (1.02, 1.0, Outcome.PASS),
        (0.5, 1.0, Outcome.PASS),
    ],
)
def test_slower_run_of_the_same_work(
    factor: float, yardstick: float | None, outcome: Outcome
) -> None:
    """The machine is to blame only where what was measured of it says so, too."""
    changed = {arm: medians(ms * factor) for arm, ms in {Arm.ON: 10, Arm.OFF: 20}.items()}
    speed = None if yardstick is None else yardstick * 1e6
    now = measured(medians_ns=changed, runtime="r", inputs="i", yardstick_ns=speed)
    old = of_this_code(WITH_YARDSTICK, now)
    check = times.check_latency(now, old, LIMITS)
    assert check.verdict is outcome
    assert check.interval is not None
    assert "byte for byte" in check.message
    # Any other program, runtime or input, or one that is not known, is judged by its times.
    for other in (
        dataclasses.replace(now, pte_sha256="another"),
        dataclasses.replace(now, runtime="another"),
        dataclasses.replace(now, runtime=""),
        dataclasses.replace(now, inputs="another"),
    ):
        check = times.check_latency(other, old, LIMITS)
        assert "byte for byte" not in check.message
        assert (times.OTHER_INPUTS in check.message) == (other.inputs == "another")
    # What is not known on either side is not known to be the same.
    for unknown in ({"pte_sha256": ""}, {"runtime": ""}, {"inputs": ""}):
        nameless = dataclasses.replace(now, **unknown)  # type: ignore[arg-type]
        check = times.check_latency(nameless, of_this_code(old, nameless), LIMITS)
        assert "byte for byte" not in check.message


def test_the_same_work_far_beyond_its_limit_does_not_pass_where_processes_are_noisy() -> None:
    noisy = tuple(10e6 * factor for factor in (1.0, 1.8, 3.1, 4.5, 6.0))
    now = measured(medians_ns={Arm.ON: noisy}, runtime="r", inputs="i", yardstick_ns=1e6)
    one = dataclasses.replace(WITH_YARDSTICK, sessions=WITH_YARDSTICK.sessions[:1])
    check = times.check_latency(now, of_this_code(one, now), LIMITS)
    assert check.interval is not None
    assert check.interval[0] < 1 < 3 < check.interval[1]
    assert check.verdict is Outcome.INCONCLUSIVE


def test_changed_machine_says_by_how_much_and_what_differs() -> None:
    now = measured(
        medians_ns={Arm.ON: medians(15.85)}, runtime="r", inputs="i", yardstick_ns=1.52e6
    )
    old = of_this_code(WITH_YARDSTICK, now)
    assert times.check_latency(now, old, LIMITS).message == (
        "58.5% slower than the baseline. Program, inputs and runtime are the baseline's own, byte "
        "for byte: it is the machine that differs. Measure again. If the machine has changed for "
        "good, store it with --update-baselines. The machine itself is 52% slower than it was: a "
        "program that never changes took 1520 us, and 1000 us then."
    )
    unknown = dataclasses.replace(now, yardstick_ns=None)
    assert "Nothing is known" in times.check_latency(unknown, old, LIMITS).message
    seen = tuple(
        dataclasses.replace(entry, conditions={"clock": "2600 MHz", "kernel": "Linux 6.1"})
        for entry in old.sessions
    )
    hot = dataclasses.replace(now, conditions={"clock": "1600 MHz", "kernel": "Linux 6.1"})
    assert times.check_latency(
        hot, dataclasses.replace(old, sessions=seen), LIMITS
    ).message.endswith("What differs: clock '2600 MHz' then, '1600 MHz' now.")


def test_too_few_processes_are_invalid() -> None:
    """What could not be measured within the time limit must not pass."""
    found = times.check_latency(measured(medians_ns={Arm.ON: medians(10, 2)}), BASELINE, LIMITS)
    assert found.verdict is Outcome.INVALID
    assert "2 of at least 3 processes" in found.message
    assert "--sme2-budget TIME,LIMIT" in found.message


def test_same_work_is_that_of_the_last_session() -> None:
    slower = {Arm.ON: medians(15), Arm.OFF: medians(30)}
    now = measured(medians_ns=slower, runtime="r", inputs="i")
    first, *others = of_this_code(baseline(), now).sessions[::-1]
    old = dataclasses.replace(baseline(), sessions=(first, *others))
    assert times.check_latency(now, old, LIMITS).verdict is Outcome.REGRESSED


def test_whole_checks() -> None:
    check_whole_checks(
        "latency",
        {
            "the same latency": latency(),
            "slower": latency(11),
            "faster": latency(9),
            "perhaps slower": latency(10.2),
            "perhaps slower, provisional": latency(
                10.2, baseline(sessions=(session(1), session(2)))
            ),
            "latency without baseline": latency(old=None),
            "latency not measured": times.check_latency(measured(medians_ns=None), None, LIMITS),
            "latency under emulation": times.check_latency(emulated(), None, LIMITS),
        },
    )


def test_throttled_pairs_are_not_compared_with_a_baseline() -> None:
    found = latency(throttled_pairs=2)
    assert found.verdict is Outcome.INVALID
    assert "another highest clock, in 2 measured pairs" in found.message


@pytest.mark.parametrize(
    ("milliseconds", "outcome"),
    [
        (5.0, Outcome.PASS),
        (6.15, Outcome.PASS),
        (6.25, Outcome.INCONCLUSIVE),
        (7.0, Outcome.REGRESSED),
        (3.5, Outcome.IMPROVED),
    ],
)
def test_load_verdicts(milliseconds: float, outcome: Outcome) -> None:
    now = measured(loads_ns={Arm.ON: medians(milliseconds)})
    found = times.check_load(now, baseline(), LIMITS)
    assert (found.metric, found.verdict) == ("load time (on)", outcome)
    assert times.check_load(now, None, LIMITS).verdict is Outcome.NO_BASELINE


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
        (1.0, 1.05, Outcome.INVALID),
    ],
)
def test_decision_for_another_limit_is_ignored(low: float, high: float, outcome: Outcome) -> None:
    for other in (measurement(low, high, None), measurement(low, high, Outcome.PASS, at=0.5)):
        assert times.check_against(other, LIMITS).verdict is outcome


@pytest.mark.parametrize(
    ("ratio", "says", "walls", "outcome", "told"),
    [
        (1.05, Outcome.REGRESSED, (1.0, 1.5) * 5, Outcome.REGRESSED, "changed by +25%."),
        # Waiting is not CPU time, but it is latency.
        (1.0, Outcome.PASS, (1.0, 1.5) * 5, Outcome.INCONCLUSIVE, "measure again."),
        (0.9, Outcome.IMPROVED, (1.0, 1.5) * 5, Outcome.INCONCLUSIVE, "measure again."),
        (1.0, Outcome.PASS, (*[1.0] * 9, 1.5), Outcome.PASS, "changed by +0%."),
        (1.0, Outcome.PASS, (6.0,), Outcome.INVALID,
         "changed by +500%. Does it wait for something? Stop what else runs, and measure again."),
    ],
)  # fmt: skip
def test_cpu_time_convicts_and_acquits_only_where_wall_time_agrees(
    ratio: float, says: Outcome, walls: tuple[float, ...], outcome: Outcome, told: str
) -> None:
    measured = measurement(ratio - 0.01, ratio + 0.01, says)
    (pair,) = measured.pairs
    taken = tuple(
        dataclasses.replace(pair, preempted=True, candidate_ns=wall * pair.reference_ns)
        for wall in walls
    )
    found = times.check_against(dataclasses.replace(measured, pairs=taken), LIMITS)
    assert found.verdict is outcome
    assert "so this is CPU time" in found.message
    assert found.message.endswith(told)


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


@pytest.mark.parametrize("stored", [Outcome.REGRESSED, Outcome.INVALID, Outcome.INCONCLUSIVE])
@pytest.mark.parametrize("paired", list(Outcome))
def test_pairs_decide_unless_they_cannot_tell(stored: Outcome, paired: Outcome) -> None:
    found = times.stored_or_paired(Check("s", stored, "Slower."), Check("p", paired, "Perhaps."))
    unsure = paired in (Outcome.INCONCLUSIVE, Outcome.INVALID, Outcome.INVALID)
    if stored is Outcome.REGRESSED and unsure:
        assert found == Check("s", stored, "Slower. Pairs did not decide: Perhaps.")
    else:
        assert found.verdict is paired


def test_a_slowdown_is_split_into_cycles_and_clock() -> None:
    """With pairs, from their processes; with stored times, from the conditions then and now."""
    slower = measurement(1.04, 1.06, Outcome.REGRESSED)
    pairs = tuple(dataclasses.replace(pair, clocks_ghz=(4.0, 3.0)) for pair in slower.pairs)
    found = times.check_against(dataclasses.replace(slower, pairs=pairs), LIMITS)
    cycles = 1 - 0.75 * slower.ratio
    said = f"It takes {cycles:.1%} fewer cycles (the program), and its clock is 25.0% lower (the "
    assert said in found.message
    assert "cycles" not in times.check_against(slower, LIMITS).message
    then = dataclasses.replace(session(1), conditions={"mean clock (on)": "3.300 GHz"})
    now = measured(medians_ns={Arm.ON: medians(11)}, conditions={"mean clock (on)": "3.000 GHz"})
    stored = times.check_latency(now, baseline(sessions=(then,)), LIMITS)
    assert "It takes 0.0% more cycles (the program), and its clock is 9.1% lower" in stored.message


def test_throttled_pairs_give_no_verdict() -> None:
    cool = measurement(1.01, 1.05, Outcome.REGRESSED)
    hot = (dataclasses.replace(cool.pairs[0], throttled=True), *cool.pairs[1:])
    found = times.check_against(dataclasses.replace(cool, pairs=hot), LIMITS)
    assert found.verdict is Outcome.INVALID
    assert "another highest clock, in 1 measured pair," in found.message


CAP = {MOVED_CAP: "the highest clock of core 7 was 2.44 GHz, and 4.32 GHz at the start"}


@pytest.mark.parametrize(
    ("milliseconds", "same", "other"),
    [
        (10, Outcome.PASS, Outcome.INCONCLUSIVE),
        (9, Outcome.PASS, Outcome.INCONCLUSIVE),
        (20, Outcome.INCONCLUSIVE, Outcome.INVALID),
    ],
)
def test_a_cap_that_moves_as_stock_phones_move_it_only_puts_stored_times_in_doubt(
    milliseconds: float, same: Outcome, other: Outcome
) -> None:
    """Now, or when a session was stored. Its ratios count: the arms shared each clock."""
    then = baseline(sessions=tuple(session(n, conditions=CAP) for n in (1, 2, 3)))
    for old, conditions in ((BASELINE, CAP), (then, {})):
        now: Any = {"runtime": "r", "inputs": "i", "conditions": conditions}
        found = latency(milliseconds, old, **now)
        assert (found.verdict, "of core 7 was 2.44" in found.message) == (other, True)
        same_work = of_this_code(old, measured(**now))
        assert latency(milliseconds, same_work, **now).verdict is same
    speedup = ratios.check_speedup(measured(), baseline(), LIMITS)
    assert ratios.check_speedup(measured(conditions=CAP), baseline(), LIMITS) == speedup


AT_MOST = with_limits(max_latency={"any": 0.011}, max_p95={"any": 0.012})


def timed(median: Sequence[float], p95: Sequence[float] = (), **changes: Any) -> CaseResult:
    facts = {"medians_ns": {Arm.ON: tuple(median)}, "p95s_ns": {Arm.ON: tuple(p95 or median)}}
    return measured(**{"inferences": 20, **facts, **changes})


def judged(now: CaseResult, limits: Limits = AT_MOST) -> dict[str, Check]:
    return {check.metric: check for check in check_budgets(now, limits)}


@pytest.mark.parametrize(
    ("now", "latency", "p95", "words"),
    [
        (timed(medians(10)), "PASS", "PASS", "takes 10.000 ms [9.980, 10.016]; at most 11 are"),
        (timed(medians(11.1)), "FAILED", "PASS", "takes 11.100 ms [11.078, 11.117]; at most 11"),
        (timed(medians(10), medians(13)), "PASS", "FAILED", "95 % of inferences stay within 13."),
        (timed(medians(11)), "INCONCLUSIVE", "PASS", "differ by more than what is left"),
        (timed((*medians(12, 9), 10.9e6)), "INCONCLUSIVE", "INCONCLUSIVE", "[10.900, "),
        (timed(medians(12.1, 4)), "INCONCLUSIVE", "INCONCLUSIVE", "ms (4 processes); at most 11"),
        (timed(medians(10), inferences=12), "PASS", "INCONCLUSIVE", "12 inferences of a process"),
        (timed(medians(13), inferences=1), "FAILED", "FAILED", "takes 13.000 ms"),
        (timed(medians(13), interference=0.2), "INCONCLUSIVE", "INCONCLUSIVE", "had the core"),
        (timed(medians(10), interference=0.2), "PASS", "PASS", "takes 10.000 ms"),
        (timed(medians(13), throttled_pairs=1), "INVALID", "INVALID", "against heat"),
        (timed(medians(13), conditions={MOVED_CAP: "x"}), "INCONCLUSIVE", "INCONCLUSIVE", " X."),
        (timed(medians(10), conditions={MOVED_CAP: "x"}), "PASS", "PASS", "takes 10.000 ms"),
        (emulated(), "NOT_MEASURED", "NOT_MEASURED", "Choose a real device with --device"),
    ],
)
def test_every_verdict(now: CaseResult, latency: str, p95: str, words: str) -> None:
    found = judged(now)
    assert [str(check.verdict) for check in found.values()] == [latency, p95]
    assert any(words in check.message for check in found.values())
    for check in found.values():
        assert check.limit is None or check.limit in (11, 12)
        assert check.interval is None or math.isfinite(check.interval[1])


def test_a_limit_holds_for_its_number_of_threads_and_the_arm_that_speaks() -> None:
    limits = with_limits(max_latency={"any": 0.009, "4": 0.011})
    for threads, verdict in ((1, Outcome.FAILED), (4, Outcome.PASS)):
        (check,) = check_budgets(timed(medians(10), threads=threads), limits)
        assert (check.metric, check.verdict) == ("latency budget (on)", verdict)
    assert not judged(timed(medians(10)), with_limits(max_latency={"4": 0.009}))
    # SME2 off takes 20 ms; nobody ships that.
    assert judged(measured(), AT_MOST)["latency budget (on)"].verdict is Outcome.PASS


TRIALS = 20_000


def tails(centres: Floats, generator: np.random.Generator) -> Floats:
    """What 95 % of 30 inferences of each process stay within."""
    runs = 1 + 0.005 * np.abs(generator.normal(size=(len(centres), 30)))
    found: Floats = centres * np.percentile(runs, 95, axis=1, method="hazen")
    return found


def shares(
    level: float, spread: float, skewed: bool, p95: bool, trials: int = TRIALS // 10
) -> tuple[float, float]:
    """How often the centre of the processes, which is at the limit times ``level``, is called more
    and less. That of a p95 is what the processes of all trials say together.
    """
    found, limit = [*processes(level, spread, skewed, trials)], 1.0
    if p95:
        generator = np.random.default_rng(5)
        found = [tails(times, generator) for times in found]
        limit = float(np.median(np.concatenate(found))) / level
    judged = [bounds([*times]) for times in found]
    over, below = (sum(low > limit for low, _ in judged), sum(high <= limit for _, high in judged))
    return over / trials, below / trials


@pytest.mark.parametrize("skewed", [False, True])
@pytest.mark.parametrize("spread", [0.002, 0.006, 0.01])
@pytest.mark.parametrize("p95", [False, pytest.param(True, marks=pytest.mark.nightly)])
def test_chance_decides_as_rarely_as_it_says(spread: float, skewed: bool, p95: bool) -> None:
    over, below = shares(1.0, spread, skewed, p95, TRIALS)
    # Three standard errors of what was promised.
    assert over <= ALARM + 3 * math.sqrt(ALARM / TRIALS)
    assert below <= ACQUITTAL + 3 * math.sqrt(ACQUITTAL / TRIALS)
    assert shares(1.05, spread, skewed, p95)[0] > 0.99
    assert shares(0.9, spread, skewed, p95)[0] == 0


def losses(level: float, spread: float, trials: int) -> Counter[Outcome]:
    """Verdicts on five minutes under load, the last of which takes as long as 15 % of loss allow,
    times ``level``; a level of 0 is a steady device.
    """
    generator, number = np.random.default_rng(7), int(300 / MOMENT_SECONDS)
    at = np.arange(number // MOMENTS).repeat(MOMENTS)
    slower = np.where(at < len(at) // MOMENTS / 2, 1, level / 0.85 or 1.0)
    found: Counter[Outcome] = Counter()
    for _ in range(trials):
        noise = generator.normal(0, spread, number)[at] + generator.normal(0, 0.005, number)
        moments = tuple(
            Moment(MOMENT_SECONDS * (index + 1), float(mean), process=int(process))
            for index, (mean, process) in enumerate(
                zip(1e7 * np.exp(noise) * slower, at, strict=True)
            )
        )
        now = measured(sustained=Sustained(Arm.ON, moments))
        (check,) = check_sustained(now, with_limits(max_sustained_loss=0.15), True)
        found[check.verdict] += 1
    return found


@pytest.mark.nightly
@pytest.mark.parametrize("spread", [0.002, 0.004, 0.01])
def test_a_loss_under_load_is_judged_wrong_as_rarely_as_it_says(spread: float) -> None:
    trials = TRIALS // 4
    found = losses(1.0, spread, trials)
    assert found[Outcome.FAILED] <= ALARM * trials + 3 * math.sqrt(ALARM * trials)
    assert found[Outcome.PASS] <= ACQUITTAL * trials + 3 * math.sqrt(ACQUITTAL * trials)
    found = losses(1.05, spread, trials // 10)
    assert found[Outcome.FAILED] >= 0.99 * trials / 10
    assert not found[Outcome.PASS]
    assert losses(0.0, spread, trials // 10) == {Outcome.PASS: trials // 10}


def test_the_bounds_are_those_of_the_binomial_distribution() -> None:
    """Added up by hand: 1/1024, 11/1024 and 56/1024 for ten; 1351/2^20 and 21700/2^20 for 20."""
    values = [float(value) for value in range(1, 21)]
    assert bounds(values[:10]) == (1, 9)
    assert bounds(values) == (4, 15)
    assert bounds(values[:8]) == (0, 7)
    assert bounds(values[:4]) == (0, math.inf)
