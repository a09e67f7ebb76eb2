"""What one library has of XNNPACK, KleidiAI, cpuinfo and SME2: bytes in, a value out.

Names tell most. A stripped library still has the texts of the three, and its instructions.
"""

from __future__ import annotations

import io
import os
import re
import struct
import zipfile
import zlib
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO

import numpy as np

from pytest_sme2.errors import LibraryError, UsageError
from pytest_sme2.results.evidence import KernelFamily
from pytest_sme2.system import elf
from pytest_sme2.system.elf import Binary, checked_code, chosen_names
from pytest_sme2.system.files import open_plain
from pytest_sme2.trace import instructions as decode
from pytest_sme2.trace.kernel_log import family_of, is_microkernel, kernel_name

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


ARM64 = "arm64"
_ARCHIVE, _MEMBER_BYTES = b"!<arch>\n", 60
_WANTED = re.compile(rb"_?((?:xnn|kai|cpuinfo)_\w+)\0")
# XNNPACK's names of operators, which its profiler prints.
_XNNPACK_TEXT = b"Convolution (NHWC, "
# KleidiAI's assertions name their source file, so kernels have names even where symbols do not.
_KLEIDIAI_FILE = re.compile(rb"/kai_([a-z]\w{3,200})\.c\0")
# The names of types around KleidiAI in ONNX Runtime, which has neither.
_ONNXRUNTIME_TEXT = b"ArmKleidiAI"
# What cpuinfo reads: on Linux and Android, and on Apple's systems.
_CPUINFO_TEXTS = (b"/sys/devices/system/cpu/kernel_max\0", b"hw.optional.armv8_2_fhm\0")
_APPLE_QUESTION = b"hw.optional.arm.FEAT_SME2\0"
# mov w0 or x0, AT_HWCAP2: for getauxval.
_HWCAP2_ASKED = (0x5280_0340, 0xD280_0340)
# tbz or tbnz, and ubfx, of HWCAP2_SME2, which is bit 37.
_SME2_TESTS = ((0xFEF8_0000, 0xB628_0000), (0xFFFF_FC00, 0xD365_9400))
# What cpuinfo does next, within three words: it notes the answer (strb), or tests bit 38. Compilers
# add code that tests the same bit for purposes of their own.
_SME2_NOTED = ((0xFFC0_0000, 0x3900_0000), (0xFEF8_0000, 0xB630_0000))
# Far above every kernel. Its SMSTOP need not stand behind its SMSTART.
_LONGEST_KERNEL_WORDS = 1 << 14


@dataclass(frozen=True)
class Instructions:
    """Those between an SMSTART and the next SMSTOP: elsewhere, constants may look like them."""

    smstart: int
    sme2_only: int
    """What SME does not have: LUTI and multi-vector instructions."""
    work: Mapping[str, int]
    """What multiplies, by the classes of ``results.Code``, the most frequent first."""


@dataclass(frozen=True)
class Library:
    """One library for one CPU and one system."""

    name: str
    kind: str
    architecture: str
    platform: str
    xnnpack: bool
    kleidiai: bool
    cpuinfo: bool
    sme2_kernels: tuple[str, ...]
    sme_kernels: tuple[str, ...]
    sme2: bool
    """The code decides, because a build without SME2 may keep names. But where KleidiAI's kernels
    have names and none is SME2's, the code is that of others."""
    instructions: Instructions
    asks_for_sme2: bool
    """Whether it has the code that asks the system for SME2."""
    uses_other_cpuinfo: bool
    """Whether it reads the answer of a cpuinfo that is in another library."""
    alignment: int | None


def is_library(start: bytes) -> bool:
    """Whether a file that begins so may hold code: ELF, Mach-O, or a static library."""
    return start.startswith((b"\x7fELF", _ARCHIVE)) or is_macho(start)


