"""Holds every module of a coverage report to a least share of its branches.

    coverage json -o FILE; python .ci/branches.py FILE [PERCENT]

Exit code 1 where a module has less. A total would let one module hide behind another.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

LEAST = 90.0


def table(document: dict[str, Any], least: float) -> tuple[list[str], bool]:
    """A line a module, the poorest first, and whether all have enough."""
    rows = []
    for name, facts in document["files"].items():
        summary = facts["summary"]
        branches, taken = summary["num_branches"], summary["covered_branches"]
        rows.append((100 * taken / branches if branches else 100.0, name, taken, branches))
    rows.sort()
    lines = [
        f"{percent:6.1f} %  {taken:4d} of {branches:4d}  {name}"
        + ("" if percent >= least else f"  LESS THAN {least:g} %")
        for percent, name, taken, branches in rows
    ]
    taken, branches = (sum(row[part] for row in rows) for part in (2, 3))
    lines.append(f"{100 * taken / max(branches, 1):6.1f} %  {taken:4d} of {branches:4d}  in all")
    return lines, bool(rows) and rows[0][0] >= least


def main(arguments: Sequence[str]) -> int:
    document = json.loads(Path(arguments[0]).read_text(encoding="utf-8"))
    lines, enough = table(document, float(arguments[1]) if len(arguments) > 1 else LEAST)
    print("\n".join(lines))
    return 0 if enough else 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
