"""What one A64 instruction does, as far as its cost is concerned. Pure: a number in, counts out.

Follows the encoding tables of the Arm Architecture Reference Manual (DDI 0487, chapter C4). Of a
predicated access all lanes are taken to be active, and a gather is taken for a whole vector.
"""

from __future__ import annotations

import functools

from pytest_sme2.results import Counts

_PLAIN = Counts(instructions=1)
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
# ld1 and st1 of SVE, by the field dtype: bytes in memory and in the register.
_SVE_LOADS = (
    (1, 1), (1, 2), (1, 4), (1, 8), (4, 8), (2, 2), (2, 4), (2, 8),
    (2, 8), (2, 4), (4, 4), (4, 8), (1, 8), (1, 4), (1, 2), (8, 8),
)  # fmt: skip
# The prefetches of SVE move nothing; each form as a mask and what is left under it.
_SVE_PREFETCHES = (
    (0xFFC0_8010, 0x85C0_0000), (0xFFA0_8010, 0x8420_0000), (0xFE60_E010, 0x8400_C000),
    (0xFE60_E010, 0x8400_E000), (0xFFA0_8010, 0xC420_0000), (0xFFE0_8010, 0xC460_8000),
    (0xFE60_E010, 0xC400_E000),
)  # fmt: skip
# ldapr stands among the atomic operations, but only loads.
_ORDERED_LOAD = (0x3FFF_FC00, 0x38BF_C000)
# ld1 to ld4 of Advanced SIMD, by the field opcode: how many registers.
_STRUCTURES = {0b0000: 4, 0b0010: 4, 0b0100: 3, 0b0110: 3, 0b0111: 1, 0b1000: 2, 0b1010: 2}


@functools.lru_cache(maxsize=1 << 16)
def counts_of(word: int, vector_bytes: int) -> Counts:
    """What executing ``word`` once adds; vectors of SVE and SME have ``vector_bytes`` bytes."""
    if word in STREAMING_ENTRIES:
        return Counts(instructions=1, streaming_entries=1)
    group = word >> 25 & 0xF
    if group == 0b0000 and word >> 31:
        return _sme(word, vector_bytes)
    if group == 0b0010:
        return _sve(word, vector_bytes)
    if group & 0b0101 == 0b0100:
        return _memory(word)
    return _PLAIN


@functools.lru_cache(maxsize=1 << 16)
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


def tells(word: int) -> bool:
    """Whether it says anything of a kernel."""
    return is_streaming(word) or is_sme2_only(word) or bool(work_of(word))


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


def _load(size: int, **others: int) -> Counts:
    return Counts(instructions=1, loads=1, loaded_bytes=size, **others)


def _store(size: int, **others: int) -> Counts:
    return Counts(instructions=1, stores=1, stored_bytes=size, **others)


def _moved(word: int, store_bit: int, size: int, **others: int) -> Counts:
    return _store(size, **others) if word >> store_bit & 1 else _load(size, **others)


def _both(size: int) -> Counts:
    return Counts(instructions=1, loads=1, stores=1, loaded_bytes=size, stored_bytes=size)


def _sme(word: int, vector_bytes: int) -> Counts:
    family = word >> 29 & 0b11
    if family == 0b11:
        table = word & 0xFFDF_FC00 == 0xE11F_8000
        return _moved(word, 21, 64 if table else vector_bytes, za_transfers=1)
    if family == 0b10:
        return Counts(instructions=1, sme2_other=1)
    # With bit 23 clear, those of quarter tiles and sparse ones.
    if word >> 23 & 1 or family == 0b00:
        return Counts(instructions=1, outer_products=1)
    if family == 0b01:
        registers = 4 if word >> 15 & 1 else 2
        return _moved(word, 21, registers * vector_bytes)
    return Counts(instructions=1, sme2_other=1)


