"""Every verdict of every check."""

from __future__ import annotations

import dataclasses
import itertools
import math

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pytest_sme2.errors import BaselineError
from pytest_sme2.results import (
    Arm,
    Baseline,
    Bounds,
    CaseResult,
    Category,
    Check,
    Decision,
    Estimate,
    Evidence,
    Fingerprint,
    Limits,
    Look,
    Outcome,
    PairedTiming,
    PairSample,
    Spread,
    Tolerance,
)
from pytest_sme2.verdict import judging, outputs, sizes, times
from pytest_sme2.verdict import structure as exact
from pytest_sme2.verdict.limits import default_limits
from tests.support.every_check import check_all
from tests.support.gate_examples import (
    CONV_OFF,
    CONV_ON,
    EMULATED,
    KERNELS,
    LINUX,
    PORTABLE,
    STRUCTURES,
    TRANSPOSE,
    agreement,
    baseline,
    census,
    emulated,
    measured,
    medians,
    session,
    structure,
)
from tests.support.profiles import profile_of

LIMITS = default_limits()


def with_limits(**changes: object) -> Limits:
    return dataclasses.replace(LIMITS, **changes)  # type: ignore[arg-type]


def with_on(**counts: int) -> dict[Arm, object]:
    """The structures of the example with other counts on the on arm."""
    names = {"conv": CONV_ON, "slow": CONV_OFF, "transpose": TRANSPOSE, "portable": PORTABLE}
    return {
        Arm.ON: structure({names[key]: count for key, count in counts.items()}),
        Arm.OFF: STRUCTURES[Arm.OFF],
    }


# --- combining ------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("verdicts", "outcome"),
    [
        (["PASS", "PASS"], "PASS"),
        (["PASS", "IMPROVED"], "IMPROVED"),
        (["IMPROVED", "NO_BASELINE"], "NO_BASELINE"),
        (["NO_BASELINE", "INCONCLUSIVE"], "INCONCLUSIVE"),
        (["INCONCLUSIVE", "REGRESSED"], "REGRESSED"),
        (["REGRESSED", "INVALID"], "INVALID"),
        (["INVALID", "PASS", "REGRESSED", "IMPROVED"], "INVALID"),
    ],
)
def test_the_gravest_verdict_decides(verdicts: list[str], outcome: str) -> None:
    checks = [Check("x", Outcome(verdict), "") for verdict in verdicts]
    for order in itertools.permutations(checks):
        assert judging.combine(order) is Outcome(outcome)


def test_no_check_is_no_pass() -> None:
    with pytest.raises(ValueError, match="nothing to pass"):
        judging.combine([])


def test_verdict_names_what_it_is_about() -> None:
    found = judging.verdict(measured(), [Check("x", Outcome.PASS, "")])
    assert (found.model, found.variant, found.target) == ("toy_cnn", "fp16", "linux")
    assert found.outcome is Outcome.PASS


@pytest.mark.parametrize(
    ("low", "high", "outcome"),
    [
        (1.021, 1.03, Outcome.REGRESSED),
        (1.02, 1.03, Outcome.INCONCLUSIVE),
        (0.99, 1.02, Outcome.PASS),
        (0.99, 1.0201, Outcome.INCONCLUSIVE),
        (0.9, 0.979, Outcome.IMPROVED),
        (0.9, 0.981, Outcome.PASS),
    ],
)
def test_judging_an_interval(low: float, high: float, outcome: Outcome) -> None:
    assert judging.judge(low, high, 0.02) is outcome


def test_as_much_faster_as_is_tolerated_slower_is_no_improvement_yet() -> None:
    assert judging.judge(0.25, 0.5, 1.0) is Outcome.PASS
    assert judging.judge(0.25, 0.4999, 1.0) is Outcome.IMPROVED


# --- evidence -------------------------------------------------------------------------------------


def test_evidence_verdicts() -> None:
    assert exact.check_evidence(measured()).verdict is Outcome.PASS
    wrong = Evidence(False, "The off run shows 4 SME2 operators.", 4, 4, 4)
    found = exact.check_evidence(measured(evidence=wrong))
    assert (found.verdict, found.message) == (Outcome.INVALID, wrong.message)
    found = exact.check_evidence(measured(evidence=None))
    assert found.verdict is Outcome.INVALID
    assert "no SME2" in found.message


def test_an_unusable_baseline_is_invalid() -> None:
    found = exact.baseline_problem(BaselineError("x.json: of another target"))
    assert (found.metric, found.verdict) == ("baseline", Outcome.INVALID)
    assert "x.json" in found.message


# --- latency and load -----------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("milliseconds", "outcome"),
    [
        (10.0, Outcome.PASS),
        (10.08, Outcome.PASS),
        (10.2, Outcome.INCONCLUSIVE),
        (10.5, Outcome.REGRESSED),
        (9.5, Outcome.IMPROVED),
        (9.9, Outcome.PASS),
    ],
)
@pytest.mark.parametrize("arm", list(Arm))
def test_latency_verdicts(milliseconds: float, outcome: Outcome, arm: Arm) -> None:
    factor = 1 if arm is Arm.ON else 2
    now = measured(medians_ns={arm: medians(milliseconds * factor)})
    found = times.check_latency(now, baseline(), LIMITS, arm)
    assert found.verdict is outcome
    assert found.metric == f"latency ({arm})"
    assert found.old == pytest.approx(10e6 * factor, rel=1e-3)
    assert found.new == pytest.approx(milliseconds * 1e6 * factor, rel=1e-3)
    assert found.interval is not None
    assert found.interval[0] < milliseconds / 10 < found.interval[1]
    assert found.limit == 0.02


