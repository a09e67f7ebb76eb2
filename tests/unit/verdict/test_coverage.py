"""Verdicts of check_coverage."""

from __future__ import annotations

from pytest_sme2.errors import BaselineError
from pytest_sme2.profile.operators import structure_of
from pytest_sme2.results import (
    Arm,
    Baseline,
    Check,
    Evidence,
    Kernel,
    KernelCensus,
    KernelFamily,
    Outcome,
    Structure,
)
from pytest_sme2.verdict import structure
from tests.support.gate_examples import (
    CONV_OFF,
    CONV_ON,
    LIMITS,
    baseline,
    measured,
    with_limits,
    with_on,
)
from tests.support.golden import check_whole_checks
from tests.support.profiles import profile_of

BASELINE = baseline()


def coverage(known: Baseline | None = BASELINE, least: float | None = None, **counts: int) -> Check:
    now = measured(structures=with_on(**counts))
    return structure.check_coverage(now, known, with_limits(min_coverage=least))


def test_larger_coverage_is_an_improvement() -> None:
    found = coverage(baseline(structures=with_on(conv=1, slow=3)), conv=4)
    assert (found.verdict, found.old, found.new) == (Outcome.IMPROVED, 0.25, 1.0)


def test_coverage_of_exactly_the_minimum_is_enough() -> None:
    assert coverage(None, 0.5, conv=2, slow=2).verdict is Outcome.PASS
    assert coverage(None, 0.51, conv=2, slow=2).verdict is Outcome.FAILED


def test_the_operators_that_missed_sme2_are_named() -> None:
    profile = profile_of([(CONV_ON, 100), (CONV_OFF, 50)])
    now = measured(profiles={Arm.ON: profile}, structures={Arm.ON: structure_of(profile)})
    found = structure.check_coverage(now, baseline(), with_limits(min_coverage=0.9))
    assert found.verdict is Outcome.REGRESSED
    assert found.message.startswith("1 of 2 matrix operators ran on SME2 kernels, less than")
    (missed, reason), *_ = profile.coverage.missed
    assert found.details == (f"{missed.label}: {reason}",)


QP8 = "Fully Connected (NC, QP8, F32, QC8W) GEMM #1"
SME2_KERNEL = ("kai_run_matmul_clamp_f32_qai8dxp1vlx4_qsi8cxp4vlx4_1vlx4vl_sme2_mopa",
               KernelFamily.SME2)  # fmt: skip
NEON_KERNEL = ("kai_run_matmul_clamp_f32_qai8dxp1x8_qsi8cxp4x8_1x4_neon_dotprod",
               KernelFamily.NEON)  # fmt: skip


def dynamic(kernel: tuple[str, KernelFamily] | None) -> Structure:
    """A program whose operator names do not tell SME2 from NEON; the kernel that ran does."""
    census = None
    if kernel is not None:
        census = KernelCensus(Arm.ON, "emulator", (Kernel(*kernel, 1),))
    return structure_of(profile_of([(QP8, 5)], census=census))


def test_the_kernels_that_ran_count_as_much_as_names() -> None:
    old = baseline(structures={Arm.ON: dynamic(SME2_KERNEL)})
    same = measured(structures={Arm.ON: dynamic(SME2_KERNEL)})
    found = structure.check_coverage(same, old, LIMITS)
    assert (found.verdict, found.old, found.new) == (Outcome.PASS, 1.0, 1.0)

    fallen = measured(structures={Arm.ON: dynamic(NEON_KERNEL)})
    found = structure.check_coverage(fallen, old, LIMITS)
    assert (found.verdict, found.old, found.new) == (Outcome.REGRESSED, 1.0, 0.0)

    phone = measured(structures={Arm.ON: dynamic(None)})
    found = structure.check_coverage(phone, old, LIMITS)
    assert found.verdict is Outcome.NOT_MEASURED
    assert "0 of 1 matrix operator ran on SME2 kernels, 1 may" in found.message


def test_coverage_with_no_matrix_operator_before_or_left() -> None:
    had_none = baseline(structures=with_on(transpose=2))
    assert coverage(had_none, conv=4).verdict is Outcome.NO_BASELINE
    for least in (None, 0.9):
        found = coverage(BASELINE, least, transpose=1)
        assert found.verdict is Outcome.REGRESSED
        assert "in the baseline 4 of 4" in found.message


def test_whole_checks() -> None:
    newer = {"executorch": "1.6.0", "executorch runtime": "1.6.0"}
    check_whole_checks(
        "coverage",
        {
            "the same coverage": structure.check_coverage(measured(), BASELINE, LIMITS),
            "less coverage": structure.check_coverage(
                measured(structures=with_on(conv=3, slow=1), versions=newer), BASELINE, LIMITS
            ),
            "less coverage than asked for": coverage(None, 0.8, conv=3, slow=1),
            "as much coverage as asked for": coverage(None, 0.8, conv=4),
            "coverage without baseline": coverage(None, conv=4),
            "coverage of nothing": coverage(None, transpose=1),
            "coverage of an arm that did not run": structure.check_coverage(
                measured(structures={}), None, LIMITS
            ),
        },
    )


def test_evidence_that_is_wrong_is_invalid() -> None:
    wrong = Evidence(False, "The off run shows 4 SME2 operators.", 4, 4, 4)
    found = structure.check_evidence(measured(evidence=wrong))
    assert (found.verdict, found.message) == (Outcome.INVALID, wrong.message)


def test_unusable_baseline_is_invalid() -> None:
    found = structure.baseline_problem(BaselineError("x.json: of another target"))
    assert (found.metric, found.verdict) == ("baseline", Outcome.INVALID)
    assert "x.json" in found.message


def test_whole_checks_of_evidence() -> None:
    check_whole_checks(
        "evidence",
        {
            "no evidence": structure.check_evidence(measured(evidence=None)),
            "evidence": structure.check_evidence(measured()),
        },
    )
