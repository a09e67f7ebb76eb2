"""What one inference executed: read from the file of the counter of blocks, see block_counter.c."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path

import numpy as np
import numpy.typing as npt

from pytest_sme2.errors import RunError
from pytest_sme2.results import Code, CountedInference, Counts, Segment
from pytest_sme2.results.evidence import numbers_of
from pytest_sme2.system.wording import count
from pytest_sme2.trace.instructions import counts_of, told_by
from pytest_sme2.trace.kernel_log import (
    CodeMap,
    SeenCode,
    is_microkernel,
    kernel_name,
    log_parts,
    plain_symbol,
)

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
    reader = _Reader(code)
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


class _Reader:
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
