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
    baseline,
    census,
    emulated,
    measured,
)
from tests.support.golden import check_whole_checks


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


CASES: dict[str, Callable[[], Check]] = {
    "the same kernels": (lambda: structure.check_kernels(measured(), baseline())),
    "other kernels": (
        lambda: structure.check_kernels(
            measured(kernels={Arm.ON: census(Arm.ON, "a_neon", "b_sme2")}), baseline()
        )
    ),
    "kernels from elsewhere": (
        lambda: structure.check_kernels(
            measured(kernels={Arm.ON: census(Arm.ON, "a_neon", "b_sme2", source="log")}), baseline()
        )
    ),
    "no kernels": (lambda: structure.check_kernels(measured(kernels={}), baseline())),
    "kernels without baseline": (lambda: structure.check_kernels(measured(), None, Arm.OFF)),
}


def test_whole_checks() -> None:
    check_whole_checks("kernels", CASES)
