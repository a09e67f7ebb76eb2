"""Writes small ELF64 files with the symbols a test asks for, so that no compiler is needed."""

from __future__ import annotations

import struct
from collections.abc import Sequence
from pathlib import Path

HEADER_SIZE = 64
CODE_OFFSET = 0x1000
CODE_SIZE = 0x9000


def write_elf(
    path: Path,
    symbols: Sequence[tuple[int, int, str]],
    *,
    unwind: Sequence[tuple[int, int]] = (),
    shift: int = 0,
) -> Path:
    """A shared object: code at file offset 0x1000, its address ``shift`` higher."""
    strings = b"\0"
    table = struct.pack("<IBBHQQ", 0, 0, 0, 0, 0, 0)
    for address, size, name in symbols:
        table += struct.pack("<IBBHQQ", len(strings), 0x12, 0, 1, address, size)
        strings += name.encode() + b"\0"
    # One frame entry a function, then the sorted table that points at them.
    unwind_offset = CODE_OFFSET + CODE_SIZE
    entries = sorted(unwind)
    frames_offset = unwind_offset + 12 + 8 * len(entries)
    header = b"\x01\x1b\x03\x3b" + struct.pack("<iI", 0, len(entries))
    frames = b""
    for index, (address, size) in enumerate(entries):
        frame = frames_offset + 16 * index
        header += struct.pack("<ii", address - (unwind_offset + shift), frame - unwind_offset)
        frames += struct.pack("<IIiI", 12, 0, address - (frame + shift + 8), size)
    table_offset = frames_offset + len(frames)
    strings_offset = table_offset + len(table)
    sections_offset = strings_offset + len(strings)
    sections = struct.pack("<IIQQQQIIQQ", *([0] * 10))
    sections += struct.pack("<IIQQQQIIQQ", 0, 11, 0, 0, table_offset, len(table), 2, 0, 8, 24)
    sections += struct.pack("<IIQQQQIIQQ", 0, 3, 0, 0, strings_offset, len(strings), 0, 0, 1, 0)
    programs = struct.pack(
        "<IIQQQQQQ", 1, 5, CODE_OFFSET, CODE_OFFSET + shift, 0, CODE_SIZE, CODE_SIZE, 0x1000
    )
    programs += struct.pack(
        "<IIQQQQQQ",
        *(0x6474E550, 4, unwind_offset, unwind_offset + shift, 0),
        *(len(header), len(header), 4),
    )
    identity = b"\x7fELF\x02\x01\x01" + bytes(9)
    start = struct.pack(
        "<16sHHIQQQIHHHHHH",
        *(identity, 3, 183, 1, 0, HEADER_SIZE, sections_offset, 0, 64, 56, 2, 64, 3, 0),
    )
    data = (start + programs).ljust(unwind_offset, b"\0")
    path.write_bytes(data + header + frames + table + strings + sections)
    return path
