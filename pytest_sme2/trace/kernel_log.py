"""Which kernels ran, and what they executed: read from the emulator's logs or from XNNPACK's.

The emulator logs every block of code it translates, which it does when the block is first about
to run. With the places the libraries were mapped to and their symbols, the blocks become kernel
names. XNNPACK's own log names the kernels it made ready (candidates) and the operators that ran;
the two are kept apart, because a candidate need not have run.
"""

from __future__ import annotations

import functools
import os
import re
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from pytest_sme2.errors import RunError
from pytest_sme2.results import (
    Arm,
    CountedInference,
    Kernel,
    KernelCensus,
    KernelFamily,
    Segment,
    total_of,
)
from pytest_sme2.results.evidence import numbers_of
from pytest_sme2.system.elf import ElfFile, Function, read_elf
from pytest_sme2.system.wording import count
from pytest_sme2.trace.instructions import counts_of

_LONGEST_LINE = 16384
_OPENED = re.compile(rb'([^/"]+)",O_[^)]*\) = (\d{1,9})\s*$')
_NUMBER = rb"(0x[0-9a-f]{1,16}|\d{1,19})"
_MAPPED = re.compile(
    rb"mmap2?\([^,]*," + _NUMBER + rb",([^,]*),[^,]*,(\d{1,9})," + _NUMBER + rb"\) = " + _NUMBER
)


@dataclass(frozen=True)
class CodePlace:
    """Where in which file an address stands."""

    elf: ElfFile
    address: int
    """The file's own."""
    function: Function | None


class CodeMap:
    """Filled line by line; memory grows with the libraries, not with the log.

    ``libraries`` are the files that code may stand in: the runner and the libraries beside it.
    """

    def __init__(self, libraries: Iterable[Path]) -> None:
        self._libraries = {path.name: path for path in libraries}
        self._open: dict[int, Path | None] = {}
        self._mappings: list[tuple[range, int, ElfFile]] = []
        """Addresses, and the offset in the file of the first of them."""

    def take(self, part: bytes) -> None:
        """Lines of the log, of any kind."""
        # Most have nothing to say about where libraries are.
        if b"mmap" in part or b'",O_' in part:
            for line in part.split(b"\n"):
                if len(line) > _LONGEST_LINE:
                    continue
                if b"mmap" in line:
                    self._mapped(line)
                elif b'",O_' in line:
                    self._opened(line)

    def place(self, address: int) -> CodePlace | None:
        """None where no known file was mapped."""
        for addresses, offset, elf in self._mappings:
            if address in addresses:
                own = elf.address_of(address - addresses.start + offset)
                return None if own is None else CodePlace(elf, own, elf.function_at(own))
        return None

    def _opened(self, line: bytes) -> None:
        if match := _OPENED.search(line):
            self._open[int(match[2])] = self._libraries.get(os.fsdecode(match[1]))

    def _mapped(self, line: bytes) -> None:
        match = _MAPPED.search(line)
        path = self._open.get(int(match[3])) if match and b"PROT_EXEC" in match[2] else None
        if match is None or path is None:
            return
        state = path.stat()
        elf = _known_elf(path, state.st_mtime_ns, state.st_size)
        size, offset, start = map(_number, match.group(1, 4, 5))
        # The newest first: what is mapped over something else hides it.
        self._mappings.insert(0, (range(start, start + size), offset, elf))


@functools.lru_cache(maxsize=64)
def _known_elf(path: Path, changed_ns: int, size: int) -> ElfFile:
    """The libraries are those of every run, and reading them takes longer than a small run."""
    return read_elf(path)


def _number(word: bytes) -> int:
    return int(word, 16 if word.startswith(b"0x") else 10)


_MICROKERNEL = re.compile(r"kai_(?:run|kernel)_\w+|xnn_\w*_ukernel\w*")
# Small functions beside a kernel that only tell its tile size.
_TILE_QUESTION = re.compile(r"_get_(?:mr|nr|kr|sr)$")
_FAMILIES = (
    (KernelFamily.SME2, re.compile(r"(?:_|^)(?:neon)?sme2(?:_|$)")),
    (KernelFamily.SME, re.compile(r"(?:_|^)(?:neon)?sme(?:_|$)")),
    (KernelFamily.NEON, re.compile(r"(?:_|^)neon")),
)


