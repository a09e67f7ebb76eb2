"""Reads flatbuffer tables many at a time, with NumPy and within bounds. Knows no schema.

Every position is a file offset in an int64 array, one element a table, and every read of a field
is one gather over all of them. Whatever a position was computed from, it is checked before it is
used, so a damaged file ends in an EtdumpError that names the offset.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

import numpy as np
from numpy.typing import NDArray

from pytest_sme2.errors import EtdumpError

Positions = NDArray[np.int64]

# Odd, and of no structure that names could share: the first 64 bits of the fractional parts of
# pi and of the golden ratio.
_MIX_WORDS: Final = np.uint64(0x9E3779B97F4A7C15)
_MIX_SEED: Final = 0x243F6A8885A308D3


class Tables:
    """The same kind of table at many positions: where each keeps its fields."""

    def __init__(self, buffer: Buffer, at: Positions, what: str) -> None:
        self.at = at
        self._buffer = buffer
        self._what = what
        buffer.require(at, 4, 4, what)
        self._vtable = vtable = at - buffer.int32(at)
        buffer.require(vtable, 4, 2, f"the layout of {what}", blame=at)
        self._vtable_size = buffer.half(vtable)
        self._size = buffer.half(vtable + 2)
        buffer.require(vtable, self._vtable_size, 2, f"the layout of {what}", blame=at)
        buffer.require(at, self._size, 4, what)
        wrong = (self._vtable_size < 4) | (self._size < 4)
        buffer.refuse(wrong, at, f"{what} has a layout that is too small to be one")

    def field(self, slot: int, size: int) -> Positions:
        """Where each table holds field ``slot`` of ``size`` bytes; 0 where it leaves it out."""
        entry = 4 + 2 * slot
        present = self._vtable_size >= entry + 2
        # A table without the entry reads its layout's first half instead: in bounds, and masked.
        offset = self._buffer.half(self._vtable + np.where(present, entry, 0))
        offset[~present] = 0
        wrong = (offset != 0) & ((offset < 4) | (offset + size > self._size))
        self._buffer.refuse(wrong, self.at, f"a field of {self._what} lies outside of it")
        wrong = (offset & (min(size, 4) - 1)) != 0
        self._buffer.refuse(wrong, self.at, f"a field of {self._what} is not aligned")
        return np.where(offset != 0, self.at + offset, 0)

    def int32(self, slot: int, default: int) -> NDArray[np.int32]:
        at = self.field(slot, 4)
        # Offset 0 is the file's first word: readable, and replaced.
        return np.where(at != 0, self._buffer.int32(at), np.int32(default))

    def uint64(self, slot: int) -> NDArray[np.uint64]:
        at = self.field(slot, 8)
        value = self._buffer.word(at).astype(np.uint64)
        value |= self._buffer.word(np.where(at != 0, at + 4, 0)).astype(np.uint64) << np.uint64(32)
        value[at == 0] = 0
        return value

    def reference(self, slot: int) -> Positions:
        """Where each table's field ``slot`` points to; 0 where it leaves it out."""
        at = self.field(slot, 4)
        return np.where(at != 0, at + self._buffer.word(at), 0)


