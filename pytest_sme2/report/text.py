"""Text of reports: printable names, numbers with units, wrapped sentences; tables in Markdown."""

from __future__ import annotations

import json
import re
import textwrap
from collections.abc import Iterable, Sequence

WIDTH = 80
NOTHING = "-"


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


def bullet(sentence: str, indent: str = "- ", width: int = WIDTH, hang: int = 0) -> str:
    """A finding as a list item, wrapped to the terminal; further lines hang below the first."""
    below = " " * (len(indent) + hang)
    return textwrap.fill(
        printable(sentence), width, initial_indent=indent, subsequent_indent=below,
        break_long_words=False,  # a path that is cut cannot be copied
        break_on_hyphens=False,
    )  # fmt: skip


def hanging(text: str, width: int) -> list[str]:
    """Its sentences, wrapped to the terminal; further lines of one hang below the first."""
    filled = (bullet(sentence, "", width, 2) for sentence in text.splitlines())
    return [line for sentence in filled for line in sentence.splitlines()]


def few(lines: Sequence[str], most: int, indent: str = "") -> list[str]:
    """The first of them, and how many more there are."""
    left = len(lines) - most
    return [*lines[:most], *([f"{indent}and {left} more"] if left > 0 else [])]


def json_text(value: object, *, sort_keys: bool = False) -> str:
    import msgspec

    # To lay it out takes json six times as long as all the rest.
    text = json.dumps(value, allow_nan=False, sort_keys=sort_keys)
    return msgspec.json.format(text, indent=2) + "\n"


def as_sentence(text: str) -> str:
    return f"{text[0].upper()}{text[1:]}." if text else ""


TOP = 10
PROOFS = {True: "yes", False: "no", "sme1": "SME1", "unproven": "?"}
"""Whether an operator ran on SME2."""
# What is longer is a sentence.
_WIDE = 30
_FIGURE = re.compile(r"-?[0-9]|-$|$")


def code(name: str) -> str:
    """A name in a code span, in which nothing is markup; fit for a table's cell."""
    text = printable(name).replace("|", "\\|")
    fence = "`" * (max((len(run) for run in re.findall("`+", text)), default=0) + 1)
    space = " " if "`" in text else ""
    return f"{fence}{space}{text}{space}{fence}" if text else ""


def prose(sentence: str) -> str:
    """A sentence that may hold names: what would be markup is escaped."""
    text = re.sub(r"([\\`*\[\]|])", r"\\\1", printable(sentence))
    return text.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")


def table(headings: Sequence[str], rows: Iterable[Sequence[str]]) -> list[str]:
    """A table; columns of figures are right-aligned. Nothing where there are no rows."""
    body = [list(row) for row in rows]
    if not body:
        return []
    rule = [
        "---:"
        if all(_FIGURE.match(row[column]) and len(row[column]) < _WIDE for row in body)
        else "---"
        for column in range(len(headings))
    ]
    return ["| " + " | ".join(row) + " |" for row in (list(headings), rule, *body)]


def aligned(rows: Sequence[Sequence[str]], width: int = 0) -> list[str]:
    """A table for a terminal: a column is as wide as its widest cell, the first one in a terminal
    of this ``width`` as there is room.
    """
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    if width:
        widths[0] = min(widths[0], width - sum(2 + each for each in widths[1:]))
        rows = [[clipped(first, widths[0]), *rest] for first, *rest in rows]
    return ["  ".join(map(str.ljust, row, widths)).rstrip() for row in rows]


def document(lines: Iterable[str]) -> str:
    return "\n".join(lines).rstrip() + "\n"
