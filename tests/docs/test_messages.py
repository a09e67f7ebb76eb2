"""The troubleshooting page quotes messages that the code really gives."""

from __future__ import annotations

import ast
import functools
import re

import pytest

from tests.docs.pages import ROOT

PAGE = ROOT / "docs" / "troubleshooting.md"
QUOTED = [
    " ".join(message.split())
    for heading in re.findall(r"^\*\*(.+?)\*\*", PAGE.read_text("utf-8"), re.MULTILINE | re.DOTALL)
    for message in re.findall(r"`([^`]+)`", heading)
]


@functools.cache
def literals() -> str:
    """All text of the source, an ellipsis wherever a value is filled in."""
    found = []
    for path in sorted((ROOT / "pytest_sme2").rglob("*.py")):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.JoinedStr):
                parts = (
                    str(part.value) if isinstance(part, ast.Constant) else "…"
                    for part in node.values
                )
                found.append("".join(parts))
            elif isinstance(node, ast.Constant) and isinstance(node.value, str):
                found.append(node.value)
    return "\n".join(found)


def test_the_page_quotes_messages() -> None:
    assert len(QUOTED) > 10


@pytest.mark.parametrize("message", QUOTED)
def test_the_message_exists(message: str) -> None:
    # What stands between two gaps must be found; a quoted value is a gap as well.
    pieces = [piece.strip() for piece in re.split(r"…|'[^']*'", message)]
    told = [piece for piece in pieces if len(piece) > 3]
    assert told
    assert [piece for piece in told if piece not in literals()] == []