def test_latency_speaks_for_the_on_arm_unless_only_off_ran() -> None:
    assert times.check_latency(measured(), baseline(), LIMITS).metric == "latency (on)"
    now = measured(structures={Arm.OFF: STRUCTURES[Arm.OFF]})
    assert times.check_latency(now, baseline(), LIMITS).metric == "latency (off)"


def test_the_limit_decides() -> None:
    slower = measured(medians_ns={Arm.ON: medians(10.5)})
    loose = times.check_latency(slower, baseline(), with_limits(max_regression=0.1))
    assert (loose.verdict, loose.limit) == (Outcome.PASS, 0.1)


def test_latency_without_baseline_says_how_to_make_one() -> None:
    for missing in (None, baseline(sessions=()), baseline(sessions=(session(1, threads=4),))):
        found = times.check_latency(measured(), missing, LIMITS)
        assert found.verdict is Outcome.NO_BASELINE
        assert "--update-baselines" in found.message


def test_latency_of_another_target_is_never_compared() -> None:
    other = baseline(fingerprint=Fingerprint("linux", (("cores", "8"), ("cpu", "Cortex-X5"))))
    found = times.check_latency(measured(), other, LIMITS)
    assert found.verdict is Outcome.INVALID
    assert "cpu 'Cortex-X5' there, 'Neoverse-V3' here" in found.message


def test_emulated_times_are_never_compared() -> None:
    now = emulated(medians_ns={Arm.ON: medians(10)})
    for found in (
        times.check_latency(now, baseline(fingerprint=EMULATED), LIMITS),
        times.check_load(now, baseline(), LIMITS),
        times.check_speedup(now, baseline(), LIMITS),
        times.check_share(now, baseline(), LIMITS, Category.CONV),
    ):
        assert found.verdict is Outcome.INVALID
        assert "mulated" in found.message
    assert sizes.check_memory(now, baseline(), LIMITS).verdict is Outcome.INVALID


def test_what_was_not_measured_is_invalid() -> None:
    now = measured(
        medians_ns={}, loads_ns={}, speedup=None, shares={}, peak_bytes={}, pte_bytes=None
    )
    for found in (
        times.check_latency(now, baseline(), LIMITS),
        times.check_load(now, baseline(), LIMITS),
        times.check_speedup(now, baseline(), LIMITS),
        times.check_share(now, baseline(), LIMITS, Category.CONV),
        sizes.check_memory(now, baseline(), LIMITS),
        sizes.check_size(now, baseline(), LIMITS),
    ):
        assert found.verdict is Outcome.INVALID


@pytest.mark.parametrize(
    ("milliseconds", "outcome"),
    [
        (10.0, Outcome.PASS),
        (10.5, Outcome.INCONCLUSIVE),
        (11.5, Outcome.REGRESSED),
        (9.5, Outcome.PASS),
        (8.0, Outcome.IMPROVED),
    ],
)
def test_one_session_alone_must_be_sure(milliseconds: float, outcome: Outcome) -> None:
    provisional = baseline(sessions=(session(1),))
    now = measured(medians_ns={Arm.ON: medians(milliseconds)})
    found = times.check_latency(now, provisional, LIMITS)
    assert found.verdict is outcome
    assert "provisional: 1 of 3 sessions" in found.message


