"""What makes two programs differ: matched one to one, and explained to the instruction."""

from __future__ import annotations

from dataclasses import replace

import pytest

from pytest_sme2.profile.matching import place_text, read_place
from pytest_sme2.results import Category, Frame, Origin, StoredOperator
from pytest_sme2.verdict.cost import difference, operation_of

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
