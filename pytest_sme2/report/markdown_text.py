"""Markdown as text: code spans, escapes, tables, and the notes that reports share."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence

from pytest_sme2.report.text import printable

TOP = 10


SME1_NOTE = (
    "The chip has SME and no SME2: `on` is SME1, and what is said of SME2 kernels is of its SME1 "
    "kernels."
)
EMULATED_NOTE = (
    "The CPU was emulated. Operators, their counts, kernels and outputs are exact; times are left "
    "out, since the time an emulator takes says nothing about hardware."
)


RANDOM_NOTE = "Weights are random: latency does not depend on them, accuracy does."


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
        "---:" if all(_FIGURE.match(row[column]) for row in body) else "---"
        for column in range(len(headings))
    ]
    return ["| " + " | ".join(row) + " |" for row in (list(headings), rule, *body)]


def document(lines: Iterable[str]) -> str:
    return "\n".join(lines).rstrip() + "\n"