@pytest.mark.parametrize(
    ("interval", "outcome"),
    [
        ((1 + times.PROVISIONAL_MARGIN, 1.2), Outcome.INCONCLUSIVE),
        ((1 + times.PROVISIONAL_MARGIN + 1e-9, 1.2), Outcome.REGRESSED),
        ((0.8, 1 / (1 + times.PROVISIONAL_MARGIN)), Outcome.PASS),
        ((0.8, 1 / (1 + times.PROVISIONAL_MARGIN) - 1e-9), Outcome.IMPROVED),
    ],
)
def test_how_sure_one_session_must_be(
    interval: tuple[float, float], outcome: Outcome, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(times, "session_interval", lambda new, sessions: interval)
    provisional = baseline(sessions=(session(1), session(2)))
    assert times.check_latency(measured(), provisional, LIMITS).verdict is outcome


@pytest.mark.parametrize(("interference", "busy"), [(times.BUSY, False), (0.0501, True)])
def test_how_busy_is_busy(interference: float, busy: bool) -> None:
    slower = measured(medians_ns={Arm.ON: medians(15)}, interference=interference)
    found = times.check_latency(slower, baseline(), LIMITS)
    assert (found.verdict is Outcome.INCONCLUSIVE) == busy
    assert ("The machine was busy" in found.message) == busy


@pytest.mark.parametrize(
    ("then", "now", "told"),
    [
        ((1e6, 1e6, 1e6), 1.04e6, ""),
        ((1e6, 1e6, 1e6), 1.06e6, "is 6% slower than it was: a program that never changes took "
         "1060 us, and 1000 us then."),
        ((1e6, 1e6, 1e6), 0.94e6, "is 6% faster than it was: a program that never changes took "
         "940 us, and 1000 us then."),
        # Sessions without a yardstick tell nothing of the machine, and neither does a run.
        ((None, 1e6, None), 1.06e6, "is 6% slower"),
        ((None, None, None), 1.06e6, ""),
        ((1e6, 1e6, 1e6), None, ""),
    ],
)  # fmt: skip
def test_how_much_of_a_change_makes_it_another_machine(
    then: tuple[float | None, ...], now: float | None, told: str
) -> None:
    sessions = tuple(
        session(number, yardstick_ns=time) for number, time in enumerate(then, start=1)
    )
    slower = measured(medians_ns={Arm.ON: medians(15)}, yardstick_ns=now)
    found = times.check_latency(slower, baseline(sessions=sessions), LIMITS)
    assert found.verdict is (Outcome.INCONCLUSIVE if told else Outcome.REGRESSED)
    assert ("The machine itself" in found.message) == bool(told)
    assert told in found.message


def test_a_session_that_did_not_time_the_arm_does_not_count() -> None:
    off_alone = session(3, medians_ns={Arm.OFF: medians(20)})
    with_it, without = (
        times.check_latency(measured(), baseline(sessions=sessions), LIMITS)
        for sessions in ((session(1), session(2), off_alone), (session(1), session(2)))
    )
    assert with_it == without
    assert "provisional: 2 of 3 sessions" in with_it.message
    found = times.check_latency(measured(), baseline(sessions=(off_alone,)), LIMITS)
    assert found.verdict is Outcome.NO_BASELINE


def test_only_the_last_epoch_counts() -> None:
    old = baseline(
        sessions=(
            *(session(n, 20, epoch=1) for n in (1, 2, 3)),
            *(session(n, 10, epoch=2) for n in (4, 5, 6)),
        )
    )
    assert times.check_latency(measured(), old, LIMITS).verdict is Outcome.PASS


@pytest.mark.parametrize(
    ("milliseconds", "outcome"),
    [
        (5.0, Outcome.PASS),
        (6.2, Outcome.PASS),
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


# --- speedup --------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("low", "high", "least", "outcome"),
    [
        (1.9, 2.1, 1.8, Outcome.PASS),
        (1.9, 2.1, 1.9, Outcome.PASS),
        (1.9, 2.1, 2.0, Outcome.INCONCLUSIVE),
        (1.9, 2.1, 2.1, Outcome.INCONCLUSIVE),
        (1.9, 2.1, 2.2, Outcome.REGRESSED),
        (0.0, math.inf, 1.0, Outcome.INCONCLUSIVE),
        (0.99, 1.01, None, Outcome.PASS),
        (0.9, 0.95, None, Outcome.REGRESSED),
        (0.9, 1.01, None, Outcome.INCONCLUSIVE),
    ],
)
def test_speedup_verdicts(low: float, high: float, least: float | None, outcome: Outcome) -> None:
    now = measured(speedup=Estimate(2.0, low, high, 0.99, 10))
    found = times.check_speedup(now, baseline(), with_limits(min_speedup=least))
    assert found.verdict is outcome
    assert found.old == 2.0
    assert found.interval == (low, high)


# --- A/B ------------------------------------------------------------------------------------------


def measurement(low: float, high: float, decided: Outcome | None, at: float = 0.02) -> PairedTiming:
    look = Look(10, 0.005, (low + high) / 2, (low, high), 0.5)
    pair = PairSample(0, "A", 10e6, 10e6 * look.estimate, 0.0, 0.0)
    decision = None if decided is None else Decision(decided, at, (look,), 0.5)
    return PairedTiming(
        "executorch 1.5.0", "this", 0, 3, 10, 1, (pair,), (), decision, (look,), "clear",
        0.003, 0.03, (), (), 1.0,
    )  # fmt: skip


@pytest.mark.parametrize("decided", [Outcome.PASS, Outcome.REGRESSED, Outcome.IMPROVED])
def test_interleaved_pairs_keep_their_decision(decided: Outcome) -> None:
    found = times.check_against(measurement(1.01, 1.05, decided), LIMITS)
    assert found.verdict is decided
    assert found.metric == "latency against executorch 1.5.0"
    assert found.old == 10e6
    assert found.interval == (1.01, 1.05)
    assert found.p_value == 0.5


@pytest.mark.parametrize(
    ("low", "high", "outcome"),
    [
        (1.03, 1.05, Outcome.REGRESSED),
        (0.99, 1.01, Outcome.PASS),
        (0.9, 0.95, Outcome.IMPROVED),
        (1.0, 1.05, Outcome.INCONCLUSIVE),
    ],
)
def test_a_decision_about_another_limit_does_not_count(
    low: float, high: float, outcome: Outcome
) -> None:
    for other in (measurement(low, high, None), measurement(low, high, Outcome.PASS, at=0.5)):
        assert times.check_against(other, LIMITS).verdict is outcome


def test_too_few_pairs_are_inconclusive() -> None:
    few = measurement(1.0, 1.0, None)
    few = dataclasses.replace(few, looks=(dataclasses.replace(few.looks[0], interval=None),))
    assert times.check_against(few, LIMITS).verdict is Outcome.INCONCLUSIVE


# --- shares ---------------------------------------------------------------------------------------


def with_share(value: float, spread: float = 0.01) -> dict[Arm, dict[Category, Spread]]:
    return {Arm.ON: {Category.DATA_MOVEMENT: Spread(value, value - spread, value + spread)}}


@pytest.mark.parametrize(
    ("share", "outcome"),
    [
        (0.30, Outcome.PASS),
        (0.34, Outcome.PASS),
        (0.36, Outcome.INCONCLUSIVE),
        (0.40, Outcome.REGRESSED),
        (0.10, Outcome.PASS),
    ],
)
def test_share_against_the_baseline(share: float, outcome: Outcome) -> None:
    now = measured(shares=with_share(share))
    found = times.check_share(now, baseline(), LIMITS, Category.DATA_MOVEMENT)
    assert found.verdict is outcome
    assert found.metric == "share of DATA_MOVEMENT (on)"
    assert (found.old, found.new) == (0.3, share)


@pytest.mark.parametrize(
    ("share", "outcome"),
    [
        (0.30, Outcome.PASS),
        (0.205, Outcome.PASS),
        (0.195, Outcome.INCONCLUSIVE),
        (0.18, Outcome.REGRESSED),
        (0.355, Outcome.INCONCLUSIVE),
        (0.37, Outcome.REGRESSED),
    ],
)
def test_share_against_bounds(share: float, outcome: Outcome) -> None:
    bounded = with_limits(shares={Category.DATA_MOVEMENT: Bounds(0.2, 0.35)})
    now = measured(shares=with_share(share))
    for known in (None, baseline()):
        found = times.check_share(now, known, bounded, Category.DATA_MOVEMENT)
        assert found.verdict is outcome


# These numbers are exact, so that what is equal is equal.
@pytest.mark.parametrize(
    ("share", "outcome"),
    [
        (Spread(0.5, 0.5, 0.5), Outcome.PASS),
        (Spread(0.25, 0.25, 0.25), Outcome.PASS),
        (Spread(0.75, 0.5, 1.0), Outcome.INCONCLUSIVE),
        (Spread(0.125, 0.0, 0.25), Outcome.INCONCLUSIVE),
    ],
)
def test_a_share_at_its_bound_is_within_it(share: Spread, outcome: Outcome) -> None:
    bounded = with_limits(shares={Category.CONV: Bounds(0.25, 0.5)})
    now = measured(shares={Arm.ON: {Category.CONV: share}})
    assert times.check_share(now, None, bounded, Category.CONV).verdict is outcome


@pytest.mark.parametrize(
    ("share", "outcome"),
    [
        (Spread(0.5, 0.5, 0.5), Outcome.PASS),
        (Spread(0.75, 0.5, 1.0), Outcome.INCONCLUSIVE),
        (Spread(0.75, 0.625, 1.0), Outcome.REGRESSED),
    ],
)
def test_a_share_that_grew_by_what_is_allowed_may(share: Spread, outcome: Outcome) -> None:
    old = baseline(shares={Arm.ON: {Category.CONV: Spread(0.25, 0.25, 0.25)}})
    now = measured(shares={Arm.ON: {Category.CONV: share}})
    limits = with_limits(max_share_growth=0.25)
    assert times.check_share(now, old, limits, Category.CONV).verdict is outcome


def test_share_without_baseline_or_from_elsewhere() -> None:
    now = measured()
    for none in (None, baseline(shares={})):
        found = times.check_share(now, none, LIMITS, Category.CONV)
        assert found.verdict is Outcome.NO_BASELINE
    other = baseline(fingerprint=Fingerprint("mac", ()))
    assert times.check_share(now, other, LIMITS, Category.CONV).verdict is Outcome.INVALID


# --- structure ------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("counts", "outcome"),
    [
        ({"conv": 4, "transpose": 2}, Outcome.PASS),
        ({"conv": 3, "slow": 1, "transpose": 2}, Outcome.REGRESSED),
    ],
)
def test_coverage_against_the_baseline(counts: dict[str, int], outcome: Outcome) -> None:
    found = exact.check_coverage(measured(structures=with_on(**counts)), baseline(), LIMITS)
    assert found.verdict is outcome
    assert found.old == 1.0


def test_coverage_that_grew_is_an_improvement() -> None:
    old = baseline(structures=with_on(conv=1, slow=3))
    found = exact.check_coverage(measured(), old, LIMITS)
    assert (found.verdict, found.old, found.new) == (Outcome.IMPROVED, 0.25, 1.0)


def test_coverage_against_the_least_asked_for() -> None:
    half = measured(structures=with_on(conv=2, slow=2))
    asked = with_limits(min_coverage=0.9)
    found = exact.check_coverage(half, None, asked)
    assert (found.verdict, found.limit) == (Outcome.REGRESSED, 0.9)
    assert "2 of 4" in found.message
    assert exact.check_coverage(measured(), None, asked).verdict is Outcome.PASS
    exactly = with_limits(min_coverage=0.5)
    assert exact.check_coverage(half, None, exactly).verdict is Outcome.PASS


def test_the_least_asked_for_is_held_against_all_that_is_known() -> None:
    """A census may prove less than the operators' names say."""
    profile = profile_of([(CONV_ON, 100), (CONV_OFF, 50)])
    now = measured(profiles={Arm.ON: profile})
    found = exact.check_coverage(now, baseline(), with_limits(min_coverage=0.9))
    assert found.verdict is Outcome.REGRESSED
    assert found.message.startswith("1 of 2 matrix operators run on SME2 kernels, less than")
    (missed, reason), *_ = profile.coverage.missed
    assert found.details == (f"{missed.label}: {reason}",)
    # A baseline is compared by names alone.
    assert exact.check_coverage(now, baseline(), LIMITS).verdict is Outcome.PASS


def test_coverage_of_nothing() -> None:
    assert exact.check_coverage(measured(), None, LIMITS).verdict is Outcome.NO_BASELINE
    none = measured(structures=with_on(transpose=2))
    assert exact.check_coverage(none, None, LIMITS).verdict is Outcome.PASS
    had_none = baseline(structures=with_on(transpose=2))
    assert exact.check_coverage(measured(), had_none, LIMITS).verdict is Outcome.NO_BASELINE
    off_only = measured(structures={Arm.OFF: STRUCTURES[Arm.OFF]})
    assert exact.check_coverage(off_only, baseline(), LIMITS).verdict is Outcome.INVALID


@pytest.mark.parametrize(
    ("counts", "outcome", "lines"),
    [
        ({"conv": 4, "transpose": 2}, Outcome.PASS, ()),
        ({"conv": 4, "transpose": 4}, Outcome.REGRESSED, (f"+2 {TRANSPOSE}",)),
        ({"conv": 4, "transpose": 1}, Outcome.IMPROVED, (f"-1 {TRANSPOSE}",)),
        ({"conv": 4}, Outcome.IMPROVED, (f"-2 {TRANSPOSE}",)),
        # Less work is better, on whatever kernel it was.
        ({"conv": 3, "transpose": 2}, Outcome.IMPROVED, (f"-1 {CONV_ON}",)),
        (
            {"conv": 3, "slow": 1, "transpose": 2},
            Outcome.REGRESSED,
            (f"+1 {CONV_OFF}", f"-1 {CONV_ON}"),
        ),
        (
            {"conv": 3, "portable": 1, "transpose": 2},
            Outcome.REGRESSED,
            (f"+1 {PORTABLE}", f"-1 {CONV_ON}"),
        ),
        ({"conv": 5, "transpose": 2}, Outcome.REGRESSED, (f"+1 {CONV_ON}",)),
    ],
)
def test_operators_are_compared_exactly(
    counts: dict[str, int], outcome: Outcome, lines: tuple[str, ...]
) -> None:
    found = exact.check_operators(measured(structures=with_on(**counts)), baseline())
    assert found.verdict is outcome
    assert len(found.details) == len(lines)
    for line, start in zip(found.details, lines, strict=True):
        assert line.startswith(start)
    assert found.new == sum(counts.values())


def test_work_that_moved_to_sme2_is_an_improvement() -> None:
    old = baseline(structures=with_on(conv=1, slow=3, transpose=2))
    assert exact.check_operators(measured(), old).verdict is Outcome.IMPROVED
    # …but not if there is more of it than before.
    old = baseline(structures=with_on(conv=1, slow=2, transpose=2))
    assert exact.check_operators(measured(), old).verdict is Outcome.REGRESSED
    # …nor if other work is gone for it, or other work on SME2 kernels.
    old = baseline(structures=with_on(conv=1, slow=1, transpose=3))
    now = measured(structures=with_on(conv=3, transpose=2))
    assert exact.check_operators(now, old).verdict is Outcome.REGRESSED
    old = baseline(structures=with_on(conv=2, slow=3))
    now = measured(structures={Arm.ON: structure({"Fully Connected (NC, PF32) GEMM": 3})})
    assert exact.check_operators(now, old).verdict is Outcome.REGRESSED
    # …nor if it moved to another operator that is not on them.
    old = baseline(structures=with_on(slow=3))
    now = measured(structures={Arm.ON: structure({"Fully Connected (NC, F32) GEMM": 3})})
    assert exact.check_operators(now, old).verdict is Outcome.REGRESSED
    # …nor if something else came along.
    old = baseline(structures=with_on(conv=1, slow=3, transpose=2))
    now = measured(structures=with_on(conv=3, transpose=3))
    assert exact.check_operators(now, old).verdict is Outcome.REGRESSED


def test_operators_on_any_machine() -> None:
    here = emulated(structures=with_on(conv=4, transpose=3))
    assert exact.check_operators(here, baseline()).verdict is Outcome.REGRESSED
    assert exact.check_operators(here, None).verdict is Outcome.NO_BASELINE
    off_only = measured(structures={Arm.OFF: STRUCTURES[Arm.OFF]})
    assert exact.check_operators(off_only, baseline(), Arm.ON).verdict is Outcome.INVALID
    assert exact.check_operators(off_only, baseline()).metric == "operators (off)"


def test_another_executorch_is_named_as_the_likely_reason() -> None:
    versions = {"executorch": "1.5.1", "executorch runtime": "1.6.0", "torch": "3.0"}
    now = measured(structures=with_on(conv=4, transpose=3), versions=versions)
    found = exact.check_operators(now, baseline())
    assert "made with executorch runtime 1.5.1, this is with 1.6.0" in found.message
    assert found.message.count("made with") == 1


@pytest.mark.parametrize(
    ("before", "after", "outcome"),
    [
        (0, 0, Outcome.PASS),
        (1, 1, Outcome.PASS),
        (0, 1, Outcome.REGRESSED),
        (2, 1, Outcome.IMPROVED),
    ],
)
def test_delegation(before: int, after: int, outcome: Outcome) -> None:
    def counts(portable: int) -> dict[str, int]:
        return {"conv": 4, **({"portable": portable} if portable else {})}

    old = baseline(structures=with_on(**counts(before)))
    found = exact.check_delegation(measured(structures=with_on(**counts(after))), old)
    assert (found.verdict, found.old, found.new) == (outcome, before, after)
    assert any(PORTABLE in line for line in found.details) == (before != after)


def test_delegation_is_not_about_what_stays_in_the_delegate() -> None:
    old = baseline(structures=with_on(conv=4, portable=1, transpose=2))
    now = measured(structures=with_on(conv=4, portable=1, transpose=3))
    found = exact.check_delegation(now, old)
    assert (found.verdict, found.details) == (Outcome.PASS, ())


def test_delegation_of_another_operator() -> None:
    old = baseline(structures={Arm.ON: structure({"aten::a": 1})})
    now = measured(structures={Arm.ON: structure({"aten::b": 1})})
    found = exact.check_delegation(now, old)
    assert found.verdict is Outcome.REGRESSED
    assert [line.split(" (")[0] for line in found.details] == ["+1 aten::b", "-1 aten::a"]
    assert exact.check_delegation(now, None).verdict is Outcome.NO_BASELINE
    assert exact.check_delegation(now, old, Arm.OFF).verdict is Outcome.INVALID


@pytest.mark.parametrize(
    ("names", "outcome"),
    [
        (("kai_matmul_sme2_mopa", "xnn_x16_transpose_neon"), Outcome.PASS),
        (("xnn_f16_gemm_neon", "xnn_x16_transpose_neon"), Outcome.REGRESSED),
        (("kai_matmul_sme2_mopa", "kai_dot_sme2", "xnn_x16_transpose_neon"), Outcome.IMPROVED),
        (("kai_matmul_sme2_mopa",), Outcome.REGRESSED),
        (
            ("kai_matmul_sme2_mopa", "kai_dot_sme2", "xnn_new_neon", "xnn_x16_transpose_neon"),
            Outcome.REGRESSED,
        ),
        (("kai_dot_sme2",), Outcome.REGRESSED),
        (("kai_matmul_sme2_mopa", "kai_dot_sme2"), Outcome.IMPROVED),
    ],
)
def test_kernels(names: tuple[str, ...], outcome: Outcome) -> None:
    now = emulated(kernels={Arm.ON: census(Arm.ON, *names)})
    found = exact.check_kernels(now, baseline())
    assert found.verdict is outcome
    changed = {*names} ^ {kernel.name for kernel in KERNELS[Arm.ON].kernels}
    assert {line.split()[1] for line in found.details} == changed


def test_kernels_that_are_not_known() -> None:
    assert exact.check_kernels(measured(kernels={}), baseline()).verdict is Outcome.INVALID
    assert exact.check_kernels(measured(), baseline(kernels={})).verdict is Outcome.NO_BASELINE
    logged = measured(kernels={Arm.ON: census(Arm.ON, "a", source="xnnpack-log")})
    found = exact.check_kernels(logged, baseline())
    assert found.verdict is Outcome.NO_BASELINE
    assert "xnnpack-log" in found.message


# --- sizes ----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("megabytes", "outcome"),
    [(50, Outcome.PASS), (54, Outcome.PASS), (56, Outcome.REGRESSED), (40, Outcome.IMPROVED)],
)
def test_memory_verdicts(megabytes: int, outcome: Outcome) -> None:
    now = measured(peak_bytes={Arm.ON: megabytes * 10**6})
    found = sizes.check_memory(now, baseline(), LIMITS)
    assert (found.verdict, found.old, found.unit) == (outcome, 50e6, "bytes")
    assert sizes.check_memory(now, None, LIMITS).verdict is Outcome.NO_BASELINE
    other = baseline(fingerprint=Fingerprint("mac", ()))
    assert sizes.check_memory(now, other, LIMITS).verdict is Outcome.INVALID


