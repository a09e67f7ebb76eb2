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
import numpy.typing as npt

from pytest_sme2.errors import RunError
from pytest_sme2.results.evidence import (
    Code,
    CountedInference,
    Counts,
    Kernel,
    KernelCensus,
    KernelFamily,
    Segment,
    numbers_of,
)
from pytest_sme2.results.run import Arm
from pytest_sme2.system.elf import ElfFile, Function, read_elf
from pytest_sme2.system.wording import count
from pytest_sme2.trace.instructions import STREAMING_ENTRIES, counts_of, is_streaming, told_by

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
    holds_kernels: bool
    """Whether the file has some by their names, or code that enters streaming mode."""


class CodeMap:
    """Filled line by line; memory grows with the libraries, not with the log.

    ``libraries`` are the files that code may stand in: the runner and the libraries beside it.
    """

    def __init__(self, libraries: Iterable[Path]) -> None:
        self._libraries = {path.name: path for path in libraries}
        self._open: dict[int, Path | None] = {}
        self._mappings: list[tuple[range, int, ElfFile, bool]] = []
        """Addresses, the offset in the file of the first of them, and whether it has kernels."""

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
        for addresses, offset, elf, holds in self._mappings:
            if address in addresses:
                own = elf.address_of(address - addresses.start + offset)
                return None if own is None else CodePlace(elf, own, elf.function_at(own), holds)
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
        elf, holds = _known_elf(path, state.st_mtime_ns, state.st_size)
        size, offset, start = map(_number, match.group(1, 4, 5))
        # The newest first: what is mapped over something else hides it.
        self._mappings.insert(0, (range(start, start + size), offset, elf, holds))


@functools.lru_cache(maxsize=64)
def _known_elf(path: Path, changed_ns: int, size: int) -> tuple[ElfFile, bool]:
    """The libraries are those of every run, and reading them takes longer than a small run."""
    elf = read_elf(path)
    words = np.fromfile(path, dtype="<u4")
    named = any(is_microkernel(plain_symbol(symbol.name)) for symbol in elf.symbols)
    return elf, named or bool(np.isin(words, list(STREAMING_ENTRIES)).any())


def _number(word: bytes) -> int:
    return int(word, 16 if word.startswith(b"0x") else 10)


_MICROKERNEL = re.compile(
    r"(?:kai_(?:run|kernel|matmul_pack)_|ynn::(?:dot|pack|transpose)_)\w+|xnn_\w*_ukernel\w*"
)
# Small functions beside a kernel that only tell its tile size.
_TILE_QUESTION = re.compile(r"_get_(?:mr|nr|kr|sr)$")
_FAMILIES = (
    (KernelFamily.SME2, re.compile(r"(?:_|^)(?:neon)?sme2(?:p\d)?(?:_|$)")),
    (KernelFamily.SME, re.compile(r"(?:_|^)(?:neon)?sme1?(?:_|$)")),
    (KernelFamily.NEON, re.compile(r"(?:_|^)neon")),
)
_MANGLED = re.compile(r"_ZN?K?(?=\d)")
_LENGTH = re.compile(r"\d{1,4}")


@functools.lru_cache(maxsize=1 << 14)
def plain_symbol(symbol: str) -> str:
    """A function's name in C++ without its parameters, as in ``ynn::dot_fp32_sme2``."""
    start = _MANGLED.match(symbol)
    parts, place = list[str](), start.end() if start else 0
    while start and (length := _LENGTH.match(symbol, place)):
        place = length.end() + int(length[0])
        parts.append(symbol[length.end() : place])
    return "::".join(parts) or symbol