def _sve(word: int, vector_bytes: int) -> Counts:
    family = word >> 29
    form = word >> 13 & 0b111
    if family == 0b101:
        return _load(_sve_contiguous_load(word, form, vector_bytes))
    if family == 0b111:
        return _store(_sve_store(word, form, vector_bytes))
    if family not in (0b100, 0b110) or any(word & mask == is_ for mask, is_ in _SVE_PREFETCHES):
        return _PLAIN
    if word & 0xFFC0_0000 == 0x8580_0000:
        return _load(vector_bytes if form else vector_bytes // 8)
    if family == 0b100 and word >> 22 & 1 and word >> 15 & 1:
        # ld1r: one value for all lanes, as large as dtype says.
        return _load(_SVE_LOADS[word >> 21 & 0b1100 | form & 0b11][0])
    return _load(vector_bytes)


def _sve_contiguous_load(word: int, form: int, vector_bytes: int) -> int:
    number = word >> 21 & 0b11
    if form in (0b000, 0b001):
        # ld1rq and ld1ro: 16 or 32 bytes for all of the vector.
        return 32 if number else 16
    if form in (0b110, 0b111):
        # ldnt1, ld2, ld3, ld4.
        return (number + 1) * vector_bytes
    memory, register = _SVE_LOADS[word >> 21 & 0xF]
    return vector_bytes * memory // register


def _sve_store(word: int, form: int, vector_bytes: int) -> int:
    if word & 0xFFC0_0000 == 0xE580_0000 and form in (0b000, 0b010):
        return vector_bytes if form else vector_bytes // 8
    number = word >> 21 & 0b11
    if form == 0b011 or (form == 0b111 and word >> 20 & 1):
        return (number + 1) * vector_bytes
    if form in (0b010, 0b111):
        return (vector_bytes << (word >> 23 & 0b11)) >> number
    return vector_bytes


def _memory(word: int) -> Counts:
    size, vector, load = word >> 30, word >> 26 & 1, word >> 22 & 1
    kind = word >> 27 & 0b111
    if kind == 0b101:
        one = 4 << size if vector else (8 if size == 2 else 4)
        return _load(2 * one) if load else _store(2 * one)
    if kind == 0b111:
        return _register(word, size, vector)
    if kind == 0b011 and not word >> 24 & 1:
        if not vector and size == 3:
            return _PLAIN
        return _load(4 << size if vector else (8 if size == 1 else 4))
    if kind == 0b011:
        return _load(1 << size) if word >> 22 & 0b11 else _store(1 << size)
    if vector:
        return _structures(word, load)
    # Exclusive and ordered: o2 and o1 both set is compare and swap.
    if word >> 23 & 1 and word >> 21 & 1:
        return _both(1 << size)
    pair = 2 if word >> 21 & 1 else 1
    return _load(pair << size) if load else _store(pair << size)


def _register(word: int, size: int, vector: int) -> Counts:
    opc = word >> 22 & 0b11
    if vector:
        bytes_moved = 16 if size == 0 and opc >> 1 else 1 << size
        return _load(bytes_moved) if opc & 1 else _store(bytes_moved)
    atomic = not word >> 24 & 1 and word >> 21 & 1 and word >> 10 & 0b11 == 0
    if atomic:
        mask, ordered = _ORDERED_LOAD
        return _load(1 << size) if word & mask == ordered else _both(1 << size)
    if size == 3 and opc == 0b10:
        return _PLAIN  # A prefetch.
    return _load(1 << size) if opc else _store(1 << size)


def _structures(word: int, load: int) -> Counts:
    full = 16 if word >> 30 & 1 else 8
    if not word >> 24 & 1:
        moved = _STRUCTURES.get(word >> 12 & 0xF, 1) * full
    else:
        opcode, size = word >> 13 & 0b111, word >> 10 & 0b11
        registers = ((opcode & 1) << 1 | word >> 21 & 1) + 1
        scale = opcode >> 1
        one = 1 << size if scale == 3 else (8 if scale == 2 and size & 1 else 1 << scale)
        moved = registers * one
    return _load(moved) if load else _store(moved)
