"""Instructions beside times that others measured on hardware: the table of docs/measuring.md.

``python -m benchmarks.hardware`` prints it, ``--write`` puts it into the page. Published times in
milliseconds, their sources, and the instructions of the same work stand in
``benchmarks/results/hardware.json``, with the model and variant that ``sme2 run`` counts.
``dense`` is a Linear(640, 1280) on 100 rows.
"""

from __future__ import annotations

import json
import sys
from typing import Any

from benchmarks.harness import ROOT, Table, renew, table_lines
from pytest_sme2.results import Arm

FILE = ROOT / "benchmarks" / "results" / "hardware.json"
KEPT: dict[str, dict[str, Any]] = json.loads(FILE.read_text("utf-8"))
"""By name: what somebody measured, and which model here is the same work, or nearly."""


def table() -> list[str]:
    rows = [("work", "hardware, ms", "time", "instructions, millions", "instructions")]
    for row in KEPT.values():
        off, on = row[Arm.OFF], row[Arm.ON]
        rows.append(
            (
                f"[{row['work']}]({row['source']})",
                f"{row['off_ms']:g} to {row['on_ms']:g}",
                f"{row['off_ms'] / row['on_ms']:.1f}x less",
                f"{off / 1e6:.3f} to {on / 1e6:.3f}",
                f"{off / on:.1f}x fewer",
            )
        )
    return table_lines(*rows, numbers=range(1, 5))


TABLE = Table(
    ROOT / "docs" / "measuring.md", "hardware", "python -m benchmarks.hardware --write", table
)


if __name__ == "__main__":
    sys.exit(renew(__doc__, TABLE))
