"""What one library has of XNNPACK, KleidiAI, cpuinfo and SME2: bytes in, a value out.

Names tell most. A stripped library still has the texts of the three, and its instructions.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from pytest_sme2.errors import LibraryError
from pytest_sme2.results import KernelFamily
from pytest_sme2.system import elf, macho
from pytest_sme2.system.elf import Binary
from pytest_sme2.trace import instructions as decode
from pytest_sme2.trace.kernel_log import family_of, is_microkernel, kernel_name

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
    fmopa: int
    """All outer products of floating point."""
    smopa: int
    """All outer products of integers."""
    luti: int
    sme2_only: int
    """What SME does not have: LUTI and multi-vector instructions."""


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
    return start.startswith((b"\x7fELF", _ARCHIVE)) or macho.is_macho(start)


def read_libraries(data: bytes, name: str) -> list[Library]:
    """One for each CPU and system that the library is for; none where it holds no code."""
    groups: dict[tuple[str, str], list[Binary]] = {}
    for part in macho.slices(data, name):
        members = _members(part, name) if part.startswith(_ARCHIVE) else [(name, part)]
        for member, content in members:
            if content.startswith(b"\x7fELF"):
                binary = elf.read_binary(content, member, _WANTED)
            elif macho.is_macho(content[:8]):
                binary = macho.read_binary(content, member, _WANTED)
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
    outer = Counter({w: n for w, n in words.items() if decode.counts_of(w, 64).outer_products})
    return Instructions(
        smstart=sum(words[word] for word in decode.STREAMING_ENTRIES),
        # Bit 29 tells integers from floating point.
        fmopa=sum(number for word, number in outer.items() if not word >> 29 & 1),
        smopa=sum(number for word, number in outer.items() if word >> 29 & 1),
        luti=sum(number for word, number in words.items() if decode.is_table_lookup(word)),
        sme2_only=sum(number for word, number in words.items() if decode.is_sme2_only(word)),
    )
