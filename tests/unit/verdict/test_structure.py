"""Verdicts on operators, delegation and kernels."""

from __future__ import annotations

import pytest

from pytest_sme2.results import Arm, Outcome
from pytest_sme2.verdict import structure
from tests.support.gate_examples import (
    CONV_OFF,
    CONV_ON,
    KERNELS,
    PORTABLE,
    STRUCTURES,
    TRANSPOSE,
    baseline,
    census,
    emulated,
    measured,
    with_on,
)
from tests.support.gate_examples import structure as structure_of
from tests.support.golden import check_whole_checks


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


def test_operators_moved_to_sme2_are_an_improvement() -> None:
    old = baseline(structures=with_on(conv=1, slow=3, transpose=2))
    assert structure.check_operators(measured(), old).verdict is Outcome.IMPROVED
    # …but not if there is more of it than before.
    old = baseline(structures=with_on(conv=1, slow=2, transpose=2))
    assert structure.check_operators(measured(), old).verdict is Outcome.REGRESSED
    # …nor if other work is gone for it, or other work on SME2 kernels.
    old = baseline(structures=with_on(conv=1, slow=1, transpose=3))
    now = measured(structures=with_on(conv=3, transpose=2))
    assert structure.check_operators(now, old).verdict is Outcome.REGRESSED
    old = baseline(structures=with_on(conv=2, slow=3))
    now = measured(structures={Arm.ON: structure_of({"Fully Connected (NC, PF32) GEMM": 3})})
    assert structure.check_operators(now, old).verdict is Outcome.REGRESSED
    # …nor if it moved to another operator that is not on them.
    old = baseline(structures=with_on(slow=3))
    now = measured(structures={Arm.ON: structure_of({"Fully Connected (NC, F32) GEMM": 3})})
    assert structure.check_operators(now, old).verdict is Outcome.REGRESSED
    # …nor if something else came along.
    old = baseline(structures=with_on(conv=1, slow=3, transpose=2))
    now = measured(structures=with_on(conv=3, transpose=3))
    assert structure.check_operators(now, old).verdict is Outcome.REGRESSED


def test_operators_are_compared_on_any_machine() -> None:
    here = emulated(structures=with_on(conv=4, transpose=3))
    assert structure.check_operators(here, baseline()).verdict is Outcome.REGRESSED
    assert structure.check_operators(here, None).verdict is Outcome.NO_BASELINE
    off_only = measured(structures={Arm.OFF: STRUCTURES[Arm.OFF]})
    assert structure.check_operators(off_only, baseline(), Arm.ON).verdict is Outcome.INVALID


def test_other_executorch_version_is_named() -> None:
    versions = {"executorch": "1.5.1", "executorch runtime": "1.6.0", "torch": "3.0"}
    now = measured(structures=with_on(conv=4, transpose=3), versions=versions)
    found = structure.check_operators(now, baseline())
    assert "made with executorch runtime 1.5.1, this is with 1.6.0" in found.message
    assert found.message.count("made with") == 1


def test_whole_checks() -> None:
    check_whole_checks(
        "operators",
        {
            "the same operators": structure.check_operators(measured(), baseline()),
            "other operators": structure.check_operators(
                measured(structures=with_on(conv=3, slow=1, transpose=4)), baseline()
            ),
            "fewer operators": structure.check_operators(
                measured(structures=with_on(conv=4, transpose=1)), baseline()
            ),
            "operators without baseline": structure.check_operators(measured(), None),
            "operators of an arm that did not run": structure.check_operators(
                measured(structures={}), None, Arm.ON
            ),
        },
    )


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
    def counts(portable: int) -> dict[str, int]:
        return {"conv": 4, **({"portable": portable} if portable else {})}

    old = baseline(structures=with_on(**counts(before)))
    found = structure.check_delegation(measured(structures=with_on(**counts(after))), old)
    assert (found.verdict, found.old, found.new) == (outcome, before, after)
    assert any(PORTABLE in line for line in found.details) == (before != after)


def test_delegated_operators_do_not_matter() -> None:
    old = baseline(structures=with_on(conv=4, portable=1, transpose=2))
    now = measured(structures=with_on(conv=4, portable=1, transpose=3))
    found = structure.check_delegation(now, old)
    assert (found.verdict, found.details) == (Outcome.PASS, ())


def test_another_portable_operator() -> None:
    old = baseline(structures={Arm.ON: structure_of({"aten::a": 1})})
    now = measured(structures={Arm.ON: structure_of({"aten::b": 1})})
    found = structure.check_delegation(now, old)
    assert found.verdict is Outcome.REGRESSED
    assert [line.split(" (")[0] for line in found.details] == ["+1 aten::b", "-1 aten::a"]
    assert structure.check_delegation(now, None).verdict is Outcome.NO_BASELINE
    assert structure.check_delegation(now, old, Arm.OFF).verdict is Outcome.INVALID


def test_whole_checks_of_delegation() -> None:
    check_whole_checks(
        "delegation",
        {
            "more portable operators": structure.check_delegation(
                measured(structures=with_on(conv=4, portable=2)),
                baseline(structures=with_on(conv=4, portable=1)),
            ),
            "fewer portable operators": structure.check_delegation(
                measured(structures=with_on(conv=4, portable=1)),
                baseline(structures=with_on(conv=4, portable=2)),
            ),
            "portable operators without baseline": structure.check_delegation(
                measured(structures=with_on(conv=4, portable=1)), None
            ),
        },
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


def test_whole_checks_of_kernels() -> None:
    check_whole_checks(
        "kernels",
        {
            "the same kernels": structure.check_kernels(measured(), baseline()),
            "other kernels": structure.check_kernels(
                measured(kernels={Arm.ON: census(Arm.ON, "a_neon", "b_sme2")}), baseline()
            ),
            "kernels from elsewhere": structure.check_kernels(
                measured(kernels={Arm.ON: census(Arm.ON, "a_neon", "b_sme2", source="log")}),
                baseline(),
            ),
            "no kernels": structure.check_kernels(measured(kernels={}), baseline()),
            "kernels without baseline": structure.check_kernels(measured(), None, Arm.OFF),
        },
    )
