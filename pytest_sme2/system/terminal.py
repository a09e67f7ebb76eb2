"""What reaches the terminal: plain text, and a progress line that is nothing in a log."""

from __future__ import annotations

import contextlib
import re
import shutil
import sys
from collections.abc import Callable, Iterator
from typing import Any, TextIO, cast

from pytest_sme2.errors import plain

Say = Callable[[str], None]


_NOT_TEXT = re.compile("([\udc80-\udcff]+)")


class _PlainStream:
    """A stream that shows text and does nothing else: the only way out for a command."""

    def __init__(self, stream: TextIO) -> None:
        self.stream = stream

    def write(self, text: str) -> int:
        self.stream.write(self._shown(text))
        return len(text)

    def _shown(self, text: str) -> str:
        if self.stream.isatty():
            return plain(text)
        # A file or another program gets the bytes of a name that is not text as they are.
        pieces = _NOT_TEXT.split(text)
        return "".join(piece if _NOT_TEXT.match(piece) else plain(piece) for piece in pieces)

    def __getattr__(self, name: str) -> Any:
        return getattr(self.stream, name)


@contextlib.contextmanager
def plain_output() -> Iterator[None]:
    """Everything that is printed meanwhile is plain text."""
    before = sys.stdout, sys.stderr
    sys.stdout = cast(TextIO, _PlainStream(sys.stdout))
    sys.stderr = cast(TextIO, _PlainStream(sys.stderr))
    try:
        yield
    finally:
        sys.stdout, sys.stderr = before


def _controlled(stream: TextIO) -> TextIO:
    """The stream itself, for those who must move its cursor."""
    return stream.stream if isinstance(stream, _PlainStream) else stream


def terminal_line(stream: TextIO) -> Say:
    """Overwrite one line of a terminal; any other stream gets a new line each time."""
    if not stream.isatty():
        return lambda line: print(plain(line), file=stream, flush=True)

    def say(line: str) -> None:
        width = shutil.get_terminal_size().columns - 1
        controlled = _controlled(stream)
        controlled.write(f"\r\x1b[K{plain(line)[:width]}")
        controlled.flush()

    return say


def clear_line(stream: TextIO) -> None:
    """Remove the progress line, if there is one."""
    if stream.isatty():
        controlled = _controlled(stream)
        controlled.write("\r\x1b[K")
        controlled.flush()