def is_microkernel(name: str) -> bool:
    """Whether a symbol is a kernel of XNNPACK, KleidiAI or YNNPACK by its name. Where no
    instructions are seen, nothing else tells.
    """
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
_WORD = re.compile(rb"^0x[0-9a-f]{1,16}:  ([0-9a-f]{8})\b", re.MULTILINE)
_RAW_WORDS = re.compile(rb"^OBJD-T: ((?:[0-9a-f]{8})+)", re.MULTILINE)
# What may enter streaming mode, or work on ZA or on groups of vectors, at a glance.
_STREAMING = re.compile(rb":  (?:[8ace][01]|d503(?:43|47)7f)")
# Of Advanced SIMD, and of SVE.
_VECTOR_OPERAND = re.compile(rb"\bv\d+\.\d*[bhsd]\b|\bz\d+\.[bhsdq]\b")
_INSTRUCTION = re.compile(rb"^0x[0-9a-f]{1,16}:  [0-9a-f]{8}  (\S+) *(.*)$", re.MULTILINE)
# Ordinary code moves and widens with vector registers too; these alone make no kernel.
_ORDINARY = frozenset(
    b"mov movi mvni orr eor dup umov fmov cmeq cmhs bit bif bsl "
    b"ushll ushll2 sshll sshll2 uxtl uxtl2 sxtl sxtl2 shl addp xtn xtn2".split()
)
_LEAST_VECTOR_INSTRUCTIONS = 4
_LEAST_PRODUCTS = 4
# Hidden assembly kernels have no bounds at all; blocks this near to each other are one.
_SAME_KERNEL_BYTES = 1024


def census_from_qemu_log(log: Path, libraries: Iterable[Path], arm: Arm) -> KernelCensus:
    """The kernels whose code was translated, from ``qemu-aarch64 -d in_asm,strace -D log``.

    ``libraries`` are the files kernels may stand in: the runner and the libraries beside it. The
    log is read as a stream. A line that makes no sense is passed over, so that a log cut short
    gives the kernels that it does hold.
    """
    reader = _LogReader(CodeMap(libraries))
    for part in log_parts(log):
        reader.take(part)
    return KernelCensus(
        arm=arm,
        source="emulator",
        kernels=_in_order(reader.kernels()),
        blocks=reader.blocks,
        streaming=reader.streaming,
    )


def log_parts(log: Path) -> Iterator[bytes]:
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


def _words(part: bytes) -> list[int]:
    """The instructions of a block; without a disassembler the emulator shows its bytes."""
    found = [int(word, 16) for word in _WORD.findall(part)]
    raw = bytes.fromhex(b"".join(_RAW_WORDS.findall(part)).decode())
    return found or [int.from_bytes(raw[at : at + 4], "little") for at in range(0, len(raw), 4)]


@dataclass
class SeenCode:
    """What is known of a function from the instructions of its blocks."""

    blocks: int = 0
    vector: int = 0
    """Instructions on vectors, without those that ordinary code has."""
    streaming: bool = False
    sme2: bool = False
    """Whether some of them are SME2's alone."""
    work: Counter[str] = field(default_factory=Counter)

    def take(self, words: Iterable[int], times: int = 1) -> None:
        for streaming, sme2, work in map(told_by, words):
            self.streaming |= streaming
            self.sme2 |= sme2
            if work:
                self.work[work] += times

    def add(self, other: SeenCode) -> None:
        self.blocks += other.blocks
        self.vector += other.vector
        self.streaming |= other.streaming
        self.sme2 |= other.sme2
        self.work.update(other.work)

    @property
    def code(self) -> Code:
        family = KernelFamily.NEON if self.work or self.vector else KernelFamily.OTHER
        if self.streaming:
            family = KernelFamily.SME2 if self.sme2 else KernelFamily.SME
        return Code(family, tuple(name for name, _ in self.work.most_common()))

    def is_kernel(self, holds_kernels: bool) -> bool:
        """Whether a function is one, whatever its name; ``holds_kernels``: its file has others."""
        return self.streaming or (holds_kernels and self.work.total() >= _LEAST_PRODUCTS)


_Place = tuple[str, int]
"""A library, and an address in it."""


