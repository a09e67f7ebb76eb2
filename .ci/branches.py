"""Holds a coverage report to a least share of branches, for each module by itself.

    coverage json -o FILE; python .ci/branches.py FILE

Exit code 1 where there is less. With a total alone, one module could hide behind the others.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

LEAST = 90.0


def table(document: dict[str, Any]) -> tuple[list[str], bool]:
    """A line a module, the poorest first, and whether there is enough."""
    rows = []
    for name, facts in document["files"].items():
        summary = facts["summary"]
        branches, taken = summary["num_branches"], summary["covered_branches"]
        rows.append((100 * taken / branches if branches else 100.0, name, taken, branches))
    rows.sort()
    taken, branches = (sum(row[part] for row in rows) for part in (2, 3))
    total = 100 * taken / branches if branches else 0.0
    lines = [
        f"{percent:6.1f} %  {taken:4d} of {branches:4d}  {name}"
        + ("" if percent >= LEAST else f"  LESS THAN {LEAST:g} %")
        for percent, name, taken, branches in (*rows, (total, "in all", taken, branches))
    ]
    # Where there is no branch at all, nothing was measured.
    return lines, bool(rows) and rows[0][0] >= LEAST and total >= LEAST


def main(arguments: Sequence[str]) -> int:
    lines, enough = table(json.loads(Path(arguments[0]).read_text(encoding="utf-8")))
    print("\n".join(lines))
    return 0 if enough else 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