def read_libraries(data: bytes, name: str) -> list[Library]:
    """One for each CPU and system that the library is for; none where it holds no code."""
    groups: dict[tuple[str, str], list[Binary]] = {}
    for part in slices(data, name):
        members = _members(part, name) if part.startswith(_ARCHIVE) else [(name, part)]
        for member, content in members:
            if content.startswith(b"\x7fELF"):
                binary = elf.read_binary(content, member, _WANTED)
            elif is_macho(content[:8]):
                binary = read_binary(content, member, _WANTED)
            else:
                continue
            groups.setdefault((binary.architecture, binary.platform), []).append(binary)
    return [_library(name, binaries) for binaries in groups.values()]


def _members(data: bytes, name: str) -> Iterator[tuple[str, bytes]]:
    place = len(_ARCHIVE)
    while place < len(data):
        header = data[place : place + _MEMBER_BYTES]
        size, start = header[48:58].strip(), place + _MEMBER_BYTES
        if header[58:] != b"`\n" or not size.isdigit() or start + int(size) > len(data):
            raise LibraryError(
                f"{name} is a truncated or damaged static library (at byte {place}). "
                "Build or fetch it again."
            )
        place = start + int(size)
        # BSD puts a long name before the content, and its length here.
        long = header[3:16].strip() if header.startswith(b"#1/") else b""
        start += int(long) if long.isdigit() else 0
        yield f"{name}({header[:16].decode('latin-1').strip()})", data[start:place]
        place += place % 2


def _library(name: str, binaries: Sequence[Binary]) -> Library:
    first = binaries[0]
    defined = frozenset[str]().union(*(binary.defined for binary in binaries))
    undefined = frozenset[str]().union(*(binary.undefined for binary in binaries))
    data = [binary.data for binary in binaries]
    files = {f"kai_run_{found[1].decode()}" for d in data for found in _KLEIDIAI_FILE.finditer(d)}
    kernels = {kernel_name(symbol) for symbol in defined if is_microkernel(symbol)} | files
    prefixes = {symbol.partition("_")[0] for symbol in defined}
    words: Counter[int] = Counter()
    asks = tests = False
    for binary in binaries if first.architecture == ARM64 else ():
        # One array: an object may have a section for each of its functions.
        parts = [binary.data[offset : offset + size - size % 4] for offset, size in binary.code]
        code = np.frombuffer(b"".join(parts), "<u4")
        words.update(_streaming_words(code))
        asks = asks or bool(np.isin(code, _HWCAP2_ASKED).any())
        tests = tests or _tests_sme2(code)
    found = _instructions(words)
    sme2_kernels = tuple(sorted(k for k in kernels if family_of(k) is KernelFamily.SME2))
    named = any(kernel.startswith("kai_") for kernel in kernels)
    if first.kind == "ELF":
        asked = asks and tests and any(b"getauxval" in d for d in data)
    else:
        asked = any(_APPLE_QUESTION in d for d in data)
    return Library(
        name=name,
        kind=first.kind,
        architecture=first.architecture,
        platform=first.platform,
        xnnpack="xnn" in prefixes or any(_XNNPACK_TEXT in d for d in data),
        kleidiai="kai" in prefixes or bool(files) or any(_ONNXRUNTIME_TEXT in d for d in data),
        cpuinfo="cpuinfo" in prefixes or any(text in d for d in data for text in _CPUINFO_TEXTS),
        sme2_kernels=sme2_kernels,
        sme_kernels=tuple(sorted(k for k in kernels if family_of(k) is KernelFamily.SME)),
        sme2=found.sme2_only > 0 and (bool(sme2_kernels) or not named),
        instructions=found,
        asks_for_sme2=asked,
        uses_other_cpuinfo="cpuinfo_isa" in undefined - defined,
        alignment=first.alignment,
    )


def _tests_sme2(code: np.ndarray) -> bool:
    return any(
        word & noted == is_noted
        for mask, is_ in _SME2_TESTS
        for place in np.flatnonzero(code & mask == is_).tolist()
        for word in code[place + 1 : place + 4].tolist()
        for noted, is_noted in _SME2_NOTED
    )


