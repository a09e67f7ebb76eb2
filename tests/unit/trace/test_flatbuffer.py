"""Strings and bounds of the table reader, apart from any schema."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pytest_sme2.errors import EtdumpError
from pytest_sme2.trace.flatbuffer import Buffer, Tables


def strings_of(texts: list[bytes]) -> tuple[Buffer, np.ndarray]:
    """A buffer that begins with four spare bytes and holds these strings."""
    data = bytearray(4)
    positions = []
    for text in texts:
        positions.append(len(data))
        data += len(text).to_bytes(4, "little") + text + b"\0"
        data += b"\xee" * (-len(data) % 4)
    return Buffer(np.frombuffer(bytes(data), np.uint8), "test"), np.array(positions, np.int64)


words = st.sampled_from(["", "a", "b", "ab", "ba", "Transpose", "Transpose (ND, X16) #1", "é", "ü"])


@given(st.lists(st.one_of(words, st.text(max_size=20)), max_size=60), st.booleans())
def test_strings_are_numbered_in_order_of_first_use(texts: list[str], reverse: bool) -> None:
    buffer, positions = strings_of([text.encode() for text in texts])
    if reverse:
        positions, texts = positions[::-1], texts[::-1]
    names: dict[str, int] = {}
    codes = buffer.strings(positions, "a name", names, absent=-1)
    assert list(names) == list(dict.fromkeys(texts))
    assert [list(names)[code] for code in codes] == texts


def test_strings_may_be_shared() -> None:
    buffer, positions = strings_of([b"one", b"two"])
    names = {"two": 0}
    codes = buffer.strings(positions[[1, 0, 1, 0, 0]], "a name", names, absent=-1)
    assert codes.tolist() == [0, 1, 0, 1, 1]
    assert list(names) == ["two", "one"]


def one_table(layout: list[int], body: bytes, table: int = 16) -> Tables:
    """A layout at offset 4, of two-byte words, and a table that points back to it."""
    data = bytearray(4) + b"".join(word.to_bytes(2, "little") for word in layout)
    data += b"\0" * (table - len(data))
    data += (table - 4).to_bytes(4, "little") + body
    buffer = Buffer(np.frombuffer(bytes(data), np.uint8), "test")
    return Tables(buffer, np.array([table], np.int64), "a table")


def test_fields_are_found_and_defaults_kept() -> None:
    tables = one_table([8, 8, 4, 0], b"\x07\0\0\0")
    assert tables.int32(0, -1).tolist() == [7]
    assert tables.int32(1, -1).tolist() == [-1]
    assert tables.int32(9, -5).tolist() == [-5]


@pytest.mark.parametrize(
    ("layout", "message"),
    [
        ([3, 8, 4, 0], "no room for itself at offset 16"),
        ([8, 2, 4, 0], "no room for itself at offset 16"),
        ([60_000, 8, 4, 0], "a layout past the file's 24 bytes at offset 16"),
        ([8, 60_000, 4, 0], "a table reaches past the file's 24 bytes at offset 16"),
        ([8, 8, 5, 0], "a field outside at offset 16"),
        ([8, 8, 2, 0], "a field outside at offset 16"),
        ([8, 8, 8, 0], "a field outside at offset 16"),
    ],
)
def test_layouts_that_lie_are_refused(layout: list[int], message: str) -> None:
    with pytest.raises(EtdumpError, match=message):
        one_table(layout, b"\x07\0\0\0").int32(0, -1)


def test_fields_out_of_line_are_refused() -> None:
    with pytest.raises(EtdumpError, match="out of line"):
        one_table([8, 12, 6, 0], b"\x07\0\0\0\0\0\0\0").int32(0, -1)
