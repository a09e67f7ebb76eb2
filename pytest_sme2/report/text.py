"""Plain text that fits a terminal: names made printable, numbers with units, wrapped sentences."""

from __future__ import annotations

import textwrap

WIDTH = 80


def printable(name: str) -> str:
    """A name that cannot move the cursor or start a new line: other characters are escaped."""
    return "".join(
        character if character.isprintable() else character.encode("unicode_escape").decode()
        for character in name
    )


def clipped(name: str, width: int) -> str:
    """The printable name, cut in the middle where it is too long, since both ends tell."""
    text = printable(name)
    if len(text) <= width:
        return text
    head = (width - 3 + 1) // 2
    return f"{text[:head]}...{text[len(text) - (width - 3 - head) :]}"


def duration(ns: float) -> str:
    """``12.345 ms``; microseconds below one millisecond, seconds above ten."""
    if abs(ns) >= 1e14:
        return f"{ns / 1e9:.2e} s"
    if abs(ns) >= 1e10:
        return f"{ns / 1e9:.2f} s"
    return f"{ns / 1e6:.3f} ms" if abs(ns) >= 1e6 else f"{ns / 1e3:.1f} us"


def percent(share: float) -> str:
    return f"{share * 100:.1f} %"


def times(ratio: float | None) -> str:
    """``1.85x``, or a dash where there is nothing to divide."""
    return "-" if ratio is None else f"{ratio:.2f}x"


def bullet(sentence: str, indent: str = "- ", width: int = WIDTH) -> str:
    """A finding as a list item, wrapped to the terminal."""
    return textwrap.fill(
        printable(sentence), width, initial_indent=indent, subsequent_indent=" " * len(indent),
        break_long_words=False,  # a path that is cut cannot be copied
        break_on_hyphens=False,
    )  # fmt: skip