@dataclass
class _LogReader:
    """The state of one pass over a log; memory grows with the code seen, not with the log."""

    code: CodeMap
    blocks: int = 0
    streaming: int = 0
    _named: dict[tuple[str, bool], SeenCode] = field(default_factory=lambda: defaultdict(SeenCode))
    """By kernel, and whether its file has kernels."""
    _bounded: dict[_Place, SeenCode] = field(default_factory=lambda: defaultdict(SeenCode))
    _unbounded: dict[_Place, SeenCode] = field(default_factory=lambda: defaultdict(SeenCode))

    def take(self, part: bytes) -> None:
        if part.startswith(b"IN:") and (address := _ADDRESS.search(part)):
            symbol = part[3 : part.index(b"\n")].strip().decode("ascii", "replace")
            self._block(int(address[1], 16), symbol, part)
        self.code.take(part)

    def kernels(self) -> Iterator[Kernel]:
        for (name, holds_kernels), seen in self._named.items():
            if is_microkernel(name) or seen.is_kernel(holds_kernels):
                yield Kernel(name, seen.code.family, seen.blocks)
        places = self._bounded
        for place, seen in _clustered(self._unbounded):
            places[place].add(seen)
        for (library, address), seen in places.items():
            if seen.streaming or seen.vector >= _LEAST_VECTOR_INSTRUCTIONS:
                name = f"{library}+{address:#x}"
                yield Kernel(name, seen.code.family, seen.blocks, named=False)

    def _block(self, address: int, symbol: str, part: bytes) -> None:
        self.blocks += 1
        words = _words(part) if _STREAMING.search(part) or b"OBJD-T" in part else []
        streaming = any(map(is_streaming, words))
        self.streaming += streaming
        place = self.code.place(address)
        # The emulator knows the symbols of the program it was started with, nothing else.
        name = symbol if place is None else place.function.name if place.function else ""
        known = place is None or place.holds_kernels
        if not (known or streaming):
            return
        if place is None or name:
            if not name:
                return
            seen = self._named[kernel_name(plain_symbol(name)), known]
        else:
            places = self._unbounded if place.function is None else self._bounded
            start = place.address if place.function is None else place.function.address
            seen = places[place.elf.path.name, start]
        seen.blocks += 1
        seen.take(words or _words(part))
        for mnemonic, operands in _INSTRUCTION.findall(part):
            seen.vector += mnemonic not in _ORDINARY and bool(_VECTOR_OPERAND.search(operands))


def _clustered(places: Mapping[_Place, SeenCode]) -> Iterator[tuple[_Place, SeenCode]]:
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


# What one inference executed: the file of the counter of blocks, see block_counter.c.
RESUME, CLOCK, BEGIN, DONE = "resume", "clock", "inference", "done"
# What the tracer marks before its own work; "resume" follows.
TRACER = frozenset({"start", "end", "delegated", "block", "allocation"})

_UNKNOWN = "unknown code"
_NOTHING = numbers_of(Counts())


def read_counts(
    counts: Path, rest: Path, libraries: Iterable[Path], vector_bits: int, inferences: int = 1
) -> CountedInference:
    """What was counted: one inference, or as many as were asked for.

    ``counts`` is the counter's file of blocks, counts and marks, ``rest`` the other lines of the
    emulator's log. ``libraries`` are the files that code may stand in.
    """
    code = CodeMap(libraries)
    for part in log_parts(rest):
        code.take(part)
    reader = _CountReader(code)
    try:
        with counts.open(encoding="ascii", errors="replace") as lines:
            for text in lines:
                reader.take(text)
    except (ValueError, LookupError) as error:
        raise RunError(f"The counts in {counts} cannot be read: {error}. Run it again.") from error
    segments, kernels = reader.finish()
    marks = [segment.mark for segment in segments]
    problem = reader.problem
    if not problem and not marks.count(BEGIN) == marks.count(DONE) == inferences:
        problem = f"counted {count(marks.count(BEGIN), 'inference')}, not {inferences}"
    return CountedInference(vector_bits, segments, problem, kernels)


Numbers = npt.NDArray[np.int64]
_Owner = tuple[str, str | int]
"""A file, and the name of a function in it or its address; a name may be empty."""


