"""Reads 64-bit Mach-O files without running them: the slices of a fat file, and what one holds."""

from __future__ import annotations

import re
import struct
from collections.abc import Iterator

from pytest_sme2.errors import LibraryError
from pytest_sme2.system.elf import Binary, checked_code, chosen_names

_THIN = b"\xcf\xfa\xed\xfe"
_FAT = {b"\xca\xfe\xba\xbe": struct.Struct(">IIIII"), b"\xca\xfe\xba\xbf": struct.Struct(">IIQQII")}
# A class file of Java begins like a fat file; its number here is 45 or more.
_MOST_SLICES = 42
_MOST_COMMANDS = 10_000
_HEADER = struct.Struct("<IIIIIIII")
_SEGMENT = struct.Struct("<II16sQQQQIIII")
_SECTION = struct.Struct("<16s16sQQIIIIIIII")
_SYMBOL = struct.Struct("<IBBHQ")
_LC_SYMTAB, _LC_SEGMENT_64, _LC_BUILD_VERSION = 0x2, 0x19, 0x32
_LC_VERSION_MIN = {0x24: "macOS", 0x25: "iOS"}
_INSTRUCTIONS = 0x8000_0400
_DEBUG, _KIND, _IN_A_SECTION = 0xE0, 0x0E, 0x0E
_CPUS = {0x0100_0007: "x86_64", 0x0100_000C: "arm64"}
_PLATFORMS = {1: "macOS", 2: "iOS", 6: "Mac Catalyst", 7: "iOS simulator"}


def is_macho(start: bytes) -> bool:
    """Whether a file that begins so is a Mach-O file, thin or fat."""
    fat = start[:4] in _FAT and 0 < int.from_bytes(start[4:8], "big") <= _MOST_SLICES
    return fat or start[:4] == _THIN


def slices(data: bytes, where: str) -> list[bytes]:
    """One part for each CPU: a Mach-O file or a static library."""
    layout = _FAT.get(data[:4])
    if layout is None:
        return [data]
    try:
        headers = [layout.unpack_from(data, 8 + layout.size * index) for index in range(data[7])]
        parts = checked_code(data, [(header[2], header[3]) for header in headers])
    except struct.error as error:
        raise _damaged(where, error) from error
    return [data[offset : offset + size] for offset, size in parts]


def read_binary(data: bytes, where: str, wanted: re.Pattern[bytes]) -> Binary:
    """A thin file; ``wanted`` chooses the names to keep."""
    platform, code, symbols = "Apple", list[tuple[int, int]](), list[tuple[int, ...]]()
    try:
        cpu = _HEADER.unpack_from(data)[1]
        for command, place, size in _commands(data):
            if command == _LC_SEGMENT_64:
                code += _code(data, place, size)
            elif command == _LC_SYMTAB:
                symbols.append(struct.unpack_from("<IIII", data, place + 8))
            elif command == _LC_BUILD_VERSION:
                (number,) = struct.unpack_from("<I", data, place + 8)
                platform = _PLATFORMS.get(number, f"Apple platform {number}")
            platform = _LC_VERSION_MIN.get(command, platform)
        names = chosen_names(data, _symbols(data, symbols), wanted)
        architecture = _CPUS.get(cpu, f"CPU {cpu:#x}")
        return Binary("Mach-O", architecture, platform, data, checked_code(data, code), *names)
    except struct.error as error:
        raise _damaged(where, error) from error


def _damaged(where: str, error: Exception) -> LibraryError:
    return LibraryError(
        f"{where} is a truncated or damaged Mach-O file ({error}). Build or fetch it again."
    )


def _commands(data: bytes) -> Iterator[tuple[int, int, int]]:
    """Of each load command: its number, its place and its size."""
    number, place = _HEADER.unpack_from(data)[4], _HEADER.size
    if number > _MOST_COMMANDS:
        raise struct.error(f"{number} load commands")
    for _ in range(number):
        command, size = struct.unpack_from("<II", data, place)
        yield command, place, size
        place += size


def _code(data: bytes, place: int, command_size: int) -> Iterator[tuple[int, int]]:
    *_, section_count, _ = _SEGMENT.unpack_from(data, place)
    if _SEGMENT.size + section_count * _SECTION.size > command_size:
        raise struct.error(f"{section_count} sections in {command_size} bytes")
    for index in range(section_count):
        section = _SECTION.unpack_from(data, place + _SEGMENT.size + index * _SECTION.size)
        if section[8] & _INSTRUCTIONS:
            yield section[4], section[3]


def _symbols(data: bytes, tables: list[tuple[int, ...]]) -> Iterator[tuple[int, bool]]:
    for symbols, count, strings, _ in tables:
        for index in range(count):
            name, kind, *_ = _SYMBOL.unpack_from(data, symbols + index * _SYMBOL.size)
            # Debugging entries cost as much to pass over: they count, too.
            yield strings + name, kind & _KIND == _IN_A_SECTION and not kind & _DEBUG
