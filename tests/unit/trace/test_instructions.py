"""What single instructions add to a count; the words are LLVM's, the text is what it assembled."""

from __future__ import annotations

from dataclasses import asdict

import pytest

from pytest_sme2.trace.instructions import counts_of

INSTRUCTIONS = [
    (0xD503437F, "smstart sm", {"sme2_other": 1}),
    (0xD503477F, "smstart", {"sme2_other": 1}),
    (0xD503457F, "smstart za", {}),
    (0xD503467F, "smstop", {}),
    (0x80812000, "fmopa za0.s, p0/m, p1/m, z0.s, z1.s", {"outer_products": 1}),
    (0xA0812001, "smopa za1.s, p0/m, p1/m, z0.b, z1.b", {"outer_products": 1}),
    (0x81A12000, "fmopa za0.s, p0/m, p1/m, z0.h, z1.h", {"outer_products": 1}),
    (0xA040C000, "ld1w {z0.s-z3.s}, pn8/z, [x0]", {}),
    (0xA0214000, "st1w {z0.s-z1.s}, pn8, [x0, x1, lsl #2]", {}),
    (0xE1000000, "ldr za[w12, 0], [x0]", {"sme2_other": 1}),
    (0xE1200000, "str za[w12, 0], [x0]", {"sme2_other": 1}),
    (0xE09F0000, "ld1w {za0h.s[w12, 0]}, p0/z, [x0]", {"sme2_other": 1}),
    (0xE0210000, "st1b {za0h.b[w12, 0]}, p0, [x0, x1]", {"sme2_other": 1}),
    (0xE11F8000, "ldr zt0, [x0]", {"sme2_other": 1}),
    (0xC00800FF, "zero {za}", {"sme2_other": 1}),
    (0xC0820000, "mova z0.s, p0/m, za0h.s[w12, 0]", {"sme2_other": 1}),
    (0xC1A21800, "fmla za.s[w8, 0, vgx2], {z0.s-z1.s}, {z2.s-z3.s}", {"sme2_other": 1}),
    (0xA541A000, "ld1w {z0.s}, p0/z, [x0, #1, mul vl]", {}),
    (0xE5414000, "st1w {z0.s}, p0, [x0, x1, lsl #2]", {}),
    (0x85C04000, "prfw pldl1keep, p0, [x0]", {}),
    (0x84214000, "prfw pldl1keep, p0, [x0, z1.s, uxtw #2]", {}),
    (0x04A10000, "add z0.s, z0.s, z1.s", {}),
    (0x3DC00020, "ldr q0, [x1]", {}),
    (0xF9800000, "prfm pldl1keep, [x0]", {}),
    (0x8B010000, "add x0, x0, x1", {}),
    (0x4E22CC20, "fmla v0.4s, v1.4s, v2.4s", {}),
    (0x14000001, "b label", {}),
    (0xD503201F, "nop", {}),
]


@pytest.mark.parametrize(
    ("word", "text", "expected"), INSTRUCTIONS, ids=[entry[1] for entry in INSTRUCTIONS]
)
def test_what_an_instruction_does(word: int, text: str, expected: dict[str, int]) -> None:
    found = {name: count for name, count in asdict(counts_of(word)).items() if count}
    assert found == {"instructions": 1, **expected}
