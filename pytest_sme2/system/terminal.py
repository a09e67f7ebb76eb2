"""A progress line on a terminal; nothing in a log."""

from __future__ import annotations

import shutil
import sys
from collections.abc import Callable
from typing import Any, TextIO

Say = Callable[[str], None]


def terminal_line(stream: TextIO) -> Say:
    """Overwrite one line of a terminal; any other stream gets a new line each time."""
    if not stream.isatty():
        return lambda line: print(line, file=stream, flush=True)

    def say(line: str) -> None:
        width = shutil.get_terminal_size().columns - 1
        stream.write(f"\r\x1b[K{line[:width]}")
        stream.flush()

    return say


def clear_line(stream: TextIO) -> None:
    """Remove the progress line, if there is one."""
    if stream.isatty():
        stream.write("\r\x1b[K")
        stream.flush()


def progress_line(config: Any) -> Say:
    """For pytest: through its output capture on a terminal, silent in logs and with ``-q``."""
    capture = config.pluginmanager.getplugin("capturemanager")
    quiet = config.get_verbosity() < 0 or hasattr(config, "workerinput")
    if capture is None or quiet or not sys.__stderr__ or not sys.__stderr__.isatty():
        return lambda line: None
    say = terminal_line(sys.__stderr__)

    def outside_capture(line: str) -> None:
        with capture.global_and_fixture_disabled():
            say(line)

    return outside_capture
