"""Instructions beside times that others measured on hardware: the table of docs/measuring.md.

``python -m benchmarks.hardware [NAME …]`` counts the same work on the emulator and keeps it
in ``benchmarks/results/hardware.json``. ``--write`` runs nothing and puts the table into the
page. Times are published ones, in milliseconds; they and their sources stand in the same file.
"""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from benchmarks.harness import ROOT, Rows, Table, table_lines
from pytest_sme2.export.variant import parse_variant
from pytest_sme2.results import PAIR, Arm
from pytest_sme2.session.session import Session
from pytest_sme2.session.settings import Settings

_DENSE = """
import torch
from pytest_sme2 import register_model


@register_model("dense", variants=("fp32",))
class Dense:
    def get_eager_model(self):
        return torch.nn.Linear(640, 1280)

    def get_example_inputs(self):
        return (torch.randn(100, 640),)
"""
FILE = ROOT / "benchmarks" / "results" / "hardware.json"
KEPT: dict[str, dict[str, Any]] = json.loads(FILE.read_text("utf-8"))
"""By name: what somebody measured, and which model here is the same work, or nearly."""


def counted(name: str) -> dict[str, Any]:
    """The row with its instructions of one inference by arm."""
    row = KEPT[name]
    with tempfile.TemporaryDirectory() as text:
        folder = Path(text)
        (folder / "dense").mkdir()
        (folder / "dense" / "model.py").write_text(_DENSE, "utf-8")
        settings = Settings(
            device="emulated",
            models=(row["model"],),
            model_folders=(ROOT / "models", folder),
            variants=(parse_variant(row["variant"]),),
            out=folder / "out",
        )
        session = Session(settings, lambda line: print(f"  {line}", flush=True))
        try:
            (case,) = session.cases()
            costs = {arm: session.cost(case, arm) for arm in PAIR}
        finally:
            session.close()
    found = dict(row)
    for arm, cost in costs.items():
        if isinstance(cost, str):
            raise SystemExit(f"{case.id} could not be counted: {cost}")
        found[str(arm)] = cost.total.instructions
    return found


ROWS = Rows(FILE, list(KEPT), counted)


def table() -> list[str]:
    rows = [("work", "hardware, ms", "time", "instructions, millions", "instructions")]
    for row in ROWS.kept().values():
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


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0] if __doc__ else None)
    parser.add_argument("names", nargs="*", metavar="NAME", help=", ".join(ROWS.known))
    parser.add_argument("--write", action="store_true", help="write the table into its page")
    given = parser.parse_args(arguments)
    if given.write:
        TABLE.write()
    else:
        ROWS.run(given.names, parser)
        print("\n".join(table()))
    return 0


if __name__ == "__main__":
    sys.exit(main())
