"""Executed instructions against the baseline."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from pytest_sme2.results import (
    Arm,
    Baseline,
    CaseResult,
    Category,
    Check,
    Counts,
    Executor,
    Fingerprint,
    InferenceCost,
    Limits,
    OperatorCost,
    Outcome,
    Structure,
)
from pytest_sme2.verdict.baseline_file import parse, render
from pytest_sme2.verdict.baselines import update
from pytest_sme2.verdict.cost import check_cost, compare_costs

HERE = Fingerprint("emulated", ())
PACK, MOPA = "kai_run_lhs_pack", "kai_run_matmul_sme2_mopa"


def layer(
    instructions: int, kernel: str = MOPA, name: str = "Convolution (NHWC, PF32)", system: int = 0
):
    return OperatorCost(
        0, name, name, Category.CONV, Executor.DELEGATED, Counts(instructions=instructions),
        kernels=((kernel, instructions),), macs=1000, matrix=True, sme2=True, system=system,
    )  # fmt: skip


def counted(
    *layers: OperatorCost, cpu: str = "max,sme512=on", toolchain: str = "here", system: int = 500
) -> CaseResult:
    runtime = Counts(instructions=2500 + system)
    cost = InferenceCost(cpu, 512, layers, (), runtime, Counts(), toolchain, system)
    return CaseResult("m", "fp32", HERE, True, "wheel", "s", "t", costs={Arm.ON: cost})


def baseline_of(measured: CaseResult) -> Baseline:
    return update(None, replace(measured, structures={Arm.ON: Structure(())}))[0]


def judged(old: CaseResult, new: CaseResult, limits: Limits | None = None) -> Check:
    return check_cost(new, baseline_of(old), limits or Limits(), Arm.ON)


@pytest.mark.parametrize("size", [500, 12_345, 1_000_000])
def test_one_more_of_a_thousand_equal_layers_is_caught(size: int) -> None:
    layers = [layer(size) for _ in range(1000)]
    check = judged(counted(*layers), counted(*layers, layer(size)))
    assert check.verdict is Outcome.REGRESSED
    assert (check.cause, check.details) == (
        "Convolution added",
        (f"+{size:,}: Convolution added",),
    )
    same = judged(counted(*layers), counted(*layers))
    assert same.verdict is Outcome.PASS
    told = f"{1000 * size + 3000:,} instructions per inference; the same as in the baseline"
    assert told in same.message


def test_the_operator_that_grew_is_named_with_its_kernel() -> None:
    old = counted(layer(10_000), layer(20_000), layer(30_000))
    new = counted(layer(10_000), layer(26_000, PACK), layer(30_000))
    check = judged(old, new)
    assert check.verdict is Outcome.REGRESSED
    changed = f"Convolution changed its kernel (was {MOPA})"
    assert (check.cause, check.details) == (changed, (f"+6,000: {changed}",))


def test_a_growth_is_not_hidden_by_a_saving_elsewhere() -> None:
    check = judged(counted(layer(10_000), layer(20_000)), counted(layer(12_000), layer(18_000)))
    assert check.verdict is Outcome.REGRESSED
    assert check.details == ("+2,000: Convolution grew", "-2,000: Convolution shrank")


def test_less_in_all_is_not_a_regression_and_tells_what_grew() -> None:
    """A fused operator that now stands alone, for example."""
    check = judged(counted(layer(90_000), layer(500)), counted(layer(1_000), layer(800)))
    assert check.verdict is Outcome.IMPROVED
    assert check.details == ("-89,000: Convolution shrank", "+300: Convolution grew")


def test_an_operator_that_is_counted_under_another_category_did_not_grow() -> None:
    old = counted(layer(10_000, name="Odd"), layer(20_000))
    new = counted(replace(layer(10_000, name="Odd"), category=Category.ELEMENTWISE), layer(20_000))
    assert judged(old, new).verdict is Outcome.PASS


def test_less_is_better_and_the_limit_can_be_raised() -> None:
    less, old, more = (counted(layer(size)) for size in (10_000, 20_000, 21_000))
    assert judged(old, less).verdict is Outcome.IMPROVED
    assert judged(old, more).verdict is Outcome.REGRESSED
    assert judged(old, more, Limits(max_cost_growth=0.06)).verdict is Outcome.PASS


def test_another_cpu_is_not_compared() -> None:
    check = judged(counted(layer(20_000), cpu="max,sme256=on"), counted(layer(40_000)))
    assert check.verdict is Outcome.NO_BASELINE
    assert "max,sme256=on" in check.message


def test_with_another_c_library_its_code_is_left_out() -> None:
    old = counted(layer(20_000, system=1_000))
    new = counted(layer(20_700, system=1_700), toolchain="elsewhere", system=900)
    check = judged(old, new)
    assert check.verdict is Outcome.PASS
    assert "21,500 instructions per inference; the same as in the baseline" in check.message
    assert "The C and C++ libraries are not those of the baseline" in check.message
    grown = counted(layer(20_700, system=1_600), toolchain="elsewhere", system=900)
    check = judged(old, grown)
    assert check.verdict is Outcome.REGRESSED
    assert check.details == ("+100: Convolution grew",)


def test_with_the_same_c_library_its_code_counts() -> None:
    check = judged(counted(layer(20_000, system=1_000)), counted(layer(20_700, system=1_700)))
    assert check.verdict is Outcome.REGRESSED
    assert "left out" not in check.message


@pytest.mark.parametrize("shift", [-500, -200, 200, 500])
def test_another_state_of_the_heap_is_neither_a_regression_nor_an_improvement(shift: int) -> None:
    new = counted(layer(20_000 + shift, system=1_000 + shift), system=500 + shift)
    check = judged(counted(layer(20_000, system=1_000)), new)
    assert check.verdict is Outcome.PASS
    assert f"{23_000 + 2 * shift:,} instructions" in check.message


def test_what_the_heap_explains_hides_nothing_else() -> None:
    new = counted(layer(20_300, system=1_200))
    check = judged(counted(layer(20_000, system=1_000)), new)
    assert check.verdict is Outcome.REGRESSED
    assert check.details == ("+300: Convolution grew",)


def test_what_was_not_counted_does_not_pass() -> None:
    measured = replace(counted(layer(1)), costs={}, uncounted="two threads")
    check = check_cost(measured, None, Limits(), Arm.ON)
    assert check.verdict is Outcome.INVALID
    assert "two threads" in check.message
    assert check_cost(counted(layer(1)), None, Limits(), Arm.ON).verdict is Outcome.NO_BASELINE


@pytest.mark.parametrize(
    ("now", "verdict", "words"),
    [
        (20_000, Outcome.PASS, "the same as in release;"),
        (21_000, Outcome.REGRESSED, "release has 23,000 (+4.35%)"),
        (19_000, Outcome.IMPROVED, "release has 23,000 (-4.35%)"),
    ],
)
def test_two_versions_are_compared_without_a_baseline(
    now: int, verdict: Outcome, words: str
) -> None:
    old, new = (counted(layer(size)).costs[Arm.ON] for size in (20_000, now))
    check = compare_costs("cost against release", old, new, Limits(), "release")
    assert check.verdict is verdict
    assert words in check.message
    assert "baseline" not in check.message


@pytest.mark.parametrize(
    ("uncounted", "words"), [(0, "release was not counted: x."), (1, "It was not counted: x.")]
)
def test_a_version_that_was_not_counted_does_not_pass(uncounted: int, words: str) -> None:
    costs: list[Any] = [counted(layer(20_000)).costs[Arm.ON], "x"]
    check = compare_costs("cost", costs[1 - uncounted], costs[uncounted], Limits(), "release")
    assert (check.verdict, check.message) == (Outcome.INVALID, words)


@pytest.mark.parametrize(
    ("more", "system", "kept"), [(0, 90, True), (9, 0, False), (0, 600, False)]
)
def test_an_update_keeps_a_cost_that_the_heap_alone_changed(
    more: int, system: int, kept: bool
) -> None:
    old = baseline_of(counted(layer(20_000, system=100)))
    now = counted(layer(20_000 + system + more, system=100 + system))
    new, _ = update(old, replace(now, structures=old.structures))
    assert (new.costs == old.costs) is kept


def test_a_baseline_keeps_the_cost(tmp_path) -> None:
    # Its structure would be another program's.
    baseline = replace(baseline_of(counted(layer(20_000), layer(30_000, PACK))), structures={})
    again = parse(render(baseline), tmp_path / "m.json")
    assert again.costs == baseline.costs
    assert again.costs[Arm.ON].operators[1].kernel == PACK
    without = replace(baseline, costs={})
    assert '"cost"' not in render(without)
    assert parse(render(without), tmp_path / "m.json").costs == {}
