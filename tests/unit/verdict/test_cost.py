"""Executed instructions against the baseline."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from pytest_sme2.profile.matching import place_text, read_place
from pytest_sme2.results.case import Baseline, CaseResult, Check, Limits, Structure
from pytest_sme2.results.evidence import Counts, InferenceCost, OperatorCost, StoredOperator
from pytest_sme2.results.profile import Category, Executor
from pytest_sme2.results.run import Arm, Fingerprint, Frame, Origin
from pytest_sme2.results.timing import Outcome
from pytest_sme2.verdict.baselines import update
from pytest_sme2.verdict.cost import check_cost, compare_costs, difference, operation_of

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


@pytest.mark.parametrize("shift", [-500, -200, 200, 500])
def test_another_state_of_the_heap_is_neither_a_regression_nor_an_improvement(shift: int) -> None:
    new = counted(layer(20_000 + shift, system=1_000 + shift), system=500 + shift)
    check = judged(counted(layer(20_000, system=1_000)), new)
    assert check.verdict is Outcome.PASS
    assert f"{23_000 + 2 * shift:,} instructions" in check.message


@pytest.mark.parametrize(
    ("before", "shift", "explained"),
    [(5_066, 886, True), (5_203, -560, True), (1_000, 600, False), (9_000, 1_001, False)],
)
def test_who_allocates_more_may_differ_by_more(before: int, shift: int, explained: bool) -> None:
    old, new = (counted(layer(20_000 + part, system=part)) for part in (before, before + shift))
    assert (judged(old, new).verdict is Outcome.PASS) is explained


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


CONV, FULL = "Convolution (NHWC, PF32) IGEMM", "Fully Connected (NC, PF32) GEMM"
SOFTMAX, PORTABLE = "Softmax (NC, F32)", "native_call__softmax.out"


def operator(
    name: str,
    instructions: int,
    line: int = 0,
    module: str = "",
    shapes: str = "",
    kernel: str = "",
) -> StoredOperator:
    place = " ".join(
        filter(None, (f"net/model.py:{line}" * bool(line), f"in {module}" * bool(module)))
    )
    return StoredOperator(name, Category.OTHER, instructions, kernel, 0, shapes, place)


STEM = operator(CONV, 39_000, 28, "stem", "1x8x8x3 by 64x3x3x3 to 1x8x8x64")
MIDDLE = operator(CONV, 30_000, 29, "middle", "1x8x8x64 by 64x3x3x64 to 1x8x8x64")
ACT = operator("Add (ND)", 5_000, 30)
HEAD = operator(FULL, 600, 31, "head", "1x64 by 12x64 to 1x12")
NET = [STEM, MIDDLE, ACT, HEAD]
LOOP = [replace(HEAD, place=f"net/model.py:{line} in head") for line in (31, *[34] * 7)]
WIDE = [
    replace(STEM, instructions=80_000, shapes="1x8x8x3 by 128x3x3x3 to 1x8x8x128"),
    replace(MIDDLE, instructions=90_000, shapes="1x8x8x128 by 128x3x3x128 to 1x8x8x128"),
    replace(ACT, instructions=10_000),
    replace(HEAD, instructions=1_100, shapes="1x128 by 12x128 to 1x12"),
]
BIG = [replace(each, shapes=each.shapes.replace("8x8", "9x9"), instructions=2 * each.instructions)
       for each in NET[:3]]  # fmt: skip
SHIFTED = [replace(each, place=each.place.replace(":", ":1")) for each in NET]


@pytest.mark.parametrize(
    ("old", "new", "what", "line"),
    [
        (NET, [*NET[:3], *LOOP], "7 Fully Connected added", 34),
        (NET, [*SHIFTED[:2], operator(SOFTMAX, 900, 77), *SHIFTED[2:]], "Softmax added", 77),
        (NET, WIDE, "all 4 operators grew: 64 → 128 channels", 28),
        (NET, [*BIG, HEAD], "3 of 4 operators grew: 1x8x8x3 → 1x9x9x3", 28),
        (NET, [STEM, WIDE[1], ACT, HEAD],
         "Convolution changed: 1x8x8x64 by 64x3x3x64 → 1x8x8x128 by 128x3x3x128", 29),
        (NET, [STEM, ACT, HEAD], "Convolution removed", 29),
        ([*NET, operator(SOFTMAX, 900, 40)], [*NET, operator(PORTABLE, 9_000, 40)],
         "_softmax left the delegate", 40),
        ([replace(STEM, kernel="sme2_mopa"), *NET[1:]],
         [replace(STEM, kernel="neon", instructions=90_000), *NET[1:]],
         "Convolution changed its kernel (was sme2_mopa)", 28),
        # None makes half of it, and not all grew.
        ([*NET, ACT, ACT],
         [replace(STEM, instructions=43_000), replace(MIDDLE, instructions=34_000),
          replace(ACT, instructions=9_000), HEAD, ACT, ACT],
         "spread over 3 operators, the largest 33 %", 28),
        (NET, NET, "", 0),
    ],
)  # fmt: skip
def test_the_cause_is_what_explains_most(
    old: list[StoredOperator], new: list[StoredOperator], what: str, line: int
) -> None:
    cause = difference(old, new).cause()
    assert (cause.what, cause.origin.line) == (what, line)
    assert (f"net/model.py:{line}" in cause.where) is bool(line)


@pytest.mark.parametrize("rest", [0, -70])
@pytest.mark.parametrize("new", [[*NET[:3], *LOOP], WIDE, BIG, [], SHIFTED])
def test_the_lines_add_up(new: list[StoredOperator], rest: int) -> None:
    old = [*NET, *(operator(f"Odd{number}", 10 + number, number) for number in range(1, 20))]
    found = difference(old, new, rest=rest)
    whole = sum(each.instructions for each in new) - sum(each.instructions for each in old) + rest
    lines = found.lines()
    assert found.by == whole
    assert sum(int(line.partition(":")[0].replace(",", "")) for line in lines) == whole
    assert len(lines) <= 8


def test_without_counts_what_was_added_is_the_cause() -> None:
    old, new = ([replace(each, instructions=0) for each in side] for side in (NET, [*NET, ACT]))
    assert difference(old, new).cause().what == "Add added"


def test_operators_of_one_line_in_two_modules_are_told_apart() -> None:
    blocks = [operator(CONV, 100, 9, f"blocks.{number}.conv") for number in range(3)]
    found = difference(blocks, [blocks[0], replace(blocks[1], instructions=300), blocks[2]])
    assert [part.by for part in found.parts] == [0, 200, 0]


@pytest.mark.parametrize(
    ("origin", "text"),
    [
        (Origin("", "stem.0", "", "a/b/net/model.py", 35, way=(Frame("m", 35, "scan"),)),
         "net/model.py:35 scan in stem.0"),
        (Origin("", "", "", "model.py", 3), "model.py:3"),
        (Origin("", "stem", near=True), "near in stem"),
        (Origin(""), ""),
    ],
)  # fmt: skip
def test_a_place_is_kept_in_short(origin: Origin, text: str) -> None:
    assert place_text(origin) == text
    assert place_text(read_place(text)) == text


def test_an_operator_with_an_odd_name_does_not_read_like_a_crash() -> None:
    assert operation_of("Invalid Unary Op") == "Unary Operator"
