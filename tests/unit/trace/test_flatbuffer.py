"""Bounds of the table reader, apart from any schema."""

from __future__ import annotations

import numpy as np
import pytest

from pytest_sme2.errors import EtdumpError
from pytest_sme2.trace.flatbuffer import Buffer, Tables


def one_table(layout: list[int], body: bytes, table: int = 16) -> Tables:
    """A layout at offset 4, of two-byte words, and a table that points back to it."""
    data = bytearray(4) + b"".join(word.to_bytes(2, "little") for word in layout)
    data += b"\0" * (table - len(data))
    data += (table - 4).to_bytes(4, "little") + body
    buffer = Buffer(np.frombuffer(bytes(data), np.uint8), "test")
    return Tables(buffer, np.array([table], np.int64), "a table")


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