def test_a_baseline_without_memory_is_none_wherever_it_is_of() -> None:
    other = baseline(fingerprint=Fingerprint("mac", ()), peak_bytes={})
    assert sizes.check_memory(measured(), other, LIMITS).verdict is Outcome.NO_BASELINE


def test_memory_against_the_most_allowed() -> None:
    now = measured()
    tight, wide = with_limits(max_memory_bytes=49_999_999), with_limits(max_memory_bytes=50_000_000)
    assert sizes.check_memory(now, baseline(), tight).verdict is Outcome.REGRESSED
    assert sizes.check_memory(now, None, wide).verdict is Outcome.PASS
    assert sizes.check_memory(now, baseline(), wide).verdict is Outcome.PASS


@pytest.mark.parametrize(
    ("size", "outcome"),
    [
        (100_000, Outcome.PASS),
        (101_000, Outcome.PASS),
        (101_001, Outcome.REGRESSED),
        (99_009, Outcome.IMPROVED),
    ],
)
def test_size_verdicts(size: int, outcome: Outcome) -> None:
    now = emulated(pte_bytes=size)
    assert sizes.check_size(now, baseline(), LIMITS).verdict is outcome
    assert sizes.check_size(now, None, LIMITS).verdict is Outcome.NO_BASELINE


