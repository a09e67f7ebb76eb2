"""Verdicts on operators, delegation, kernels, coverage and evidence."""

from __future__ import annotations

import pytest

from pytest_sme2.profile.operators import structure_of
from pytest_sme2.results.case import Baseline, Check, Structure
from pytest_sme2.results.evidence import Evidence, Kernel, KernelCensus, KernelFamily
from pytest_sme2.results.run import Arm
from pytest_sme2.results.timing import Outcome
from pytest_sme2.verdict import structure
from tests.support.gate_examples import (
    CONV_OFF,
    CONV_ON,
    KERNELS,
    LIMITS,
    PORTABLE,
    STRUCTURES,
    TRANSPOSE,
    baseline,
    census,
    emulated,
    measured,
    with_limits,
    with_on,
)
from tests.support.gate_examples import structure as example
from tests.support.golden import check_whole_checks
from tests.support.profiles import profile_of

BASELINE = baseline()


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
    found = structure.check_operators(measured(structures=with_on(**counts)), baseline())
    assert found.verdict is outcome
    assert len(found.details) == len(lines)
    for line, start in zip(found.details, lines, strict=True):
        assert line.startswith(start)
    assert found.new == sum(counts.values())


GEMM_ON, GEMM_OFF = (
    {Arm.ON: example({f"Fully Connected (NC, {kind}) GEMM": 3})} for kind in ("PF32", "F32")
)


@pytest.mark.parametrize(
    ("before", "now", "outcome"),
    [
        (with_on(conv=1, slow=3, transpose=2), STRUCTURES, Outcome.IMPROVED),
        # …but not if there is more of it than before.
        (with_on(conv=1, slow=2, transpose=2), STRUCTURES, Outcome.REGRESSED),
        # …nor if other work is gone for it, or other work on SME2 kernels.
        (with_on(conv=1, slow=1, transpose=3), with_on(conv=3, transpose=2), Outcome.REGRESSED),
        (with_on(conv=2, slow=3), GEMM_ON, Outcome.REGRESSED),
        # …nor if it moved to another operator that is not on them.
        (with_on(slow=3), GEMM_OFF, Outcome.REGRESSED),
        # …nor if something else came along.
        (with_on(conv=1, slow=3, transpose=2), with_on(conv=3, transpose=3), Outcome.REGRESSED),
    ],
)
def test_operators_moved_to_sme2_are_an_improvement(
    before: dict[Arm, object], now: dict[Arm, object], outcome: Outcome
) -> None:
    old = baseline(structures=before)
    # Structure is compared on any machine.
    for found in (measured(structures=now), emulated(structures=now)):
        assert structure.check_operators(found, old).verdict is outcome


def operators(old: Baseline | None = BASELINE, **counts: int) -> Check:
    return structure.check_operators(measured(structures=with_on(**counts)), old)


def test_whole_checks() -> None:
    check_whole_checks(
        "operators",
        {
            "the same operators": operators(conv=4, transpose=2),
            "other operators": operators(conv=3, slow=1, transpose=4),
            "fewer operators": operators(conv=4, transpose=1),
            "operators without baseline": operators(None, conv=4, transpose=2),
        },
    )


def delegation(before: dict[str, int] | None, **counts: int) -> Check:
    old = None if before is None else baseline(structures=with_on(**before))
    return structure.check_delegation(measured(structures=with_on(**counts)), old)


@pytest.mark.parametrize(
    ("before", "after", "outcome"),
    [
        (0, 0, Outcome.PASS),
        (1, 1, Outcome.PASS),
        (0, 1, Outcome.REGRESSED),
        (2, 1, Outcome.IMPROVED),
    ],
)
def test_delegation_verdicts(before: int, after: int, outcome: Outcome) -> None:
    # Operators of the delegate do not matter.
    found = delegation({"portable": before, "transpose": 2}, portable=after, transpose=3)
    assert (found.verdict, found.old, found.new) == (outcome, before, after)
    assert len(found.details) == (before != after)


def test_another_portable_operator() -> None:
    old = baseline(structures={Arm.ON: example({"aten::a": 1})})
    now = measured(structures={Arm.ON: example({"aten::b": 1})})
    found = structure.check_delegation(now, old)
    assert found.verdict is Outcome.REGRESSED
    assert [line.split(" (")[0] for line in found.details] == ["+1 aten::b", "-1 aten::a"]


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
def test_kernel_verdicts(names: tuple[str, ...], outcome: Outcome) -> None:
    now = emulated(kernels={Arm.ON: census(Arm.ON, *names)})
    found = structure.check_kernels(now, baseline())
    assert found.verdict is outcome
    changed = {*names} ^ {kernel.name for kernel in KERNELS[Arm.ON].kernels}
    assert {line.split()[1] for line in found.details} == changed


def test_whole_checks_of_kernels() -> None:
    others = census(Arm.ON, "a_neon", "b_sme2")
    logged = census(Arm.ON, "a_neon", "b_sme2", source="log")
    check_whole_checks(
        "kernels",
        {
            "the same kernels": structure.check_kernels(measured(), BASELINE),
            "other kernels": structure.check_kernels(measured(kernels={Arm.ON: others}), BASELINE),
            "kernels from elsewhere": structure.check_kernels(
                measured(kernels={Arm.ON: logged}), BASELINE
            ),
            "kernels without baseline": structure.check_kernels(
                measured(), baseline(kernels={}), Arm.OFF
            ),
        },
    )


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


def test_whole_checks_of_coverage() -> None:
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
        },
    )


def test_evidence_that_is_wrong_is_invalid() -> None:
    wrong = Evidence(False, "The off run shows 4 SME2 operators.", 4, 4, 4)
    found = structure.check_evidence(measured(evidence=wrong))
    assert (found.verdict, found.message) == (Outcome.INVALID, wrong.message)
    assert structure.check_evidence(measured(evidence=None)).verdict is Outcome.INVALID