class Buffer:
    """The bytes of one flatbuffer."""

    def __init__(self, data: NDArray[np.uint8], source: str) -> None:
        self.size = data.size
        self.source = source
        self._bytes = data
        self._halves = data[: data.size & ~1].view(np.dtype(np.uint16).newbyteorder("<"))
        self._words = data[: data.size & ~3].view(np.dtype(np.uint32).newbyteorder("<"))
        self._signed = data[: data.size & ~3].view(np.dtype(np.int32).newbyteorder("<"))

    def error(self, problem: str, at: int | None = None) -> EtdumpError:
        where = "" if at is None else f" at offset {at}"
        return EtdumpError(
            f"{self.source}: {problem}{where}. The ETDump is damaged or incomplete: "
            "fetch it again, or run the model again."
        )

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
        blame: Positions | None = None,
    ) -> None:
        """Fail unless ``size`` bytes from each position lie in the file, aligned."""
        culprit = at if blame is None else blame
        outside = (at < 0) | (at > self.size - size)
        self.refuse(outside, culprit, f"{what} reaches past the file's {self.size} bytes")
        self.refuse((at & (alignment - 1)) != 0, culprit, f"{what} is not aligned")

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
        present = at != 0
        self.require(at, 4, 4, what)
        length = np.where(present, self.word(at), 0)
        first = np.where(present, at + 4, 0)
        self.require(first, length * 4, 4, what, blame=at)
        return first, length

    def elements(self, first: Positions, length: Positions) -> Positions:
        """The tables that the vectors hold, one vector after another.

        The caller bounds the total: vectors may lie on top of each other.
        """
        total = int(length.sum())
        slot = np.arange(total, dtype=np.int64)
        slot *= 4
        slot += np.repeat(first - 4 * (np.cumsum(length) - length), length)
        slot += self.word(slot)
        return slot

    def strings(
        self, at: Positions, what: str, names: dict[str, int], absent: int
    ) -> NDArray[np.int32]:
        """Each string's number in ``names``, which grows in order of first use.

        Writers store a name again at every use, so most are equal: they are compared as words,
        all of one length at once, and only the distinct ones become Python strings.
        """
        self.require(at, 4, 4, what)
        codes = np.full(at.size, absent, dtype=np.int32)
        rows = np.flatnonzero(at)
        if rows.size == 0:
            return codes
        position = at[rows]
        shared: NDArray[np.intp] | None = None
        if rows.size > 1 and not _strictly_monotonic(position):
            position, shared = np.unique(position, return_inverse=True)
        length = self.word(position)
        self.require(position, length + 5, 4, what)
        if int(length.sum()) > self.size:
            raise self.error(f"{what}s overlap each other", int(position[0]))
        ended = self._bytes[position + 4 + length] == 0
        self.refuse(~ended, position, f"{what} has no end")
        group, example = self._equal_strings(position, length)
        if shared is not None:
            group = group[shared]
        # Number the groups by first use, so that equal dumps give equal columns.
        first_use = np.full(example.size, rows.size, dtype=np.int64)
        np.minimum.at(first_use, group, np.arange(rows.size))
        order = np.argsort(first_use)
        example = example[order]
        number = np.empty(example.size, dtype=np.int32)
        number[order] = [
            names.setdefault(text, len(names))
            for text in self._texts(position[example], length[example], what)
        ]
        codes[rows] = number[group]
        return codes

    def _texts(self, position: Positions, length: Positions, what: str) -> Iterator[str]:
        view = self._bytes.data
        first = position + 4
        for start, end in zip(first.tolist(), (first + length).tolist(), strict=True):
            try:
                yield str(view[start:end], "utf-8")
            except UnicodeDecodeError:
                raise self.error(f"{what} is not UTF-8", start - 4) from None

    def _equal_strings(
        self, position: Positions, length: Positions
    ) -> tuple[NDArray[np.intp], NDArray[np.intp]]:
        """A group number for each string, and one example of each group."""
        group = np.empty(position.size, dtype=np.intp)
        examples: list[NDArray[np.intp]] = []
        count = 0
        by_length = np.argsort(length, kind="stable")
        sizes, firsts = np.unique(length[by_length], return_index=True)
        bounds = [*firsts.tolist(), position.size]
        # The lengths that differ are few: a thousand of them need half a megabyte of names.
        for size, low, high in zip(sizes.tolist(), bounds, bounds[1:], strict=False):
            members = by_length[low:high]
            member_group, example = _equal_rows(self._padded(position[members] + 4, size))
            group[members] = member_group + count
            examples.append(members[example])
            count += example.size
        return group, np.concatenate(examples)

    def _padded(self, at: Positions, size: int) -> NDArray[np.uint64]:
        """The ``size`` bytes from each position, zero-padded to whole 64-bit words."""
        words = max(1, -(-size // 8))
        rows = np.zeros((at.size, 8 * words), dtype=np.uint8)
        if size:
            windows = np.lib.stride_tricks.sliding_window_view(self._bytes, size)
            rows[:, :size] = windows[at]
        return rows.view(np.uint64)


def _strictly_monotonic(values: Positions) -> bool:
    step = np.diff(values)
    return bool((step > 0).all() or (step < 0).all())


def _equal_rows(rows: NDArray[np.uint64]) -> tuple[NDArray[np.intp], NDArray[np.intp]]:
    """Group equal rows: a group number for each, and one example of each group.

    Sorting 64-bit digests is several times faster than sorting rows. They are checked, and rows
    that differ under one digest are sorted after all.
    """
    digest = np.full(rows.shape[0], _MIX_SEED, dtype=np.uint64)
    for column in rows.T:
        digest ^= column
        digest *= _MIX_WORDS
        digest ^= digest >> np.uint64(29)
    _, example, group = np.unique(digest, return_index=True, return_inverse=True)
    if not np.array_equal(rows, rows[example[group]]):
        whole = np.ascontiguousarray(rows).view(np.dtype((np.void, rows.shape[1] * 8)))[:, 0]
        _, example, group = np.unique(whole, return_index=True, return_inverse=True)
    return group, example
