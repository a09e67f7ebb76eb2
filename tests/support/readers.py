"""What a confined process is told to do, as readers of hostile files would; and such a file."""

from __future__ import annotations

import socket
import struct
import tempfile
from pathlib import Path

from pytest_sme2.errors import BundleError


def say(*words: str) -> str:
    return " ".join(words)


def take_long() -> None:
    while True:
        pass


def take_memory() -> str:
    return str(len([bytes(1 << 30) for _ in range(64)]))


def refuse(path: str) -> None:
    raise BundleError(f"{path} is not a bundle.")


def end_early() -> None:
    raise SystemExit("out of luck")


def connect(port: str) -> str:
    """Whether a listener of this machine can be reached."""
    try:
        socket.create_connection(("127.0.0.1", int(port)), timeout=5).close()
    except OSError:
        return ""
    return "reached"


def folder() -> str:
    Path("left behind").write_text("", encoding="utf-8")
    assert Path.cwd() == Path(tempfile.gettempdir())
    return str(Path.cwd())


def repeated_method(program: bytes, times: int) -> bytes:
    """A program whose list names its first method so many times.

    Offsets of a flatbuffer lead forward only: the list lies behind the program, a copy of the
    program behind the list, and the segments last.
    """
    size, segments_at = struct.unpack_from("<QQ", program, 16)
    first = bytearray(program[:size])
    (root,) = struct.unpack_from("<I", first, 0)
    (table,) = struct.unpack_from("<i", first, root)
    (field,) = struct.unpack_from("<H", first, root - table + 4 + 2 * 1)
    at = root + field
    listed = at + struct.unpack_from("<I", first, at)[0]
    method = listed + 4 + struct.unpack_from("<I", first, listed + 4)[0]
    first += bytes(-len(first) % 8)
    struct.pack_into("<I", first, at, len(first) - at)
    copied = len(first) + 4 + 4 * times
    copied += -copied % 8
    places = [copied + method - (len(first) + 4 + 4 * row) for row in range(times)]
    content = bytes(first) + struct.pack(f"<{1 + times}I", times, *places)
    content += bytes(copied - len(content)) + program[:size]
    content += bytes(-len(content) % 16)
    head = struct.pack("<QQ", len(content), len(content))
    return content[:16] + head + content[32:] + program[segments_at:]
