"""Reads what ``block_counter.c`` wrote: executed blocks between marks, to counts by kernel.

What the marks mean for operators is decided in ``profile/cost.py``.
"""

from __future__ import annotations

import functools
from collections.abc import Iterable
from dataclasses import astuple
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from pytest_sme2.errors import RunError
from pytest_sme2.results import CountedInference, Segment, total_of
from pytest_sme2.system.wording import count
from pytest_sme2.trace.instructions import counts_of
from pytest_sme2.trace.kernel_log import CodeMap, is_microkernel, kernel_name

RESUME, CLOCK, BEGIN, DONE = "resume", "clock", "inference", "done"
# What the tracer marks before its own work; "resume" follows.
TRACER = frozenset({"start", "end", "delegated", "block", "allocation"})

_UNKNOWN = "unknown code"
_Row = NDArray[np.int64]


def read_counts(
    counts: Path, rest: Path, libraries: Iterable[Path], vector_bits: int
) -> CountedInference:
    """The one inference that was counted.

    Args:
        counts: the counter's file of blocks, counts and marks.
        rest: the other lines of the emulator's log.
        libraries: the files that code may stand in.
        vector_bits: the length of a streaming vector.
    """
    code = CodeMap.of(libraries)
    with rest.open("rb") as file:
        for line in file:
            # Instructions are most of it, and say nothing about where libraries are.
            if not line.startswith(b"0x"):
                code.take(line)
    reader = _Reader(code, vector_bits)
    try:
        with counts.open(encoding="ascii", errors="replace") as lines:
            for text in lines:
                reader.take(text)
    except (ValueError, LookupError) as error:
        raise RunError(f"The counts in {counts} cannot be read: {error}. Run it again.") from error
    return CountedInference(
        vector_bits, tuple(reader.segments), reader.problem or _problem(reader.segments)
    )


def _problem(segments: list[Segment]) -> str:
    marks = [segment.mark for segment in segments]
    if marks.count(BEGIN) != 1 or marks.count(DONE) != 1:
        return f"counted {count(marks.count(BEGIN), 'inference')}, not 1"
    return ""


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
        self._blocks[number] = owner, np.array(astuple(total), dtype=np.int64)

    def _executed(self, number: str, times: str) -> None:
        if self._tracing:
            return
        owner, row = self._blocks[number]
        known = self._current.get(owner)
        added = row * int(times)
        self._current[owner] = added if known is None else known + added

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
    return f"{library}+{place.function.address:#x}" if _holds_kernels(place.elf.path) else library


@functools.cache
def _holds_kernels(path: Path) -> bool:
    """Of the other libraries, a place inside says nothing to a reader."""
    return "xnnpack" in path.name