def _streaming_words(code: np.ndarray) -> Counter[int]:
    stops = np.flatnonzero(np.isin(code, list(decode.STREAMING_EXITS)))
    words: Counter[int] = Counter()
    done = 0
    for start in np.flatnonzero(np.isin(code, list(decode.STREAMING_ENTRIES))).tolist():
        behind = stops[np.searchsorted(stops, start) :][:1].tolist() or [len(code)]
        stop = min(behind[0], start + _LONGEST_KERNEL_WORDS)
        words.update(code[max(start, done) : stop].tolist())
        done = max(done, stop)
    return words


def _instructions(words: Counter[int]) -> Instructions:
    work: Counter[str] = Counter()
    for word, number in words.items():
        work[decode.work_of(word)] += number
    del work[""]
    return Instructions(
        smstart=sum(words[word] for word in decode.STREAMING_ENTRIES),
        sme2_only=sum(number for word, number in words.items() if decode.is_sme2_only(word)),
        work=dict(work.most_common()),
    )


# Of zips in zips. How large all may be is the business of the command, which confines itself.
_DEEPEST_ZIP = 3
_ZIP_NAMES = (".aab", ".aar", ".apk", ".apks", ".ipa", ".whl", ".xapk", ".zip")
_START_BYTES = 8
# Where a wheel, or a folder that one was installed to, has ExecuTorch's version.
_METADATA = re.compile(r"(?:^|/)executorch-[^/]*\.dist-info/METADATA$")
_VERSION = re.compile(rb"^Version: ([\w.+!-]{1,100})\r?$", re.MULTILINE)
_LONGEST_METADATA = 1 << 20
# What zipfile raises for damage; RuntimeError is for passwords and methods that it lacks.
_DAMAGE = (zipfile.BadZipFile, zlib.error, struct.error, EOFError, OSError, OverflowError,
           RuntimeError, ValueError)  # fmt: skip


@dataclass
class Package:
    """What was found; filled while files are read."""

    libraries: list[Library] = field(default_factory=list)
    executorch: str | None = None
    """ExecuTorch's version, where the package says it."""

    def take(self, name: str, file: IO[bytes], depth: int) -> None:
        """One file; it is read whole only if it can hold a library."""
        start = file.read(_START_BYTES)
        if _METADATA.search(name):
            version = _VERSION.search(start + file.read(_LONGEST_METADATA))
            self.executorch = version[1].decode() if version else None
        elif is_library(start):
            self.libraries += read_libraries(start + file.read(), name)
        elif start.startswith(b"PK") and name.lower().endswith(_ZIP_NAMES) and depth < _DEEPEST_ZIP:
            self._take_zip(io.BytesIO(start + file.read()), name, depth)

    def _take_zip(self, file: IO[bytes], name: str, depth: int) -> None:
        prefix = f"{name}!/" if depth else ""
        try:
            with zipfile.ZipFile(file) as archive:
                for member in archive.infolist():
                    with archive.open(member) as opened:
                        self.take(prefix + member.filename, opened, depth + 1)
        except _DAMAGE as error:
            raise LibraryError(
                f"{name} cannot be read: it is a damaged or locked zip: {str(error)[:200]}. "
                "Fetch it again."
            ) from error


def read_package(path: Path) -> Package:
    """The libraries of a file or a folder. Links in a folder are not followed."""
    package = Package()
    try:
        for name, place in _files(path):
            with open_plain(place) as file:
                package.take(name, file, depth=int(path.is_dir()))
    except LibraryError as error:
        if path.name in str(error):
            raise
        raise LibraryError(f"{path.name}: {error}") from error
    except (OSError, ValueError) as error:
        why = getattr(error, "strerror", None) or error
        raise UsageError(f"{path} cannot be read: {why}. Give a library or a package.") from error
    return package


def _files(path: Path) -> Iterator[tuple[str, Path]]:
    """All of a folder with their names in it, or the file itself."""
    if not path.is_dir():
        yield path.name, path
    for parent, folders, names in os.walk(path):
        folders.sort()
        for entry in (Path(parent, name) for name in sorted(names)):
            if entry.is_file() and not entry.is_symlink():
                yield str(entry.relative_to(path)), entry
