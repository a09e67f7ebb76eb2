"""Writes small Mach-O files and static libraries, and puts code into what ``elf_writer`` wrote."""

from __future__ import annotations

import struct
from collections.abc import Sequence
from pathlib import Path

from tests.support.elf_writer import CODE_OFFSET, write_elf

SMSTART, SMSTOP = 0xD503477F, 0xD503467F
FMOPA, SMOPA = 0x80812000, 0xA0812001
LUTI, MULTI_VECTOR = 0xC0CCC020, 0xC1A21800
SME2_KERNEL = (SMSTART, FMOPA, FMOPA, SMOPA, LUTI, MULTI_VECTOR, SMSTOP)
SME_KERNEL = (SMSTART, FMOPA, SMSTOP)
# mov x0, AT_HWCAP2; tbz x1, #37; mov w2, #1; strb w2, [x19, #6]
ASKING = (0xD2800340, 0xB6280061, 0x52800022, 0x39001A62)
KERNEL = "kai_run_matmul_clamp_f32_f32p2vlx1_f32p2vlx1b_2vlx2vl_sme2_mopa"
APPLE_QUESTION = b"hw.optional.arm.FEAT_SME2\0"


def code(words: Sequence[int]) -> bytes:
    return struct.pack(f"<{len(words)}I", *words)


def elf(
    folder: Path, words: Sequence[int] = (), names: Sequence[str] = (), text: bytes = b""
) -> bytes:
    """A shared object of Linux for arm64 that is aligned to 4096."""
    path = write_elf(folder / "written.so", [(CODE_OFFSET, 4, name) for name in names])
    data = bytearray(path.read_bytes())
    path.unlink()
    data[CODE_OFFSET : CODE_OFFSET + 4 * len(words)] = code(words)
    return bytes(data) + b"\0" + text


def macho(
    words: Sequence[int] = (),
    names: Sequence[str] = (),
    imported: Sequence[str] = (),
    *,
    platform: int = 1,
    text: bytes = b"",
) -> bytes:
    """A thin dylib for arm64."""
    strings, symbols = b"\0", b""
    for kind, some in ((0x0F, names), (0x01, imported)):
        for name in some:
            symbols += struct.pack("<IBBHQ", len(strings), kind, 1, 0, 0)
            strings += b"_" + name.encode() + b"\0"
    start = 32 + 72 + 80 + 24 + 24
    content = code(words)
    symbols_start = start + len(content)
    strings_start = symbols_start + len(symbols)
    number = len(names) + len(imported)
    return b"".join(
        [
            struct.pack("<8I", 0xFEEDFACF, 0x0100000C, 0, 6, 3, start - 32, 0, 0),
            struct.pack("<II16sQQQQIIII", 0x19, 152, b"__TEXT", 0, 0, 0, 0, 5, 5, 1, 0),
            struct.pack("<16s16sQQ", b"__text", b"__TEXT", 0, len(content)),
            struct.pack("<8I", start, 2, 0, 0, 0x80000400, 0, 0, 0),
            struct.pack("<6I", 0x2, 24, symbols_start, number, strings_start, len(strings)),
            struct.pack("<6I", 0x32, 24, platform, 0, 0, 0),
            content + symbols + strings + text,
        ]
    )


def fat(*parts: bytes) -> bytes:
    offset, headers, body = 8 + 20 * len(parts), b"", b""
    for part in parts:
        headers += struct.pack(">5I", 0x0100000C, 0, offset + len(body), len(part), 0)
        body += part
    return struct.pack(">2I", 0xCAFEBABE, len(parts)) + headers + body


def static_library(*members: bytes, long_name: bytes = b"") -> bytes:
    """As GNU writes it, or as BSD does if the members have a long name."""
    data = b"!<arch>\n"
    for member in members:
        name = b"#1/%d" % len(long_name) if long_name else b"object.o/"
        content = long_name + member
        data += name.ljust(48) + str(len(content)).encode().ljust(10) + b"`\n" + content
        data += b"\n" * (len(content) % 2)
    return data
