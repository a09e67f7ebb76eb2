"""What reaches the terminal: plain text, and a progress line that is nothing in a log."""

from __future__ import annotations

import contextlib
import os
import re
import shutil
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, TextIO, cast

from pytest_sme2.errors import plain

Say = Callable[[str], None]

_NOT_TEXT = re.compile("([\udc80-\udcff]+)")


class _PlainStream:
    """A stream that shows text and does nothing else: the only way out for a command."""

    def __init__(self, stream: TextIO) -> None:
        self.stream = stream

    def write(self, text: str) -> int:
        with self._unheard():
            self.stream.write(self._shown(text))
        return len(text)

    def flush(self) -> None:
        with self._unheard():
            self.stream.flush()

    @contextlib.contextmanager
    def _unheard(self) -> Iterator[None]:
        """A reader such as ``head`` may stop: the command continues, with its own exit code."""
        try:
            yield
        except BrokenPipeError:
            self.drop()

    def drop(self) -> None:
        """Write nowhere from now on; what is still buffered would fail again at the end."""
        with contextlib.suppress(OSError), Path(os.devnull).open("wb") as nowhere:
            os.dup2(nowhere.fileno(), self.stream.fileno())

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
    _open_closed_streams()
    before = sys.stdout, sys.stderr
    shown = _PlainStream(sys.stdout), _PlainStream(sys.stderr)
    sys.stdout, sys.stderr = cast(tuple[TextIO, TextIO], shown)
    try:
        yield
    finally:
        for stream in shown:
            try:
                stream.flush()
            except OSError:
                stream.drop()
        sys.stdout, sys.stderr = before


def _open_closed_streams() -> None:
    """A stream that the caller closed (``>&-``) leads nowhere, and not to the next open file."""
    for number in range(3):
        try:
            os.fstat(number)
        except OSError:
            os.open(os.devnull, os.O_RDWR)
    # Without a number Python has no stream at all.
    for name, number in (("stdout", 1), ("stderr", 2)):
        if getattr(sys, name) is None:
            setattr(sys, name, os.fdopen(number, "w", closefd=False))


def say(line: str) -> None:
    """A line about the progress of a command, beside its answer."""
    sys.stderr.write(f"{line}\n")
    sys.stderr.flush()


def terminal_line(stream: TextIO) -> Say:
    """Overwrite one line of a terminal; any other stream gets a new line each time."""
    if not stream.isatty():
        return lambda line: print(plain(line), file=stream, flush=True)
    return lambda line: _overwrite(stream, plain(line)[: shutil.get_terminal_size().columns - 1])


def clear_line(stream: TextIO) -> None:
    if stream.isatty():
        _overwrite(stream, "")


def _overwrite(stream: TextIO, line: str) -> None:
    # The stream itself, to move its cursor.
    controlled = stream.stream if isinstance(stream, _PlainStream) else stream
    controlled.write(f"\r\x1b[K{line}")
    controlled.flush()
