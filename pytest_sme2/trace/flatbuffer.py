"""Reads flatbuffer tables many at a time, with NumPy and within bounds. Knows no schema.

Every position is a file offset in an int64 array, one element a table, and every read of a field
is one gather over all of them. Whatever a position was computed from, it is checked before it is
used, so a damaged file ends in an EtdumpError that names the offset.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
from numpy.typing import NDArray

from pytest_sme2.errors import EtdumpError, Sme2Error

Positions = NDArray[np.int64]


class Tables:
    """The same kind of table at many positions: where each keeps its fields.

    A table's layout (its vtable) is shared by all that leave out the same fields, so a file has a
    handful of them: they are looked at once each.
    """

    def __init__(self, buffer: Buffer, at: Positions, what: str) -> None:
        self.at = at
        self._buffer = buffer
        self._what = what
        buffer.require(at, 4, 4, what)
        position = at - buffer.int32(at)
        self._layouts, self._layout = np.unique(position, return_inverse=True)
        layouts = self._layouts
        del position
        self._require_layouts(2, 4)
        self._layout_sizes = buffer.half(layouts)
        self._sizes = buffer.half(layouts + 2)
        self._require_layouts(2, self._layout_sizes)
        self._refuse((self._layout_sizes < 4) | (self._sizes < 4), "has no room for itself")
        buffer.require(at, self._sizes[self._layout], 4, what)

    def field(self, slot: int, size: int) -> Positions:
        """Where each table holds field ``slot`` of ``size`` bytes; 0 where it leaves it out."""
        entry = 4 + 2 * slot
        present = self._layout_sizes >= entry + 2
        # A layout without the entry is read at its start instead: in bounds, and masked.
        offsets = self._buffer.half(self._layouts + np.where(present, entry, 0))
        offsets[~present] = 0
        kept = offsets != 0
        self._refuse(kept & ((offsets < 4) | (offsets + size > self._sizes)), "has a field outside")
        self._refuse(kept & ((offsets & (min(size, 4) - 1)) != 0), "has a field out of line")
        at = self.at + offsets[self._layout]
        if not kept.all():
            at[~kept[self._layout]] = 0
        return at

    def _require_layouts(self, alignment: int, size: int | NDArray[np.int32]) -> None:
        outside = (self._layouts < 0) | (self._layouts > self._buffer.size - size)
        self._refuse(outside, f"has a layout past the file's {self._buffer.size} bytes")
        self._refuse((self._layouts & (alignment - 1)) != 0, "has a layout that is not aligned")

    def _refuse(self, wrong: NDArray[np.bool_], problem: str) -> None:
        """Fail where a layout is wrong, naming the first table that has it."""
        if wrong.any():
            row = int((self._layout == wrong.argmax()).argmax())
            raise self._buffer.error(f"{self._what} {problem}", int(self.at[row]))

    def uint8(self, slot: int) -> NDArray[np.uint8]:
        """A byte of each table; 0 where it leaves it out."""
        at = self.field(slot, 1)
        value = self._buffer.byte(at)
        value[at == 0] = 0
        return value

    def int32(self, slot: int, default: int) -> NDArray[np.int32]:
        at = self.field(slot, 4)
        # Position 0 is the file's first word: readable, and replaced.
        value = self._buffer.int32(at)
        value[at == 0] = default
        return value

    def uint64(self, slot: int) -> NDArray[np.uint64]:
        at = self.field(slot, 8)
        value = self._buffer.word(at + 4)
        value <<= 32
        value |= self._buffer.word(at)
        value[at == 0] = 0
        return value.view(np.uint64)

    def reference(self, slot: int) -> Positions:
        """Where each table's field ``slot`` points to; 0 where it leaves it out."""
        at = self.field(slot, 4)
        target = at + self._buffer.word(at)
        target[at == 0] = 0
        return target


