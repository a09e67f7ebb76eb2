"""Texts that were looked at and accepted; ``SME2_REWRITE_GOLDEN=1 pytest …`` accepts anew."""

from __future__ import annotations

import os
from pathlib import Path

GOLDEN = Path(__file__).parents[1] / "data" / "golden"


def check_golden(name: str, text: str) -> None:
    path = GOLDEN / name
    if os.environ.get("SME2_REWRITE_GOLDEN"):
        path.write_text(text, encoding="utf-8", newline="")
    with path.open(encoding="utf-8", newline="") as stream:
        assert text == stream.read(), f"differs from {path}; look at it, then SME2_REWRITE_GOLDEN=1"
