"""Reads ELF files without running them: the functions of a 64-bit file, and libraries.

``trace/kernel_log.py`` knows what function names mean.
"""

from __future__ import annotations

import bisect
import contextlib
import functools
import operator
import re
import struct
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from pytest_sme2.errors import ElfError

_MACHINES = {3: "x86", 40: "arm (32 bit)", 62: "x86_64", 183: "arm64", 243: "riscv64"}
# torch's largest library has 400,000 symbols.
_MOST_SYMBOLS = 4_000_000
_LONGEST_NAME = 256


@dataclass(frozen=True)
class Binary:
    """One library or object file for one CPU."""

    kind: str
    architecture: str
    platform: str
    data: bytes
    code: tuple[tuple[int, int], ...] = ()
    """The offset and the size of each part with instructions."""
    defined: frozenset[str] = frozenset()
    undefined: frozenset[str] = frozenset()
    alignment: int | None = None
    """The smallest of its loaded parts; None for a format without."""


def checked_code(data: bytes, parts: Sequence[tuple[int, int]]) -> tuple[tuple[int, int], ...]:
    """``parts``, all of them within the file and together no larger than it."""
    if any(offset + size > len(data) for offset, size in parts):
        raise struct.error("code beyond its end")
    if sum(size for _, size in parts) > len(data):
        raise struct.error("more code than bytes")
    return tuple(parts)


def chosen_names(
    data: bytes, symbols: Iterable[tuple[int, bool]], wanted: re.Pattern[bytes]
) -> tuple[frozenset[str], frozenset[str]]:
    """The defined and the undefined names that ``wanted`` has, of places and whether defined."""
    names: dict[bool, set[str]] = {True: set(), False: set()}
    for number, (place, defined) in enumerate(symbols):
        if number == _MOST_SYMBOLS or place >= len(data):
            raise struct.error("too many symbols, or a name beyond its end")
        if match := wanted.match(data, place, place + _LONGEST_NAME):
            names[defined].add(match[1].decode())
    return frozenset(names[True]), frozenset(names[False])


_HEADER = struct.Struct("<16sHHIQQQIHHHHHH")
_PROGRAM = struct.Struct("<IIQQQQQQ")
_SECTION = struct.Struct("<IIQQQQIIQQ")
_SYMBOL = struct.Struct("<IBBHQQ")

_LOAD = 1
_EH_FRAME = 0x6474E550
_EXECUTABLE = 1
_SYMTAB, _DYNSYM = 2, 11
_FUNCTION_TYPES = (2, 10)  # STT_FUNC, STT_GNU_IFUNC
_PROGRAM_BITS, _EXECUTABLE_SECTION = 1, 4
# The note of Android's libraries, and the compiler's name in its objects.
_ANDROID = (b"\x01\0\0\0Android\0", b"\0Android (")

# .eh_frame_hdr as every linker writes it: version 1, pointer pc-relative, count plain, table of
# 32-bit values relative to the header. Other encodings are legal, but we have not seen one.
_EH_FRAME_HEADER = b"\x01\x1b\x03\x3b"


@dataclass(frozen=True)
class Function:
    """One function's place in the file's own address space."""

    address: int
    size: int
    name: str
    """Empty if only the unwind table has it."""


_PLACE = operator.attrgetter("address", "size", "name")


@dataclass(frozen=True)
class LoadedPart:
    offset: int
    address: int
    file_size: int


@dataclass(frozen=True)
class ElfFile:
    """What resolves an address in a mapped file to a function."""

    path: Path
    segments: tuple[LoadedPart, ...]
    symbols: tuple[Function, ...]
    """Defined functions with a size, by address."""
    unnamed: tuple[Function, ...]
    """Functions of the unwind table without a symbol, by address."""

    def address_of(self, offset: int) -> int | None:
        """The address of the byte at ``offset`` in the file."""
        for segment in self.segments:
            if segment.offset <= offset < segment.offset + segment.file_size:
                return offset - segment.offset + segment.address
        return None

    def function_at(self, address: int) -> Function | None:
        """The function that contains ``address``; one with a name if possible."""
        named, others = self._starts
        return _enclosing(self.symbols, named, address) or _enclosing(self.unnamed, others, address)

    @functools.cached_property
    def _starts(self) -> tuple[list[int], list[int]]:
        named, others = ([one.address for one in of] for of in (self.symbols, self.unnamed))
        return named, others


@contextlib.contextmanager
def _undamaged(where: Path | str) -> Iterator[None]:
    """What reading at a place or of a length that a damaged file claims may raise is an error."""
    try:
        yield
    except (struct.error, IndexError, OverflowError, ValueError) as error:
        raise ElfError(
            f"{where} is a truncated or damaged ELF file ({error}). Build or fetch it again."
        ) from error


def _read_elf64(path: Path) -> bytes:
    data = _read(path)
    if data[:6] != b"\x7fELF\x02\x01":
        raise ElfError(f"{path} is not a little-endian 64-bit ELF file.")
    return data


def _read(path: Path) -> bytes:
    try:
        return path.read_bytes()
    except OSError as error:
        raise ElfError(f"{path} cannot be read: {error.strerror}.") from error


