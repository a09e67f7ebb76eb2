"""What one library has of XNNPACK, KleidiAI, cpuinfo and SME2: bytes in, a value out.

Names tell most. A stripped library still has the texts of the three, and its instructions.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from pytest_sme2.errors import LibraryError
from pytest_sme2.results import KernelFamily
from pytest_sme2.system import elf, macho
from pytest_sme2.system.binary import Binary
from pytest_sme2.trace.instructions import (
    STREAMING_ENTRIES,
    STREAMING_EXITS,
    counts_of,
    is_sme2_only,
    is_table_lookup,
)
from pytest_sme2.trace.kernel_log import family_of, is_microkernel, kernel_name

ARM64 = ("arm64", "arm64e")
_ARCHIVE, _MEMBER_BYTES = b"!<arch>\n", 60
_THIN_ARCHIVE = b"!<thin>\n"
_WANTED = re.compile(rb"_?((?:xnn|kai|cpuinfo)_\w+)\0")
# XNNPACK's names of operators, which its profiler prints.
_XNNPACK_TEXT = re.compile(rb"(?:Convolution|Deconvolution|Max Pooling) \(NHWC, ")
# KleidiAI's assertions name their source file, so kernels have names even where symbols do not.
_KLEIDIAI_FILE = re.compile(rb"/kai_([a-z]\w{3,200})\.c\0")
# What cpuinfo reads: on Linux and Android, and on Apple's systems.
_CPUINFO_TEXTS = (b"/sys/devices/system/cpu/kernel_max\0", b"hw.optional.armv8_2_fhm\0")
_MAC_QUESTION = b"hw.optional.arm.FEAT_SME2\0"
_CPUINFO_ANSWER = "cpuinfo_isa"
# mov w0 or x0, AT_HWCAP2, which goes to getauxval.
_HWCAP2_ASKED = (0x5280_0340, 0xD280_0340)
# How compilers test HWCAP2_SME2, which is bit 37: tbz and tbnz; ubfx; and and tst; a mask in a register.
_BIT_37_TESTS = (
    (0xFEF8_0000, 0xB628_0000), (0xFFFF_FC00, 0xD365_9400),
    (0x9FFF_FC00, 0x925B_0000 & 0x9FFF_FC00), (0xFFFF_FFE0, 0xD2C0_0400),
)  # fmt: skip
# Far above every kernel: streaming mode may also be left in a place that is not behind its start.
_LONGEST_KERNEL_WORDS = 1 << 14


@dataclass(frozen=True)
class Instructions:
    """SME instructions between an SMSTART and the SMSTOP behind it; other data may look alike."""

    smstart: int = 0
    fmopa: int = 0
    """All outer products of floating point."""
    smopa: int = 0
    """All outer products of integers."""
    luti: int = 0
    sme2_only: int = 0
    """Those that SME does not have: LUTI and the multi-vector ones."""


@dataclass(frozen=True)
class Library:
    """One library for one CPU."""

    name: str
    kind: str
    architecture: str
    platform: str
    xnnpack: bool
    kleidiai: bool
    cpuinfo: bool
    sme2_kernels: tuple[str, ...]
    sme_kernels: tuple[str, ...]
    instructions: Instructions
    asks_for_sme2: bool
    """Whether it has the code that asks the system for SME2."""
    uses_cpuinfo_of_another: bool
    alignment: int | None
    """Of the loaded parts of an ELF library."""

    @property
    def has_sme2(self) -> bool:
        """The code decides. A name alone may be a stub: some builds keep those."""
        return self.instructions.sme2_only > 0

    @property
    def is_of_interest(self) -> bool:
        return self.xnnpack or self.kleidiai or self.cpuinfo or self.instructions.smstart > 0


def is_library(start: bytes) -> bool:
    """Whether a file that begins so may hold code: ELF, Mach-O, or a static library."""
    return start[:4] == b"\x7fELF" or start in (_ARCHIVE, _THIN_ARCHIVE) or macho.is_macho(start)


def read_libraries(data: bytes, name: str) -> list[Library]:
    """One value for each CPU and system that the library is for; none where it holds no code."""
    groups: dict[tuple[str, str], list[Binary]] = {}
    for binary in _binaries(data, name):
        groups.setdefault((binary.architecture, binary.platform), []).append(binary)
    return [_library(name, binaries) for binaries in groups.values()]


def _binaries(data: bytes, name: str) -> Iterator[Binary]:
    for part in macho.slices(data, name):
        if part.startswith(_THIN_ARCHIVE):
            raise LibraryError(f"{name} is a thin archive: it only names files. Give those.")
        if part.startswith(_ARCHIVE):
            for member, content in _members(part, name):
                yield from _objects(content, f"{name}({member})")
        else:
            yield from _objects(part, name)


def _objects(data: bytes, where: str) -> Iterator[Binary]:
    if data.startswith(b"\x7fELF"):
        yield elf.read_binary(data, where, _WANTED)
    elif macho.is_macho(data[:8]) and len(macho.slices(data, where)) == 1:
        yield macho.read_binary(data, where, _WANTED)


def _members(data: bytes, name: str) -> Iterator[tuple[str, bytes]]:
    place = len(_ARCHIVE)
    while place < len(data):
        header = data[place : place + _MEMBER_BYTES]
        size = header[48:58].strip()
        start = place + _MEMBER_BYTES
        if header[58:] != b"`\n" or not size.isdigit() or start + int(size) > len(data):
            raise LibraryError(
                f"{name} is a truncated or damaged static library (at byte {place}). Build or fetch "
                "it again."
            )
        place = start + int(size)
        # BSD puts a long name before the content, and its length here.
        long = header[3:16].strip()
        if header.startswith(b"#1/") and long.isdigit():
            start += int(long)
        yield header[:16].decode("latin-1").strip(), data[start:place]
        place += place % 2


def _library(name: str, binaries: Sequence[Binary]) -> Library:
    defined: set[str] = set().union(*(binary.names.defined for binary in binaries))
    undefined: set[str] = set().union(*(binary.names.undefined for binary in binaries))
    files = {
        f"kai_run_{match[1].decode()}"
        for binary in binaries
        for match in _KLEIDIAI_FILE.finditer(binary.data)
    }
    kernels = {kernel_name(symbol) for symbol in defined if is_microkernel(symbol)} | files
    evidence = [_evidence(binary) for binary in binaries if binary.architecture in ARM64]
    first = binaries[0]
    return Library(
        name=name,
        kind=first.kind,
        architecture=first.architecture,
        platform=first.platform,
        xnnpack=_any_starts("xnn_", defined) or _any_has(_XNNPACK_TEXT, binaries),
        kleidiai=_any_starts("kai_", defined) or bool(files),
        cpuinfo=_any_starts("cpuinfo_", defined)
        or any(text in binary.data for binary in binaries for text in _CPUINFO_TEXTS),
        sme2_kernels=_of_family(KernelFamily.SME2, kernels),
        sme_kernels=_of_family(KernelFamily.SME, kernels),
        instructions=_instructions(words for words, *_ in evidence),
        asks_for_sme2=any(_MAC_QUESTION in binary.data for binary in binaries)
        or (any(asks for _, asks, _ in evidence) and any(tests for *_, tests in evidence)),
        uses_cpuinfo_of_another=_CPUINFO_ANSWER in undefined - defined,
        alignment=min((b.alignment for b in binaries if b.alignment is not None), default=None),
    )


def _any_starts(prefix: str, names: Iterable[str]) -> bool:
    return any(name.startswith(prefix) for name in names)


def _any_has(pattern: re.Pattern[bytes], binaries: Iterable[Binary]) -> bool:
    return any(pattern.search(binary.data) for binary in binaries)


def _of_family(family: KernelFamily, names: Iterable[str]) -> tuple[str, ...]:
    return tuple(sorted(name for name in names if family_of(name) is family))


def _evidence(binary: Binary) -> tuple[Counter[int], bool, bool]:
    """The words of streaming mode; whether HWCAP2 is asked for; whether its bit 37 is tested."""
    counts: Counter[int] = Counter()
    asks = tests = False
    may_ask = binary.kind == "ELF" and b"getauxval" in binary.data
    for offset, size in binary.code:
        words = np.frombuffer(binary.data, "<u4", size // 4, offset)
        counts.update(_streaming_words(words))
        if binary.kind == "ELF":
            asks = asks or (may_ask and bool(np.isin(words, _HWCAP2_ASKED).any()))
            tests = tests or any(bool((words & mask == is_).any()) for mask, is_ in _BIT_37_TESTS)
    return counts, asks, tests


def _streaming_words(words: np.ndarray) -> Counter[int]:
    starts = np.flatnonzero(np.isin(words, list(STREAMING_ENTRIES)))
    if not len(starts):
        return Counter()
    stops = np.flatnonzero(np.isin(words, list(STREAMING_EXITS)))
    counts: Counter[int] = Counter()
    done = 0
    for start in starts.tolist():
        index = int(np.searchsorted(stops, start))
        stop = int(stops[index]) if index < len(stops) else len(words)
        stop = min(stop, start + _LONGEST_KERNEL_WORDS)
        counts.update(words[max(start, done) : stop].tolist())
        done = max(done, stop)
    return counts


def _instructions(evidence: Iterable[Counter[int]]) -> Instructions:
    words: Counter[int] = sum(evidence, Counter())
    outer = {word: n for word, n in words.items() if counts_of(word, 64).outer_products}
    return Instructions(
        smstart=sum(words[word] for word in STREAMING_ENTRIES),
        # Bit 29 tells integers from floating point.
        fmopa=sum(number for word, number in outer.items() if not word >> 29 & 1),
        smopa=sum(number for word, number in outer.items() if word >> 29 & 1),
        luti=sum(number for word, number in words.items() if is_table_lookup(word)),
        sme2_only=sum(number for word, number in words.items() if is_sme2_only(word)),
    )
