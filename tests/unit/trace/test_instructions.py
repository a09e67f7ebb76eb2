"""What single instructions add to a count; the words are LLVM's, the text is what it assembled."""

from __future__ import annotations

from dataclasses import asdict

import pytest

from pytest_sme2.trace.instructions import counts_of

VECTOR_BYTES = 64


def load(size: int, **others: int) -> dict[str, int]:
    return {"loads": 1, "loaded_bytes": size, **others}


def store(size: int, **others: int) -> dict[str, int]:
    return {"stores": 1, "stored_bytes": size, **others}


def both(size: int) -> dict[str, int]:
    return load(size) | store(size)


INSTRUCTIONS = [
    (0xD503437F, "smstart sm", {"streaming_entries": 1}),
    (0xD503477F, "smstart", {"streaming_entries": 1}),
    (0xD503457F, "smstart za", {}),
    (0xD503467F, "smstop", {}),
    (0x80812000, "fmopa za0.s, p0/m, p1/m, z0.s, z1.s", {"outer_products": 1}),
    (0xA0812001, "smopa za1.s, p0/m, p1/m, z0.b, z1.b", {"outer_products": 1}),
    (0x81A12000, "fmopa za0.s, p0/m, p1/m, z0.h, z1.h", {"outer_products": 1}),
    (0xA040C000, "ld1w {z0.s-z3.s}, pn8/z, [x0]", load(256)),
    (0xA0214000, "st1w {z0.s-z1.s}, pn8, [x0, x1, lsl #2]", store(128)),
    (0xE1000000, "ldr za[w12, 0], [x0]", load(64, za_transfers=1)),
    (0xE1200000, "str za[w12, 0], [x0]", store(64, za_transfers=1)),
    (0xE09F0000, "ld1w {za0h.s[w12, 0]}, p0/z, [x0]", load(64, za_transfers=1)),
    (0xE0210000, "st1b {za0h.b[w12, 0]}, p0, [x0, x1]", store(64, za_transfers=1)),
    (0xE11F8000, "ldr zt0, [x0]", load(64, za_transfers=1)),
    (0xC00800FF, "zero {za}", {"sme2_other": 1}),
    (0xC0820000, "mova z0.s, p0/m, za0h.s[w12, 0]", {"sme2_other": 1}),
    (0xC1A21800, "fmla za.s[w8, 0, vgx2], {z0.s-z1.s}, {z2.s-z3.s}", {"sme2_other": 1}),
    (0xA4014000, "ld1b {z0.b}, p0/z, [x0, x1]", load(64)),
    (0xA4414000, "ld1b {z0.s}, p0/z, [x0, x1]", load(16)),
    (0xA541A000, "ld1w {z0.s}, p0/z, [x0, #1, mul vl]", load(64)),
    (0x8540C000, "ld1rw {z0.s}, p0/z, [x0]", load(4)),
    (0xA5002000, "ld1rqw {z0.s}, p0/z, [x0]", load(16)),
    (0xA520E000, "ld2w {z0.s, z1.s}, p0/z, [x0]", load(128)),
    (0x85804000, "ldr z0, [x0]", load(64)),
    (0x85800000, "ldr p0, [x0]", load(8)),
    (0xE5414000, "st1w {z0.s}, p0, [x0, x1, lsl #2]", store(64)),
    (0xE420E000, "st1b {z0.h}, p0, [x0]", store(32)),
    (0xE530E000, "st2w {z0.s, z1.s}, p0, [x0]", store(128)),
    (0xE5804000, "str z0, [x0]", store(64)),
    (0xE5800000, "str p0, [x0]", store(8)),
    (0x85014000, "ld1w {z0.s}, p0/z, [x0, z1.s, uxtw]", load(64)),
    (0xE5418000, "st1w {z0.s}, p0, [x0, z1.s, uxtw]", store(64)),
    (0x85C04000, "prfw pldl1keep, p0, [x0]", {}),
    (0x84214000, "prfw pldl1keep, p0, [x0, z1.s, uxtw #2]", {}),
    (0x04A10000, "add z0.s, z0.s, z1.s", {}),
    (0xF9400020, "ldr x0, [x1]", load(8)),
    (0xB8404C20, "ldr w0, [x1, #4]!", load(4)),
    (0x38626820, "ldrb w0, [x1, x2]", load(1)),
    (0xB9800020, "ldrsw x0, [x1]", load(4)),
    (0x39C00020, "ldrsb w0, [x1]", load(1)),
    (0xB8004420, "str w0, [x1], #4", store(4)),
    (0x79000020, "strh w0, [x1]", store(2)),
    (0x3DC00020, "ldr q0, [x1]", load(16)),
    (0xFC226820, "str d0, [x1, x2]", store(8)),
    (0x3D400020, "ldr b0, [x1]", load(1)),
    (0x3D800020, "str q0, [x1]", store(16)),
    (0xF9800000, "prfm pldl1keep, [x0]", {}),
    (0xA94007E0, "ldp x0, x1, [sp]", load(16)),
    (0x29BE07E0, "stp w0, w1, [sp, #-16]!", store(8)),
    (0x69400440, "ldpsw x0, x1, [x2]", load(8)),
    (0xAD400400, "ldp q0, q1, [x0]", load(32)),
    (0x6D0027E8, "stp d8, d9, [sp]", store(16)),
    (0x580002E0, "ldr x0, label", load(8)),
    (0x9C0002C0, "ldr q0, label", load(16)),
    (0x980002A0, "ldrsw x0, label", load(4)),
    (0x4C407000, "ld1 {v0.16b}, [x0]", load(16)),
    (0x0CDFA000, "ld1 {v0.8b-v1.8b}, [x0], #16", load(16)),
    (0x4C000800, "st4 {v0.4s-v3.4s}, [x0]", store(64)),
    (0x0D409000, "ld1 {v0.s}[1], [x0]", load(4)),
    (0x4D40C800, "ld1r {v0.4s}, [x0]", load(4)),
    (0x4D40A400, "ld3 {v0.d, v1.d, v2.d}[1], [x0]", load(24)),
    (0x0DBF0C00, "st2 {v0.b, v1.b}[3], [x0], #2", store(2)),
    (0x885F7C20, "ldxr w0, [x1]", load(4)),
    (0xC8027C20, "stxr w2, x0, [x1]", store(8)),
    (0xC87F8440, "ldaxp x0, x1, [x2]", load(16)),
    (0xC8DFFC20, "ldar x0, [x1]", load(8)),
    (0x889FFC20, "stlr w0, [x1]", store(4)),
    (0xC8A07C41, "cas x0, x1, [x2]", both(8)),
    (0xB8200041, "ldadd w0, w1, [x2]", both(4)),
    (0xF8E08041, "swpal x0, x1, [x2]", both(8)),
    (0xF8BFC020, "ldapr x0, [x1]", load(8)),
    (0x99404020, "ldapur w0, [x1, #4]", load(4)),
    (0x8B010000, "add x0, x0, x1", {}),
    (0x4E22CC20, "fmla v0.4s, v1.4s, v2.4s", {}),
    (0x14000001, "b label", {}),
    (0xD503201F, "nop", {}),
]


@pytest.mark.parametrize(
    ("word", "text", "expected"), INSTRUCTIONS, ids=[entry[1] for entry in INSTRUCTIONS]
)
def test_what_an_instruction_does(word: int, text: str, expected: dict[str, int]) -> None:
    found = {name: count for name, count in asdict(counts_of(word, VECTOR_BYTES)).items() if count}
    assert found == {"instructions": 1, **expected}


def test_a_shorter_vector_moves_fewer_bytes() -> None:
    load_of_four_vectors = 0xA040C000
    assert counts_of(load_of_four_vectors, 16).loaded_bytes == 64
    assert counts_of(load_of_four_vectors, 32).loaded_bytes == 128