# --- outputs --------------------------------------------------------------------------------------


@pytest.mark.parametrize("against", ["off", "reference"])
@pytest.mark.parametrize(
    ("changes", "outcome"),
    [
        ({}, Outcome.PASS),
        ({"identical": True, "sqnr_db": None, "max_rel": 0.0}, Outcome.PASS),
        ({"max_rel": 0.2}, Outcome.REGRESSED),
        ({"sqnr_db": 20.0}, Outcome.REGRESSED),
        ({"has_nan": True}, Outcome.REGRESSED),
        ({"identical": True, "has_nan": True}, Outcome.REGRESSED),
    ],
)
def test_output_verdicts(against: str, changes: dict[str, object], outcome: Outcome) -> None:
    now = emulated(agreements=(agreement(against=against, **changes),))
    found = outputs.check_outputs(now, LIMITS, against)
    assert (found.metric, found.verdict) == (f"outputs against {against}", outcome)


def test_outputs_use_the_tolerance_of_the_precision() -> None:
    close = agreement(max_rel=1e-3, sqnr_db=60.0)
    for variant, outcome in (("fp16@256", Outcome.PASS), ("fp32", Outcome.REGRESSED)):
        now = measured(variant=variant, agreements=(close,))
        assert outputs.check_outputs(now, LIMITS, "off").verdict is outcome
    own = with_limits(on_off_tolerances={"fp16": Tolerance(max_abs=1e-9)})
    assert outputs.check_outputs(measured(), own, "off").verdict is Outcome.REGRESSED
    assert outputs.check_outputs(measured(), Limits(), "off").verdict is Outcome.INVALID


