"""Reads Mach-O files without running them: the slices of a fat file, and what a slice holds."""

from __future__ import annotations

import re
import struct

from pytest_sme2.errors import LibraryError
from pytest_sme2.system.binary import Binary, Names, checked_code

_THIN = b"\xcf\xfa\xed\xfe"
# Of 32 bits, which no CPU with SME2 runs.
_OLD = b"\xce\xfa\xed\xfe"
_FAT = {b"\xca\xfe\xba\xbe": struct.Struct(">IIIII"), b"\xca\xfe\xba\xbf": struct.Struct(">IIQQII")}
# A class file of Java begins like a fat file; its number here is 45 or more.
_MOST_SLICES = 42
_MOST_COMMANDS = 10_000
_HEADER = struct.Struct("<IIIIIIII")
_SEGMENT = struct.Struct("<II16sQQQQIIII")
_SECTION = struct.Struct("<16s16sQQIIIIIIII")
_SYMBOL = struct.Struct("<IBBHQ")
_LC_SYMTAB, _LC_SEGMENT_64, _LC_BUILD_VERSION = 0x2, 0x19, 0x32
_ZERO_FILLED, _INSTRUCTIONS = 1, 0x8000_0400
_DEBUG, _KIND, _IN_A_SECTION = 0xE0, 0x0E, 0x0E
_CPUS = {7: "x86", 12: "arm (32 bit)", 0x0100_0007: "x86_64", 0x0100_000C: "arm64"}
_ARM64E = 2
_PLATFORMS = {1: "macOS", 2: "iOS", 3: "tvOS", 4: "watchOS", 6: "Mac Catalyst", 7: "iOS simulator"}


def is_macho(start: bytes) -> bool:
    """Whether a file that begins so is a Mach-O file, thin or fat."""
    if start[:4] in _FAT:
        return 0 < int.from_bytes(start[4:8], "big") <= _MOST_SLICES
    return start[:4] in (_THIN, _OLD)


def slices(data: bytes, where: str) -> list[bytes]:
    """One part for each CPU: a Mach-O file or a static library."""
    layout = _FAT.get(data[:4])
    if layout is None:
        return [data]
    try:
        found = []
        for index in range(int.from_bytes(data[4:8], "big")):
            _, _, offset, size, *_ = layout.unpack_from(data, 8 + index * layout.size)
            checked_code(data, [(offset, size)])
            found.append(data[offset : offset + size])
    except struct.error as error:
        raise _damaged(where, error) from error
    return found


def read_binary(data: bytes, where: str, wanted: re.Pattern[bytes]) -> Binary:
    """A thin file; of one with 32 bits, only its CPU is read."""
    try:
        return _read(data, wanted)
    except struct.error as error:
        raise _damaged(where, error) from error


def _damaged(where: str, error: Exception) -> LibraryError:
    return LibraryError(
        f"{where} is a truncated or damaged Mach-O file ({error}). Build or fetch it again."
    )


def _read(data: bytes, wanted: re.Pattern[bytes]) -> Binary:
    _, cpu, subtype, _, command_count, _, _, _ = _HEADER.unpack_from(data)
    architecture = _CPUS.get(cpu, f"CPU {cpu}")
    if architecture == "arm64" and subtype & 0xFF == _ARM64E:
        architecture = "arm64e"
    platform, code, names = "Apple", list[tuple[int, int]](), Names(data, wanted)
    if data[:4] == _OLD:
        return Binary("Mach-O", architecture, platform, data)
    if command_count > _MOST_COMMANDS:
        raise struct.error(f"{command_count} load commands")
    place = _HEADER.size
    for _ in range(command_count):
        command, size = struct.unpack_from("<II", data, place)
        # Without this, a size of 0 would be read for ever.
        if size < 8:
            raise struct.error(f"a load command of {size} bytes")
        if command == _LC_SEGMENT_64:
            code += _code(data, place, size)
        elif command == _LC_SYMTAB:
            _take_names(data, place, names)
        elif command == _LC_BUILD_VERSION:
            (number,) = struct.unpack_from("<I", data, place + 8)
            platform = _PLATFORMS.get(number, f"Apple platform {number}")
        place += size
    return Binary(
        "Mach-O", architecture, platform, data, code=checked_code(data, code), names=names
    )


def _code(data: bytes, place: int, command_size: int) -> list[tuple[int, int]]:
    *_, section_count, _ = _SEGMENT.unpack_from(data, place)
    if _SEGMENT.size + section_count * _SECTION.size > command_size:
        raise struct.error(f"{section_count} sections in {command_size} bytes")
    found = []
    for index in range(section_count):
        section = _SECTION.unpack_from(data, place + _SEGMENT.size + index * _SECTION.size)
        size, offset, flags = section[3], section[4], section[8]
        if flags & _INSTRUCTIONS and flags & 0xFF != _ZERO_FILLED:
            found.append((offset, size))
    return found


def _take_names(data: bytes, place: int, names: Names) -> None:
    _, _, symbols, count, strings, _ = struct.unpack_from("<IIIIII", data, place)
    for index in range(count):
        name, kind, *_ = _SYMBOL.unpack_from(data, symbols + index * _SYMBOL.size)
        if not kind & _DEBUG:
            names.take(strings + name, defined=kind & _KIND == _IN_A_SECTION)
