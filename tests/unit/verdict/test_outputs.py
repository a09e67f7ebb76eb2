"""Verdicts of check_outputs."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from pytest_sme2.profile.build import build_profile
from pytest_sme2.results import (
    AS_EXPORTED,
    Arm,
    Check,
    Limits,
    MethodShapes,
    OperatorShapes,
    Outcome,
    Tolerance,
)
from pytest_sme2.verdict import numerics
from tests.support.gate_examples import (
    LIMITS,
    TIGHT,
    agreement,
    assert_same_check,
    emulated,
    measured,
    with_limits,
)
from tests.support.profiles import columns_of, run_of


@pytest.mark.parametrize("against", ["off", "reference"])
@pytest.mark.parametrize(
    ("changes", "outcome"),
    [
        ({}, Outcome.PASS),
        ({"identical": True, "sqnr_db": None, "max_rel": 0.0}, Outcome.PASS),
        ({"max_rel": 0.2}, Outcome.FAILED),
        ({"sqnr_db": 20.0}, Outcome.FAILED),
        ({"has_nan": True}, Outcome.FAILED),
        ({"identical": True, "has_nan": True}, Outcome.FAILED),
    ],
)
def test_output_verdicts(against: str, changes: dict[str, object], outcome: Outcome) -> None:
    now = emulated(agreements=(agreement(against=against, **changes),))
    found = numerics.check_outputs(now, LIMITS, against)
    assert (found.metric, found.verdict) == (f"outputs against {against}", outcome)


def test_tolerance_is_that_of_the_precision() -> None:
    close = agreement(max_rel=1e-3, sqnr_db=60.0)
    for variant, outcome in (("fp16@256", Outcome.PASS), ("fp32", Outcome.FAILED)):
        now = measured(variant=variant, agreements=(close,))
        assert numerics.check_outputs(now, LIMITS, "off").verdict is outcome
    own = with_limits(on_off_tolerances={"fp16": Tolerance(max_abs=1e-9)})
    assert numerics.check_outputs(measured(), own, "off").verdict is Outcome.FAILED
    assert numerics.check_outputs(measured(), Limits(), "off").verdict is Outcome.INVALID


def test_nan_fails_without_a_comparison() -> None:
    now = measured(agreements=(), nan_arms=(Arm.OFF,))
    found = numerics.check_outputs(now, LIMITS, "reference")
    assert found.verdict is Outcome.FAILED
    assert "NaN (SME2 off)" in found.message
    nothing = numerics.check_outputs(measured(agreements=()), LIMITS, "reference")
    assert nothing.verdict is Outcome.INVALID


def test_a_program_without_expected_outputs_is_not_judged_by_them() -> None:
    alone = measured(variant=AS_EXPORTED, agreements=(agreement(max_rel=1e-3, sqnr_db=60.0),))
    found = numerics.check_outputs(alone, LIMITS, "reference")
    assert found.verdict is Outcome.NOT_MEASURED
    assert "NAME.reference_0.bin" in found.message
    # Its precision is not known, so it is not held to the strictest one.
    assert numerics.check_outputs(alone, LIMITS, "off").verdict is Outcome.PASS


CASES: dict[str, tuple[Callable[[], Check], Check]] = {
    "outputs that agree, and the worst of them": (
        lambda: numerics.check_outputs(
            measured(
                agreements=(
                    agreement(),
                    agreement(
                        index=1, arm=Arm.OFF, identical=True, max_abs=0.0, max_rel=0.0, sqnr_db=None
                    ),
                    agreement(against="reference", max_rel=0.5),
                )
            ),
            LIMITS,
            "off",
        ),
        Check(
            "outputs against off",
            Outcome.PASS,
            "2 of 2 outputs within the tolerance for fp16.",
            new=0.001,
            unit="share",
            limit=0.05,
            details=(
                "output 0 (float32, on): largest error 0.0001 (0.10% of the largest "
                "value); signal over noise 60.0 dB, at least 35",
                "output 1 (float32, off): identical",
            ),
        ),
    ),
    "outputs that do not agree": (
        lambda: numerics.check_outputs(
            measured(
                agreements=(
                    agreement(),
                    agreement(index=1, max_abs=0.25, max_rel=0.5, sqnr_db=6.0),
                    agreement(index=2, max_rel=0.3, max_abs=0.1, sqnr_db=None),
                )
            ),
            LIMITS,
            "off",
        ),
        Check(
            "outputs against off",
            Outcome.FAILED,
            "2 of 3 outputs outside the tolerance for fp16.",
            new=0.5,
            unit="share",
            limit=0.05,
            details=(
                "output 1 (float32, on): largest error 0.25 (50.00% of the largest "
                "value); signal over noise 6.0 dB, at least 35",
                "output 2 (float32, on): largest error 0.1 (30.00% of the largest value)",
            ),
        ),
    ),
    "a tolerance without a ratio": (
        lambda: numerics.check_outputs(measured(), TIGHT, "off"),
        Check(
            "outputs against off",
            Outcome.FAILED,
            "1 of 1 output outside the tolerance for fp16.",
            new=0.001,
            unit="share",
            details=(
                "output 0 (float32, on): largest error 0.0001 (0.10% of the largest "
                "value); signal over noise 60.0 dB",
            ),
        ),
    ),
    "NaN in both arms": (
        lambda: numerics.check_outputs(measured(nan_arms=(Arm.ON, Arm.OFF)), LIMITS, "off"),
        Check("outputs against off", Outcome.FAILED, "The output holds NaN (SME2 on and off)."),
    ),
    "NaN in one output of two": (
        lambda: numerics.check_outputs(
            measured(agreements=(agreement(), agreement(index=1, has_nan=True))), LIMITS, "off"
        ),
        Check("outputs against off", Outcome.FAILED, "The output holds NaN."),
    ),
    "no tolerance": (
        lambda: numerics.check_outputs(measured(), Limits(), "off"),
        Check(
            "outputs against off",
            Outcome.INVALID,
            "No tolerance is known for fp16. Give one in limits.toml.",
        ),
    ),
    "no output": (
        lambda: numerics.check_outputs(measured(agreements=()), LIMITS, "off"),
        Check(
            "outputs against off",
            Outcome.INVALID,
            "No output was compared with the off, so nothing is known about it.",
        ),
    ),
}


@pytest.mark.parametrize("case", CASES)
def test_whole_check(case: str) -> None:
    make, expected = CASES[case]
    assert_same_check(make(), expected)


ZERO = "nearly zero (its largest value is 0)"


def test_a_dead_output_neither_fails_nor_passes() -> None:
    for changes in ({"identical": True}, {"max_rel": 1.0, "sqnr_db": 0.0}):
        dead = agreement(dead=ZERO, **changes)
        found = numerics.check_outputs(measured(agreements=(dead,)), LIMITS, "off")
        assert found.verdict is Outcome.NOT_MEASURED
        assert ZERO in found.message
        assert found.details == (f"output 0 (float32, on): not judged: what is expected is {ZERO}",)


def test_a_dead_output_does_not_hide_the_others() -> None:
    dead = agreement(index=1, dead=ZERO, identical=True)
    for other, outcome in ((agreement(), Outcome.PASS), (agreement(max_rel=0.9), Outcome.FAILED)):
        found = numerics.check_outputs(measured(agreements=(other, dead)), LIMITS, "off")
        assert found.verdict is outcome
        assert found.message.endswith("1 output not judged: what is expected is zero or constant.")


@pytest.mark.parametrize(("width", "known"), [(255, False), (256, True)])
def test_a_wrong_layer_norm_is_named_as_the_cause(width: int, known: bool) -> None:
    rows = (1, 4, width)
    shapes = MethodShapes(
        "forward", {0: (OperatorShapes("aten::native_layer_norm.out", (rows,), rows),)}
    )
    profile = build_profile(columns_of(run_of([("native_layer_norm.out", 5)])), shapes=(shapes,))
    now = measured(profiles={Arm.ON: profile}, agreements=(agreement(max_rel=0.9),))
    found = numerics.check_outputs(now, LIMITS, "off")
    assert ("1 LayerNorm of 256 values or more" in found.message) is known