def is_microkernel(name: str) -> bool:
    """Whether a symbol is a kernel of XNNPACK or KleidiAI, not one of their other functions."""
    return bool(_MICROKERNEL.fullmatch(name)) and not _TILE_QUESTION.search(name)


def kernel_name(symbol: str) -> str:
    """One name per kernel: KleidiAI's kai_kernel_x is the body that kai_run_x calls."""
    return re.sub("^kai_kernel_", "kai_run_", symbol)


def family_of(name: str) -> KernelFamily:
    """The instructions a kernel is made of, as its name says."""
    found = (family for family, pattern in _FAMILIES if pattern.search(name))
    return next(found, KernelFamily.OTHER)


_PIECE_BYTES = 1 << 17
_ADDRESS = re.compile(rb"^0x([0-9a-f]{1,16}):", re.MULTILINE)
_INSTRUCTION = re.compile(rb"^0x[0-9a-f]{1,16}:  [0-9a-f]{8}  (\S+) *(.*)$", re.MULTILINE)
# Of Advanced SIMD, and of SVE.
_VECTOR_OPERAND = re.compile(rb"\bv\d+\.\d*[bhsd]\b|\bz\d+\.[bhsdq]\b")
_SME_INSTRUCTION = re.compile(rb"\bza(?:\d|\b|t)|^(?:smstart|smstop)")
# Ordinary code moves and widens with vector registers too; these alone make no kernel.
_ORDINARY = frozenset(
    b"mov movi mvni orr eor dup umov fmov cmeq cmhs bit bif bsl "
    b"ushll ushll2 sshll sshll2 uxtl uxtl2 sxtl sxtl2 shl addp xtn xtn2".split()
)
_LEAST_VECTOR_INSTRUCTIONS = 4
# Hidden assembly kernels have no bounds at all; blocks this near to each other are one.
_SAME_KERNEL_BYTES = 1024


def census_from_qemu_log(log: Path, libraries: Iterable[Path], arm: Arm) -> KernelCensus:
    """The kernels whose code was translated, from ``qemu-aarch64 -d in_asm,strace -D log``.

    ``libraries`` are the files kernels may stand in: the runner and the libraries beside it. The
    log is read as a stream. A line that makes no sense is passed over, so that a log cut short
    gives the kernels that it does hold.
    """
    reader = _LogReader(CodeMap(libraries))
    for part in _parts(log):
        reader.take(part)
    return KernelCensus(
        arm=arm,
        source="emulator",
        kernels=_in_order(reader.kernels()),
        blocks=reader.blocks,
    )


def _parts(log: Path) -> Iterator[bytes]:
    """The lines of a log in pieces, each from the beginning of a block on."""
    held = b""
    with log.open("rb") as file:
        while read := file.read(_PIECE_BYTES):
            first, *others = (held + read).split(b"\nIN:")
            *whole, held = (first, *(b"IN:" + other for other in others))
            yield from whole
            if len(held) > _PIECE_BYTES:
                # Many lines of something else; or a single one, which says nothing.
                lines, _, held = held.rpartition(b"\n")
                yield lines
                held = held[:_PIECE_BYTES]
    yield held


_Place = tuple[str, int]
"""A library, and an address in it."""
_Seen = Counter[str]
"""Of code that no symbol covers: ``blocks``, and ``vector`` and ``sme`` instructions."""


def _family_by_code(seen: _Seen) -> KernelFamily | None:
    """None where it does not look like a kernel."""
    if seen["sme"]:
        return KernelFamily.SME
    return KernelFamily.NEON if seen["vector"] >= _LEAST_VECTOR_INSTRUCTIONS else None