class Buffer:
    """The bytes of one flatbuffer."""

    failure: type[Sme2Error] = EtdumpError
    remedy = "The ETDump is damaged or incomplete: fetch it again, or run the model again."

    def __init__(self, data: NDArray[np.uint8], source: str) -> None:
        self.size = data.size
        self.source = source
        self._bytes = data
        self._halves = data[: data.size & ~1].view(np.dtype(np.uint16).newbyteorder("<"))
        self._words = data[: data.size & ~3].view(np.dtype(np.uint32).newbyteorder("<"))
        self._signed = data[: data.size & ~3].view(np.dtype(np.int32).newbyteorder("<"))

    def error(self, problem: str, at: int | None = None) -> Sme2Error:
        where = "" if at is None else f" at offset {at}"
        return self.failure(f"{self.source}: {problem}{where}. {self.remedy}")

    def refuse(self, wrong: NDArray[np.bool_], at: Positions, problem: str) -> None:
        """Fail where ``wrong`` holds, naming the first of its positions."""
        if wrong.any():
            raise self.error(problem, int(at[wrong.argmax()]))

    def require(
        self,
        at: Positions,
        size: int | NDArray[np.int32] | NDArray[np.int64],
        alignment: int,
        what: str,
    ) -> None:
        """Fail unless ``size`` bytes from each position lie in the file, aligned."""
        outside = (at < 0) | (at > self.size - size)
        self.refuse(outside, at, f"{what} reaches past the file's {self.size} bytes")
        self.refuse((at & (alignment - 1)) != 0, at, f"{what} is not aligned")

    def byte(self, at: Positions) -> NDArray[np.uint8]:
        value: NDArray[np.uint8] = self._bytes[at]
        return value

    def half(self, at: Positions) -> NDArray[np.int32]:
        halves: NDArray[np.uint16] = self._halves[at >> 1]
        return halves.astype(np.int32)

    def word(self, at: Positions) -> NDArray[np.int64]:
        words: NDArray[np.uint32] = self._words[at >> 2]
        return words.astype(np.int64)

    def int32(self, at: Positions) -> NDArray[np.int32]:
        words: NDArray[np.int32] = self._signed[at >> 2]
        return words.astype(np.int32, copy=False)

    def vector(self, at: Positions, what: str) -> tuple[Positions, Positions]:
        """The first element's position and the length of each vector of tables; 0, 0 for none."""
        self.require(at, 4, 4, what)
        length = self.word(at)
        length[at == 0] = 0
        self.require(at, 4 + 4 * length, 4, what)
        return at + 4, length

    def elements(self, first: Positions, length: Positions) -> Positions:
        """The tables that the vectors hold, one vector after another.

        The caller bounds the total: vectors may lie on top of each other.
        """
        slot = self.slots(first, length)
        slot += self.word(slot)
        return slot

    @staticmethod
    def slots(first: Positions, length: Positions) -> Positions:
        """Where the 32-bit elements of vectors stand, one vector after another."""
        slot = np.arange(int(length.sum()), dtype=np.int64)
        slot *= 4
        slot += np.repeat(first - 4 * (np.cumsum(length) - length), length)
        return slot

    def root(self, at: int = 0) -> Tables:
        """The root table, whose offset stands at ``at``."""
        place = np.array([at], dtype=np.int64)
        self.require(place, 8, 4, "the header")
        return Tables(self, place + self.word(place), "the root table")

    def texts(self, at: Positions, what: str) -> list[str]:
        """The string at each position; empty where it is 0."""
        names = {"": 0}
        codes = self.strings(at, what, names, absent=0).tolist()
        return list(map(tuple(names).__getitem__, codes))

    def strings(
        self, at: Positions, what: str, names: dict[str, int], absent: int
    ) -> NDArray[np.int32]:
        """Each string's number in ``names``, which grows in order of first use."""
        self.require(at, 4, 4, what)
        codes = np.full(at.size, absent, dtype=np.int32)
        rows = np.flatnonzero(at)
        if rows.size == 0:
            return codes
        position, first, shared = np.unique(at[rows], return_index=True, return_inverse=True)
        length = self.word(position)
        self.require(position, length + 5, 4, what)
        if int(length.sum()) > self.size:
            raise self.error(f"{what}s overlap each other", int(position[0]))
        ended = self._bytes[position + 4 + length] == 0
        self.refuse(~ended, position, f"{what} has no end")
        order = np.argsort(first)
        number = np.empty(position.size, dtype=np.int32)
        number[order] = [
            names.setdefault(text, len(names))
            for text in self._texts(position[order], length[order], what)
        ]
        codes[rows] = number[shared]
        return codes

    def _texts(self, position: Positions, length: Positions, what: str) -> Iterator[str]:
        view = self._bytes.data
        first = position + 4
        for start, end in zip(first.tolist(), (first + length).tolist(), strict=True):
            try:
                yield str(view[start:end], "utf-8")
            except UnicodeDecodeError:
                raise self.error(f"{what} is not UTF-8", start - 4) from None