def read_elf(path: Path) -> ElfFile:
    """Read a little-endian ELF64 file; an ElfError says what is wrong with another file."""
    data = _read_elf64(path)
    with _undamaged(path):
        segments, headers = _segments(data, _LOAD), _segments(data, _EH_FRAME)
        symbols = tuple(sorted(set(_symbols(data)), key=_PLACE))
        starts = {symbol.address for symbol in symbols}
        unnamed = tuple(
            function
            for header in headers
            for function in _unwind_functions(data, header)
            if function.address not in starts
        )
    return ElfFile(path, segments, symbols, tuple(sorted(unnamed, key=_PLACE)))


def read_binary(data: bytes, where: str, wanted: re.Pattern[bytes]) -> Binary:
    """A library or an object file; only the machine of one that is not little-endian ELF64."""
    with _undamaged(where):
        (machine,) = struct.unpack_from("<H", data, 18)
        architecture = _MACHINES.get(machine, f"machine {machine}")
        platform = "Android" if any(text in data for text in _ANDROID) else "Linux"
        if data[4:6] != b"\x02\x01":
            return Binary("ELF", architecture, platform, data)
        symbols = ((place, section != 0) for place, _, section, _, _ in _symbol_entries(data))
        names = chosen_names(data, symbols, wanted)
        code = checked_code(data, _code(data))
        alignments = [header[7] for header in _program_headers(data) if header[0] == _LOAD]
        alignment = min(alignments, default=None)
        return Binary("ELF", architecture, platform, data, code, *names, alignment)


def _code(data: bytes) -> list[tuple[int, int]]:
    sections = [
        (offset, size)
        for _, kind, flags, _, offset, size, *_ in _sections(data)
        if kind == _PROGRAM_BITS and flags & _EXECUTABLE_SECTION
    ]
    # Without section headers, the segment may have constants as well.
    return sections or [
        (offset, size)
        for kind, flags, offset, _, _, size, *_ in _program_headers(data)
        if kind == _LOAD and flags & _EXECUTABLE
    ]


def _enclosing(functions: tuple[Function, ...], starts: list[int], address: int) -> Function | None:
    index = bisect.bisect_right(starts, address) - 1
    if index < 0:
        return None
    function = functions[index]
    return function if address < function.address + function.size else None


def _program_headers(data: bytes) -> Iterator[tuple[int, ...]]:
    fields = _HEADER.unpack_from(data)
    start, entry_size, count = fields[5], fields[9], fields[10]
    for index in range(count):
        yield _PROGRAM.unpack_from(data, start + index * entry_size)


def _segments(data: bytes, wanted: int) -> tuple[LoadedPart, ...]:
    return tuple(
        LoadedPart(offset, address, file_size)
        for kind, _, offset, address, _, file_size, _, _ in _program_headers(data)
        if kind == wanted
    )


def _string(data: bytes, start: int) -> str:
    return data[start : data.index(b"\0", start)].decode()


def _sections(data: bytes) -> list[tuple[int, ...]]:
    fields = _HEADER.unpack_from(data)
    start, entry_size, count = fields[6], fields[11], fields[12]
    if start == 0:
        return []
    return [_SECTION.unpack_from(data, start + index * entry_size) for index in range(count)]


def _symbol_entries(data: bytes) -> Iterator[tuple[int, int, int, int, int]]:
    """Of each symbol: where its name is, its type, its section, its address and its size."""
    sections = _sections(data)
    for section in sections:
        _, kind, _, _, offset, size, link, _, _, symbol_size = section
        if kind not in (_SYMTAB, _DYNSYM):
            continue
        if symbol_size < _SYMBOL.size:
            raise struct.error(f"symbols of {symbol_size} bytes")
        names = sections[link][4]
        for position in range(offset, offset + size, symbol_size):
            name, info, _, section_index, address, length = _SYMBOL.unpack_from(data, position)
            yield names + name, info & 0xF, section_index, address, length


def _symbols(data: bytes) -> Iterator[Function]:
    for place, kind, section_index, address, length in _symbol_entries(data):
        if kind in _FUNCTION_TYPES and section_index != 0 and length:
            yield Function(address, length, _string(data, place))


def _unwind_functions(data: bytes, header: LoadedPart) -> Iterator[Function]:
    """The functions of the unwind table, which also has those without a symbol."""
    if data[header.offset : header.offset + 4] != _EH_FRAME_HEADER:
        return
    (count,) = struct.unpack_from("<I", data, header.offset + 8)
    if 12 + 8 * count > header.file_size:
        raise struct.error("an unwind table longer than its segment")
    shift = header.offset - header.address
    for start, entry in struct.iter_unpack(
        "<ii", data[header.offset + 12 : header.offset + 12 + 8 * count]
    ):
        address = header.address + start
        frame = header.address + entry + shift
        _, _, location, size = struct.unpack_from("<IIiI", data, frame)
        # If the two differ, the entry has another encoding and its size means nothing.
        if frame - shift + 8 + location == address:
            yield Function(address, size, "")


PHONE_PAGE_BYTES = 16384
"""The largest pages of a phone, from Android 15 on."""
