"""What one A64 instruction does, as far as its cost is concerned. Pure: a number in, counts out.

Follows the encoding tables of the Arm Architecture Reference Manual (DDI 0487, chapter C4).
"""

from __future__ import annotations

import functools

from pytest_sme2.results.evidence import Counts

# MSR SVCRSM and SVCRSMZA, immediate 1: ``smstart sm`` and ``smstart``.
STREAMING_ENTRIES = frozenset({0xD503437F, 0xD503477F})
# The same with immediate 0: ``smstop sm`` and ``smstop``.
STREAMING_EXITS = frozenset({0xD503427F, 0xD503467F})
# What SME2 added to SME, each form as a mask and what is left under it: multi-vector operations on
# ZA, multi-vector loads and stores, moves of ZT0.
_SME2_ONLY = (
    (0xFF00_0000, 0xC100_0000), (0xFE80_0000, 0xA000_0000), (0xFFDF_FC00, 0xE11F_8000),
    # Products of quarter tiles, sparse ones, of single bits, of two 16-bit values; moves of groups.
    (0xFE80_0000, 0x8000_0000), (0xDEC0_0008, 0x80C0_0008), (0xFFE0_0008, 0x8080_0008),
    (0xFEC0_0008, 0xA080_0008), (0xFF3C_0000, 0xC004_0000),
)  # fmt: skip
_TABLE_LOOKUP = (0xFFA8_0000, 0xC088_0000)
# Products of SVE, as a mask and what is left under it: multiply-adds, then dot products. They are
# SME's work only between SMSTART and SMSTOP.
_SVE_MULTIPLY_ADDS = (
    (0xFF20_0000, 0x6520_0000), (0xFF20_F000, 0x6420_0000), (0xFFA0_8000, 0x64A0_8000),
    (0xFF20_C000, 0x0400_4000),
)  # fmt: skip
_SVE_DOTS = (
    (0xFF20_F800, 0x4400_0000), (0xFFA0_F800, 0x44A0_0000), (0xFFA0_F000, 0x6420_4000),
    (0xFFA0_FC00, 0x6420_8000),
)  # fmt: skip
# Products of Advanced SIMD: by element; dot products and small matrices; multiply-adds.
_NEON_PRODUCTS = (
    (0x9F00_0400, 0x0F00_0000), (0x9F20_8400, 0x0E00_8400), (0xBF20_FC00, 0x0E20_CC00),
    (0xBF60_FC00, 0x0E40_0C00), (0x9F20_FC00, 0x0E20_9400), (0x9F20_DC00, 0x0E20_8000),
    (0xBF60_FC00, 0x0E20_EC00), (0xBF60_FC00, 0x2E20_CC00),
)  # fmt: skip
# Types of outer products by bits 24 and 21, then by bit 3: into 32-bit sums, and into narrower.
_FLOATS = (("fp32", "1-bit"), ("fp8", "fp8"), ("bf16", "fp16"), ("fp16", "bf16"))
_TILE, _QUARTER, _SPARSE = "outer product", "quarter-tile product", "sparse outer product"
LOOKUP, DOT, MULTIPLY_ADD, NEON = "look-up", "dot product", "multiply-add", "NEON product"


@functools.lru_cache(maxsize=1 << 16)
def counts_of(word: int) -> Counts:
    """What executing ``word`` once adds."""
    streaming = is_streaming(word)
    product = streaming and not word >> 30 & 1
    return Counts(1, int(product), int(streaming and not product))


def work_of(word: int) -> str:
    """The class of work that multiplies: ``fp32 outer product``, ``look-up``, …; else empty.

    The names of kernels change, and these do not.
    """
    if is_streaming(word):
        return _streaming_work(word)
    group = word >> 25 & 0xF
    if group == 0b0010:
        multiplies = any(word & mask == is_ for mask, is_ in _SVE_MULTIPLY_ADDS)
        dot = any(word & mask == is_ for mask, is_ in _SVE_DOTS)
        return MULTIPLY_ADD if multiplies else DOT if dot else ""
    return NEON if any(word & mask == is_ for mask, is_ in _NEON_PRODUCTS) else ""


def is_streaming(word: int) -> bool:
    """Whether it enters streaming mode, or works on ZA or on groups of vectors. The loads and
    stores of groups are SVE's as well, and prove nothing.
    """
    if word in STREAMING_ENTRIES:
        return True
    return word >> 31 == 1 and word >> 25 & 0xF == 0 and word & 0xFE80_0000 != 0xA000_0000


@functools.lru_cache(maxsize=1 << 16)
def told_by(word: int) -> tuple[bool, bool, str]:
    """What it says of a kernel: whether it is of streaming mode, whether of SME2 alone, its work.
    Programs repeat their instructions thousands of times.
    """
    return is_streaming(word), is_sme2_only(word), work_of(word)


def _streaming_work(word: int) -> str:
    family, quarters = word >> 29 & 0b11, word >> 22 & 0b11
    if family in (0b00, 0b01):
        return f"{_type(word, family, quarters)} {_shape(word, quarters)}"
    if is_table_lookup(word):
        return LOOKUP
    # Of what stands at 0xC1, bit 15 beside bit 21 is between registers alone.
    if word >> 24 != 0xC1 or word & 0x0020_8000 == 0x0020_8000:
        return ""
    if word & 0x0020_0000:
        form = word >> 10 & 0b111
        if form == 0b111 and word >> 23 & 1:
            return ""  # It adds vectors to ZA.
        return DOT if form in (0b100, 0b101) else MULTIPLY_ADD
    # By element: bits 3 to 5 are 0 or 2 for multiply-adds.
    adds = word >> 3 & 0b101 == 0 and not word >> 12 & 1
    return MULTIPLY_ADD if not quarters & 1 or not word >> 20 & 1 or adds else DOT


def _shape(word: int, quarters: int) -> str:
    if quarters == 0b00 or (quarters == 0b11 and word >> 3 & 1):
        return _QUARTER
    return _SPARSE if quarters == 0b01 else _TILE


def _type(word: int, family: int, quarters: int) -> str:
    narrow = word >> 3 & 1
    if family == 0b01 or (not quarters >> 1 and word >> 15 & 1):
        return "int16" if narrow or quarters == 0b11 else "int8"
    if quarters == 0b11:
        return "fp64"
    name = _FLOATS[word >> 23 & 0b10 | word >> 21 & 1][narrow]
    # Only a whole tile has sums of single bits.
    return "fp32" if name == "1-bit" and quarters != 0b10 else name


def is_table_lookup(word: int) -> bool:
    """Whether it is ``luti2`` or ``luti4`` from ZT0; both are SME2's."""
    return word & _TABLE_LOOKUP[0] == _TABLE_LOOKUP[1]


def is_sme2_only(word: int) -> bool:
    """Whether only SME2 has it. Without these, code of streaming mode runs on SME, too."""
    return is_table_lookup(word) or any(word & mask == is_ for mask, is_ in _SME2_ONLY)