def test_nan_fails_even_where_nothing_was_compared() -> None:
    now = measured(agreements=(), nan_arms=(Arm.OFF,))
    found = outputs.check_outputs(now, LIMITS, "reference")
    assert found.verdict is Outcome.REGRESSED
    assert "NaN (SME2 off)" in found.message
    nothing = outputs.check_outputs(measured(agreements=()), LIMITS, "reference")
    assert nothing.verdict is Outcome.INVALID


# --- all together ---------------------------------------------------------------------------------


def test_all_checks_of_a_healthy_run_pass() -> None:
    checks = check_all(measured(), baseline(), LIMITS)
    assert {check.verdict for check in checks} == {Outcome.PASS}
    metrics = [check.metric for check in checks]
    assert len(set(metrics)) == len(metrics)
    assert {"evidence", "latency (on)", "latency (off)", "speedup", "program size"} <= {*metrics}


STRUCTURAL = [
    *("evidence", "SME2 coverage"),
    *("operators (on)", "portable operators (on)", "kernels (on)"),
    *("operators (off)", "portable operators (off)", "kernels (off)"),
    "program size",
]
TIMED = [
    *("latency (on)", "latency (off)", "speedup", "load time (on)", "load time (off)"),
    *("peak memory (on)", "peak memory (off)"),
    *("share of CONV (on)", "share of DATA_MOVEMENT (on)"),
]
OUTPUTS = ["outputs against off", "outputs against reference"]