@dataclass
class _LogReader:
    """The state of one pass over a log; memory grows with the code seen, not with the log."""

    code: CodeMap
    blocks: int = 0
    _has_kernels: dict[Path, bool] = field(default_factory=dict)
    _named: Counter[str] = field(default_factory=Counter)
    _bounded: dict[_Place, _Seen] = field(default_factory=lambda: defaultdict(Counter))
    _unbounded: dict[_Place, _Seen] = field(default_factory=lambda: defaultdict(Counter))

    def take(self, part: bytes) -> None:
        if part.startswith(b"IN:") and (address := _ADDRESS.search(part)):
            self.blocks += 1
            symbol = part[3 : part.index(b"\n")].strip().decode("ascii", "replace")
            seen = self._block(int(address[1], 16), symbol)
            if seen is not None:
                for mnemonic, operands in _INSTRUCTION.findall(part):
                    self._look_at(seen, mnemonic, operands)
        self.code.take(part)

    def kernels(self) -> Iterator[Kernel]:
        for name, times in self._named.items():
            yield Kernel(name, family_of(name), times)
        places = self._bounded
        for place, seen in _clustered(self._unbounded):
            places[place].update(seen)
        for (library, address), seen in places.items():
            family = _family_by_code(seen)
            if family is not None:
                yield Kernel(f"{library}+{address:#x}", family, seen["blocks"], named=False)

    def _block(self, address: int, symbol: str) -> _Seen | None:
        """Count a block; what is returned wants to see the block's instructions."""
        place = self.code.place(address)
        if place is None:
            # The emulator knows the symbols of the program it was started with, nothing else.
            self._count(symbol)
            return None
        function = place.function
        if function is not None and function.name:
            self._count(function.name)
            return None
        if not self._may_hold_kernels(place.elf):
            return None
        places = self._unbounded if function is None else self._bounded
        start = place.address if function is None else function.address
        seen = places[place.elf.path.name, start]
        seen["blocks"] += 1
        return seen

    def _may_hold_kernels(self, elf: ElfFile) -> bool:
        if elf.path not in self._has_kernels:
            found = any(is_microkernel(symbol.name) for symbol in elf.symbols)
            self._has_kernels[elf.path] = found
        return self._has_kernels[elf.path]

    def _count(self, symbol: str) -> None:
        if is_microkernel(symbol):
            self._named[kernel_name(symbol)] += 1

    @staticmethod
    def _look_at(seen: _Seen, mnemonic: bytes, operands: bytes) -> None:
        if _SME_INSTRUCTION.search(operands) or _SME_INSTRUCTION.search(mnemonic):
            seen["sme"] += 1
        elif mnemonic not in _ORDINARY and _VECTOR_OPERAND.search(operands):
            seen["vector"] += 1


def _clustered(places: Mapping[_Place, _Seen]) -> Iterator[tuple[_Place, _Seen]]:
    """Blocks without bounds, each under the address of the first block near to it."""
    first = last = ("", 0)
    for place in sorted(places):
        if place[0] != last[0] or place[1] - last[1] > _SAME_KERNEL_BYTES:
            first = place
        last = place
        yield first, places[place]


_CANDIDATE = re.compile(r"\(XNNPACK\): Using \S+(?: \S+){0,4} microkernel '([\w.]{1,200})'")
_RAN = re.compile(r"\(XNNPACK\): running operator \d+:\d+ \((.{1,200})\)\s*$")
_PACKED_FOR_SME = re.compile(r"\b(PF32|PF16|PQS8)\b")


def census_from_xnnpack_log(lines: Iterable[str], arm: Arm) -> KernelCensus:
    """The operators that ran and the candidate kernels, from an ``xnnlog`` runner's output.

    An operator packed for SME counts as SME2 where XNNPACK had an SME2 kernel ready for its type,
    as SME otherwise: the operator's name alone does not tell the two apart.
    """
    candidates: Counter[str] = Counter()
    operators: Counter[str] = Counter()
    for line in lines:
        if candidate := _CANDIDATE.search(line):
            candidates[candidate[1]] += 1
        elif ran := _RAN.search(line):
            operators[ran[1]] += 1
    return KernelCensus(
        arm=arm,
        source="xnnpack-log",
        kernels=(),
        operators=_in_order(
            Kernel(name, _operator_family(name, candidates), count)
            for name, count in operators.items()
        ),
        candidates=_in_order(
            Kernel(name, family_of(name), count) for name, count in candidates.items()
        ),
    )


