"""What one inference executed: read from the file of the counter of blocks, see block_counter.c."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from pytest_sme2.errors import RunError
from pytest_sme2.results import Code, CountedInference, Segment, total_of
from pytest_sme2.results.evidence import numbers_of
from pytest_sme2.system.wording import count
from pytest_sme2.trace.instructions import counts_of, tells
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
_Row = NDArray[np.int64]


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


_Owner = tuple[str, str | int]
"""A file, and the name of a function in it or its address; a name may be empty."""


class _Reader:
    def __init__(self, code: CodeMap) -> None:
        self._code = code
        self._blocks: dict[str, tuple[_Owner, _Row, list[int]]] = {}
        """By number: whose code it is, what running it once adds, and what of it is work."""
        self._current: dict[_Owner, _Row] = {}
        self._segments: list[tuple[str, dict[_Owner, _Row], int]] = []
        self._seen: dict[_Owner, SeenCode] = defaultdict(SeenCode)
        self._holders: set[str] = set()
        self._tracing = False
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

    def finish(self) -> tuple[tuple[Segment, ...], Mapping[str, Code]]:
        """The segments, and the code of each name in them."""
        names = {owner: self._name(owner) for _, rows, _ in self._segments for owner in rows}
        seen: dict[str, SeenCode] = defaultdict(SeenCode)
        for owner, name in names.items():
            seen[name].add(self._seen[owner])
        segments = []
        for mark, rows, clock_ns in self._segments:
            merged: dict[str, _Row] = {}
            for owner, row in rows.items():
                name = names[owner]
                merged[name] = merged.get(name, 0) + row
            code = {name: tuple(map(int, row)) for name, row in sorted(merged.items())}
            segments.append(Segment(mark, code, clock_ns))
        return tuple(segments), {name: each.code for name, each in sorted(seen.items())}

    def _block(self, number: str, address: str, *words: str) -> None:
        values = [int(word, 16) for word in words]
        total = total_of(counts_of(value) for value in values)
        work = [each for each in values if tells(each)]
        owner = self._owner(int(address, 16))
        self._blocks[number] = owner, np.array(numbers_of(total), dtype=np.int64), work

    def _executed(self, number: str, times: str) -> None:
        if self._tracing:
            return
        owner, row, work = self._blocks[number]
        self._current[owner] = self._current.get(owner, 0) + row * int(times)
        if work:
            self._seen[owner].take(work, int(times))

    def _mark(self, values: str) -> None:
        mark, _, reading = values.partition(" ")
        if mark == CLOCK and self._tracing:
            return
        self._segments.append((mark, {} if mark == BEGIN else self._current, int(reading or 0)))
        self._current = {}
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