class _CountReader:
    def __init__(self, code: CodeMap) -> None:
        self._code = code
        self._rows: dict[str, int] = {}
        """By a block's number: its row in the three lists."""
        self._owners: list[_Owner] = []
        self._begins: list[int] = [0]
        """Where each row's instructions begin among all, and where the last one's end."""
        self._words: list[int] = []
        self._ran: list[int] = []
        self._times: list[int] = []
        self._segments: list[tuple[str, list[int], list[int], int]] = []
        self._seen: dict[_Owner, SeenCode] = defaultdict(SeenCode)
        self._holders: set[str] = set()
        self._tracing = False
        self.problem = ""

    def take(self, line: str) -> None:
        kind, *values = line.split()
        if kind == "e":
            number, times = values
            if not self._tracing:
                self._ran.append(self._rows[number])
                self._times.append(int(times))
        elif kind == "b":
            self._block(*values)
        elif kind == "m":
            self._mark(*values)
        elif kind == "x":
            self.problem = self.problem or line[1:].strip()
        else:
            raise ValueError(f"{line[:80]!r} is not a line of counts")

    def finish(self) -> tuple[tuple[Segment, ...], Mapping[str, Code]]:
        """The segments, and the code of each name in them."""
        kinds, kind_of = np.unique(np.array(self._words, dtype=np.int64), return_inverse=True)
        named = {owner: self._name(owner) for owner in self._look_at(kinds, kind_of)}
        names = sorted({*named.values()})
        seen = {name: SeenCode() for name in names}
        for owner, name in named.items():
            seen[name].add(self._seen[owner])
        segments = tuple(self._summed(names, named, self._counts(kinds, kind_of)))
        return segments, {name: each.code for name, each in seen.items()}

    def _look_at(self, kinds: Numbers, kind_of: Numbers) -> set[_Owner]:
        """Whose blocks were executed, and what their instructions say of them."""
        whole = np.zeros(len(self._owners), dtype=np.int64)
        for _, ran, times, _ in self._segments:
            np.add.at(whole, np.array(ran, dtype=np.int64), times)
        tells = np.array([any(told_by(word)) for word in kinds.tolist()], dtype=bool)[kind_of]
        telling = np.flatnonzero(tells)
        rows = np.searchsorted(self._begins, telling, side="right") - 1
        for row, word in zip(rows.tolist(), kinds[kind_of[telling]].tolist(), strict=True):
            if executed := int(whole[row]):
                self._seen[self._owners[row]].take((word,), executed)
        return {self._owners[row] for row in np.flatnonzero(whole).tolist()}

    def _counts(self, kinds: Numbers, kind_of: Numbers) -> Numbers:
        """What executing each row once adds."""
        of_kinds = [_NOTHING, *(numbers_of(counts_of(word)) for word in kinds.tolist())]
        before = np.cumsum(np.array(of_kinds)[np.append(0, kind_of + 1)], axis=0)
        return np.diff(before[self._begins], axis=0)

    def _summed(
        self, names: list[str], named: Mapping[_Owner, str], counts: Numbers
    ) -> Iterator[Segment]:
        """All blocks of a segment at once: there are a hundred thousand of them."""
        places = {name: place for place, name in enumerate(names)}
        place_of = np.array([places.get(named.get(owner, ""), -1) for owner in self._owners])
        for mark, ran, times, clock_ns in self._segments:
            found = np.zeros((len(names), len(_NOTHING)), dtype=np.int64)
            if ran:
                executed = np.array(times, dtype=np.int64)[:, np.newaxis]
                np.add.at(found, place_of[ran], counts[ran] * executed)
            rows = np.unique(place_of[ran]).tolist() if ran else []
            yield Segment(mark, {names[at]: tuple(found[at].tolist()) for at in rows}, clock_ns)

    def _block(self, number: str, address: str, *words: str) -> None:
        self._rows[number] = len(self._owners)
        self._owners.append(self._owner(int(address, 16)))
        self._words.extend([int(word, 16) for word in words])
        self._begins.append(len(self._words))

    def _mark(self, mark: str, reading: str = "0") -> None:
        if mark == CLOCK and self._tracing:
            return
        before = ([], []) if mark == BEGIN else (self._ran, self._times)
        self._segments.append((mark, *before, int(reading)))
        self._ran, self._times = [], []
        self._tracing = mark in TRACER

    def _owner(self, address: int) -> _Owner:
        place = self._code.place(address)
        if place is None:
            return _UNKNOWN, ""
        file, function = place.elf.path.name, place.function
        if place.holds_kernels:
            self._holders.add(file)
        if function is None:
            return file, ""
        return file, kernel_name(plain_symbol(function.name)) if function.name else function.address

    def _name(self, owner: _Owner) -> str:
        """The kernel, whatever it is called; the library where it is not a kernel's."""
        file, function = owner
        if isinstance(function, int):
            # Of the other libraries, a place inside says nothing to a reader.
            shown = file in self._holders or self._seen[owner].streaming
            return f"{file}+{function:#x}" if shown else file
        kernel = is_microkernel(function) or self._seen[owner].is_kernel(file in self._holders)
        return function if function and kernel else file