def _operator_family(operator: str, candidates: Iterable[str]) -> KernelFamily:
    packed = _PACKED_FOR_SME.search(operator)
    if packed is None:
        return KernelFamily.OTHER
    prefix = f"xnn_{packed[1].lower()}_"
    ready = {family_of(name) for name in candidates if name.startswith(prefix)}
    return KernelFamily.SME2 if KernelFamily.SME2 in ready else KernelFamily.SME


def _in_order(kernels: Iterable[Kernel]) -> tuple[Kernel, ...]:
    rank = {family: index for index, family in enumerate(KernelFamily)}

    def place(kernel: Kernel) -> tuple[int, bool, int, str]:
        return rank[kernel.family], not kernel.named, -kernel.count, kernel.name

    return tuple(sorted(kernels, key=place))


RESUME, CLOCK, BEGIN, DONE = "resume", "clock", "inference", "done"
# What the tracer marks before its own work; "resume" follows.
TRACER = frozenset({"start", "end", "delegated", "block", "allocation"})

_UNKNOWN = "unknown code"
_Row = NDArray[np.int64]


def read_counts(
    counts: Path, rest: Path, libraries: Iterable[Path], vector_bits: int, inferences: int = 1
) -> CountedInference:
    """What was counted: one inference, or as many as were asked for.

    ``counts`` is the counter's file of blocks, counts and marks, ``rest`` the other lines of the
    emulator's log. ``libraries`` are the files that code may stand in.
    """
    code = CodeMap(libraries)
    for part in _parts(rest):
        code.take(part)
    reader = _Reader(code, vector_bits)
    try:
        with counts.open(encoding="ascii", errors="replace") as lines:
            for text in lines:
                reader.take(text)
    except (ValueError, LookupError) as error:
        raise RunError(f"The counts in {counts} cannot be read: {error}. Run it again.") from error
    marks = [segment.mark for segment in reader.segments]
    problem = reader.problem
    if not problem and not marks.count(BEGIN) == marks.count(DONE) == inferences:
        problem = f"counted {count(marks.count(BEGIN), 'inference')}, not {inferences}"
    return CountedInference(vector_bits, tuple(reader.segments), problem)


class _Reader:
    def __init__(self, code: CodeMap, vector_bits: int) -> None:
        self._code = code
        self._vector_bytes = vector_bits // 8
        self._blocks: dict[str, tuple[str, _Row]] = {}
        """By number: whose code it is, and what running it once adds."""
        self._current: dict[str, _Row] = {}
        self._tracing = False
        self.segments: list[Segment] = []
        self.problem = ""

    def take(self, line: str) -> None:
        kind, _, values = line.rstrip("\n").partition(" ")
        if kind == "e":
            self._executed(*values.split())
        elif kind == "b":
            self._block(*values.split())
        elif kind == "m":
            self._mark(values)
        elif kind == "x":
            self.problem = self.problem or values
        else:
            raise ValueError(f"{line[:80]!r} is not a line of counts")

    def _block(self, number: str, address: str, *words: str) -> None:
        total = total_of(counts_of(int(word, 16), self._vector_bytes) for word in words)
        owner = _owner(self._code, int(address, 16))
        self._blocks[number] = owner, np.array(numbers_of(total), dtype=np.int64)

    def _executed(self, number: str, times: str) -> None:
        if self._tracing:
            return
        owner, row = self._blocks[number]
        self._current[owner] = self._current.get(owner, 0) + row * int(times)

    def _mark(self, values: str) -> None:
        mark, _, reading = values.partition(" ")
        if mark == CLOCK and self._tracing:
            return
        code = {name: tuple(map(int, row)) for name, row in sorted(self._current.items())}
        self.segments.append(Segment(mark, {} if mark == BEGIN else code, int(reading or 0)))
        self._current = {}
        self._tracing = mark in TRACER


def _owner(code: CodeMap, address: int) -> str:
    """The kernel an address belongs to; the library where it is not a kernel's."""
    place = code.place(address)
    if place is None:
        return _UNKNOWN
    library = place.elf.path.name
    if place.function is None:
        return library
    name = place.function.name
    if name:
        return kernel_name(name) if is_microkernel(name) else library
    # Of the other libraries, a place inside says nothing to a reader.
    return f"{library}+{place.function.address:#x}" if "xnnpack" in library else library
