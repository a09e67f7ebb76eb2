"""Texts that were looked at and accepted; ``SME2_REWRITE_GOLDEN=1 pytest …`` accepts anew."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path

from pytest_sme2.results.case import Check

GOLDEN = Path(__file__).parents[1] / "data" / "golden"


def check_golden(name: str, text: str) -> None:
    path = GOLDEN / name
    if os.environ.get("SME2_REWRITE_GOLDEN"):
        path.write_text(text, encoding="utf-8", newline="")
    with path.open(encoding="utf-8", newline="") as stream:
        assert text == stream.read(), f"differs from {path}; look at it, then SME2_REWRITE_GOLDEN=1"


def check_whole_checks(name: str, cases: Mapping[str, Check]) -> None:
    """Every check word for word; limits and intervals to the digits that count."""
    check_golden(
        f"checks/{name}.txt",
        "\n".join(f"{case}\n{_told(check)}" for case, check in cases.items()),
    )


def _told(check: Check) -> str:
    rounded = {
        "limit": None if check.limit is None else f"{check.limit:.5g}",
        "interval": check.interval and ", ".join(f"{bound:.4g}" for bound in check.interval),
    }
    facts = {"old": check.old, "new": check.new, "unit": check.unit, **rounded}
    lines = [
        f"{check.metric}: {check.verdict}",
        check.message,
        *(f"{fact}: {value}" for fact, value in facts.items() if value not in (None, "")),
        *(f"- {detail}" for detail in check.details),
    ]
    return "".join(f"    {line}\n" for line in lines)