def metrics(now: CaseResult) -> list[str]:
    return [check.metric for check in check_all(now, None, LIMITS)]


def test_nothing_that_was_measured_goes_unchecked() -> None:
    assert sorted(metrics(measured())) == sorted([*STRUCTURAL, *OUTPUTS, *TIMED])


def test_nothing_that_was_not_measured_is_checked() -> None:
    nothing = measured(
        medians_ns=None, speedup=None, loads_ns=None, peak_bytes=None, shares=None, kernels={}
    )
    kernels = {"kernels (on)", "kernels (off)"}
    assert sorted(metrics(nothing)) == sorted({*STRUCTURAL, *OUTPUTS} - kernels)
    empty = measured(medians_ns={Arm.ON: (), Arm.OFF: (1.0,)}, loads_ns={Arm.ON: ()})
    assert "latency (off)" in metrics(empty)
    assert not {"latency (on)", "load time (on)", "load time (off)"} & {*metrics(empty)}
    assert "program size" not in metrics(measured(pte_bytes=None))
    assert not {*OUTPUTS} & {*metrics(measured(agreements=()))}
    one = metrics(measured(agreements=(agreement(),)))
    assert [name for name in one if name in OUTPUTS] == ["outputs against off"]


def test_a_nan_is_checked_where_nothing_was_compared() -> None:
    found = metrics(measured(agreements=(), nan_arms=(Arm.ON,)))
    assert [name for name in found if name in OUTPUTS] == OUTPUTS


def test_emulated_times_are_not_even_looked_at() -> None:
    timed = measured(emulated=True, fingerprint=EMULATED)
    assert sorted(metrics(timed)) == sorted([*STRUCTURAL, *OUTPUTS])


def test_the_emulator_is_only_asked_what_it_can_vouch_for() -> None:
    checks = check_all(emulated(), baseline(fingerprint=EMULATED, sessions=()), LIMITS)
    assert {check.verdict for check in checks} == {Outcome.PASS}
    assert not [c for c in checks if c.metric.startswith(("latency", "load", "share", "speedup"))]
    assert any(check.metric == "kernels (on)" for check in checks)


def test_a_machine_without_sme2_is_not_asked_about_it() -> None:
    now = measured(
        structures={Arm.OFF: STRUCTURES[Arm.OFF]},
        kernels={},
        medians_ns={Arm.OFF: medians(20)},
        loads_ns={},
        peak_bytes={},
        shares={},
        speedup=None,
        evidence=None,
        agreements=(),
        fingerprint=LINUX,
    )
    checks = check_all(now, baseline(), LIMITS)
    assert judging.combine(checks) is Outcome.PASS
    assert {check.metric for check in checks} == {
        "operators (off)", "portable operators (off)", "program size", "latency (off)",
    }  # fmt: skip


@settings(deadline=None)
@given(
    st.floats(1e-3, 1e3), st.floats(1.0, 1.5), st.floats(0, 1.0),
)  # fmt: skip
def test_an_interval_gets_one_verdict_and_more_tolerance_never_hurts(
    low: float, width: float, limit: float
) -> None:
    order = (Outcome.REGRESSED, Outcome.INCONCLUSIVE, Outcome.PASS)
    verdict = judging.judge(low, low * width, limit)
    looser = judging.judge(low, low * width, limit + 0.1)
    if Outcome.IMPROVED not in (verdict, looser):
        assert order.index(looser) >= order.index(verdict)


@pytest.mark.parametrize("factor", [1.5, 0.5])
def test_a_busy_machine_cannot_prove_anything_about_a_stored_latency(factor: float) -> None:
    changed = {Arm.ON: medians(10 * factor), Arm.OFF: medians(20 * factor)}
    quiet = measured(medians_ns=changed, interference=0.01)
    assert times.check_latency(quiet, baseline(), LIMITS).verdict is not Outcome.INCONCLUSIVE
    busy = dataclasses.replace(quiet, interference=0.30)
    check = times.check_latency(busy, baseline(), LIMITS)
    assert check.verdict is Outcome.INCONCLUSIVE
    assert "busy (wall time 30% over CPU time" in check.message


