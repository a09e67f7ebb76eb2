"""Verdicts of check_kernels."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from pytest_sme2.results import (
    Arm,
    Check,
    Outcome,
)
from pytest_sme2.verdict import structure
from tests.support.gate_examples import (
    KERNELS,
    assert_same_check,
    baseline,
    census,
    emulated,
    measured,
)


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


def test_unknown_kernels() -> None:
    assert structure.check_kernels(measured(kernels={}), baseline()).verdict is Outcome.INVALID
    assert structure.check_kernels(measured(), baseline(kernels={})).verdict is Outcome.NO_BASELINE
    logged = measured(kernels={Arm.ON: census(Arm.ON, "a", source="xnnpack-log")})
    found = structure.check_kernels(logged, baseline())
    assert found.verdict is Outcome.NO_BASELINE
    assert "xnnpack-log" in found.message


CASES: dict[str, tuple[Callable[[], Check], Check]] = {
    "the same kernels": (
        lambda: structure.check_kernels(measured(), baseline()),
        Check(
            "kernels (on)",
            Outcome.PASS,
            "The same 2 kernels as in the baseline.",
            old=2,
            new=2,
            unit="count",
            limit=2,
        ),
    ),
    "other kernels": (
        lambda: structure.check_kernels(
            measured(kernels={Arm.ON: census(Arm.ON, "a_neon", "b_sme2")}), baseline()
        ),
        Check(
            "kernels (on)",
            Outcome.REGRESSED,
            "2 kernels ran that did not run in the baseline, 2 ran there alone. If "
            "that is intended, accept it with --update-baselines.",
            old=2,
            new=2,
            unit="count",
            limit=2,
            details=(
                "+ a_neon (neon)",
                "+ b_sme2 (sme2)",
                "- kai_matmul_sme2_mopa (sme2)",
                "- xnn_x16_transpose_neon (neon)",
            ),
        ),
    ),
    "kernels from elsewhere": (
        lambda: structure.check_kernels(
            measured(kernels={Arm.ON: census(Arm.ON, "a_neon", "b_sme2", source="log")}), baseline()
        ),
        Check(
            "kernels (on)",
            Outcome.NO_BASELINE,
            "The baseline's kernels come from emulator, these from log; the two "
            "cannot be compared.",
            new=2,
            unit="count",
        ),
    ),
    "no kernels": (
        lambda: structure.check_kernels(measured(kernels={}), baseline()),
        Check("kernels (on)", Outcome.INVALID, "Which kernels ran is not known on this target."),
    ),
    "kernels without baseline": (
        lambda: structure.check_kernels(measured(), None, Arm.OFF),
        Check(
            "kernels (off)",
            Outcome.NO_BASELINE,
            "No baseline. Make one with --update-baselines.",
            new=2,
            unit="count",
        ),
    ),
}


@pytest.mark.parametrize("case", CASES)
def test_whole_check(case: str) -> None:
    make, expected = CASES[case]
    assert_same_check(make(), expected)