@pytest.mark.parametrize("factor", [1.5, 0.5])
def test_a_machine_that_changed_cannot_prove_anything_about_a_stored_latency(factor: float) -> None:
    """The very thing that a neighbour on the same core does: all is slower, and no clock tells."""
    old = baseline()
    old = dataclasses.replace(
        old,
        sessions=tuple(dataclasses.replace(entry, yardstick_ns=1e6) for entry in old.sessions),
    )
    changed = {Arm.ON: medians(10 * factor), Arm.OFF: medians(20 * factor)}
    now = measured(medians_ns=changed, interference=0.0, yardstick_ns=1.03e6)
    assert times.check_latency(now, old, LIMITS).verdict is not Outcome.INCONCLUSIVE
    slowed = dataclasses.replace(now, yardstick_ns=1e6 * factor)
    check = times.check_latency(slowed, old, LIMITS)
    assert check.verdict is Outcome.INCONCLUSIVE
    word = "50% slower" if factor > 1 else "100% faster"
    assert f"The machine itself is {word} than it was" in check.message
    # A machine of another speed proves nothing against a latency that stayed what it was, either.
    same = dataclasses.replace(slowed, medians_ns=measured().medians_ns)
    assert times.check_latency(same, old, LIMITS).verdict is Outcome.PASS


def of_this_code(old: Baseline, now: CaseResult) -> Baseline:
    """The baseline as if its last session had run what ``now`` ran."""
    *before, last = old.sessions
    same = dataclasses.replace(last, program=now.pte_sha256, runtime=now.runtime)
    return dataclasses.replace(old, sessions=(*before, same))


@pytest.mark.parametrize("factor", [1.5, 1.05, 0.5])
def test_the_same_code_cannot_have_got_slower(factor: float) -> None:
    changed = {arm: medians(ms * factor) for arm, ms in {Arm.ON: 10, Arm.OFF: 20}.items()}
    loads = {arm: tuple(value * factor for value in medians(2)) for arm in Arm}
    now = measured(medians_ns=changed, loads_ns=loads, runtime="r", interference=0.3)
    old = of_this_code(baseline(), now)
    for check in (times.check_latency(now, old, LIMITS), times.check_load(now, old, LIMITS)):
        assert check.verdict is Outcome.PASS
        assert check.interval is not None
    assert times.SAME_CODE in times.check_latency(now, old, LIMITS).message
    # Any other program, runtime, or one that is not known, is judged by its times.
    for other in (
        dataclasses.replace(now, pte_sha256="another"),
        dataclasses.replace(now, runtime="another"),
        dataclasses.replace(now, runtime=""),
    ):
        assert times.check_latency(other, old, LIMITS).verdict is Outcome.INCONCLUSIVE
    # What is not known on either side is not known to be the same.
    for unknown in (
        dataclasses.replace(now, pte_sha256="", runtime=""),
        dataclasses.replace(now, pte_sha256=""),
        dataclasses.replace(now, runtime=""),
    ):
        check = times.check_latency(unknown, of_this_code(old, unknown), LIMITS)
        assert check.verdict is not Outcome.PASS


def test_only_the_last_session_can_be_of_the_same_code() -> None:
    now = measured(medians_ns={Arm.ON: medians(15), Arm.OFF: medians(30)}, runtime="r")
    first, *others = of_this_code(baseline(), now).sessions[::-1]
    old = dataclasses.replace(baseline(), sessions=(first, *others))
    assert times.check_latency(now, old, LIMITS).verdict is Outcome.REGRESSED


def test_what_is_no_slower_needs_no_word_about_its_code() -> None:
    now = measured(runtime="r")
    check = times.check_latency(now, of_this_code(baseline(), now), LIMITS)
    assert check.verdict is Outcome.PASS
    assert times.SAME_CODE not in check.message


def test_a_share_of_the_same_code_that_grew() -> None:
    (arm, shares), *_ = (measured().shares or {}).items()
    category, share = next(iter(shares.items()))
    grown = {arm: {category: Spread(share.value + 0.4, share.low + 0.4, share.high + 0.4)}}
    now = measured(shares=grown, runtime="r")
    assert times.check_share(now, baseline(), LIMITS, category, arm).verdict is Outcome.REGRESSED
    check = times.check_share(now, of_this_code(baseline(), now), LIMITS, category, arm)
    assert check.verdict is Outcome.PASS
    assert times.SAME_CODE in check.message


def test_a_share_that_grew_on_a_changed_machine_is_not_held_against_the_program() -> None:
    old = baseline()
    old = dataclasses.replace(
        old,
        sessions=tuple(dataclasses.replace(entry, yardstick_ns=1e6) for entry in old.sessions),
    )
    (arm, shares), *_ = (measured().shares or {}).items()
    category, share = next(iter(shares.items()))
    grown = {arm: {category: Spread(share.value + 0.4, share.low + 0.4, share.high + 0.4)}}
    now = measured(shares=grown, yardstick_ns=1e6)
    check = times.check_share(now, old, LIMITS, category, arm)
    assert check.verdict is Outcome.REGRESSED
    slowed = dataclasses.replace(now, yardstick_ns=2e6)
    check = times.check_share(slowed, old, LIMITS, category, arm)
    assert check.verdict is Outcome.INCONCLUSIVE
    assert "100% slower" in check.message
