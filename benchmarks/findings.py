"""Tables of docs/findings.md and benchmarks/zoo/README.md.

They are made from ``baselines/emulated``, which come from real runs on the emulator (see
baselines/README.md), and from what ``benchmarks.architectures`` kept. ``python -m
benchmarks.findings`` prints them, ``--write`` puts them into their pages.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Sequence
from typing import Any

from benchmarks.harness import ROOT, Table, table_lines
from pytest_sme2.export.variant import PRECISIONS
from pytest_sme2.report.text import percent
from pytest_sme2.results import PAIR, Arm, Baseline
from pytest_sme2.verdict import baselines

STORED = ROOT / "baselines" / "emulated"
ARCHITECTURES = ROOT / "benchmarks" / "results" / "architectures.json"
LEAST = 0.01
"""A saving below is none."""
# The order of the rows.
MODELS = (
    "toy_cnn", "mobilenet_v3_small", "edgetam_image_encoder", "squeeze_sam", "efficient_sam",
    "llama_block_prefill",
)  # fmt: skip


def overview() -> list[str]:
    """By model and precision: instructions with SME2, and matrix operators on it."""
    cells: dict[str, dict[str, str]] = {}
    for found in _stored():
        text = _on_sme2(found)
        if {*PAIR} <= {*found.costs}:
            on, off = (found.costs[arm].total.instructions for arm in (Arm.ON, Arm.OFF))
            ratio = f"{off / on:.1f}x"
            text = f"{'as many' if ratio == '1.0x' else ratio}, {text}"
        cells.setdefault(found.model, {})[found.variant.partition("@")[0]] = text
    used = [name for name in PRECISIONS if any(name in row for row in cells.values())]
    rows = [[f"`{model}`", *(row.get(name, "") for name in used)] for model, row in cells.items()]
    return table_lines(["model", *used], *rows, numbers=range(1, len(used) + 1))


def best_of(row: dict[str, Any], names: Sequence[str] | None = None) -> tuple[str, float]:
    """The rewrite that saves most, of these or of all; none where none saves anything."""
    savings = {
        name: value
        for name, value in row["savings"].items()
        if value is not None and (names is None or name in names)
    }
    name = max(savings, key=savings.__getitem__, default="")
    return (name, savings[name]) if name and savings[name] >= LEAST else ("", 0.0)


def architectures() -> list[str]:
    """One row per architecture: what costs most, and the best rewrite, which advice names."""
    rows = [("model", "on SME2", "costs most", "best rewrite saves")]
    for model, row in json.loads(ARCHITECTURES.read_text("utf-8")).items():
        if "problem" in row:
            rows.append((f"`{model}`", "", "is refused", ""))
            continue
        name, saving = best_of(row)
        on_sme2 = f"{row['sme2_operators']} of {row['matrix_operators']}"
        most = f"{row['costs_most']} ({percent(row['share'])})" if row["costs_most"] else ""
        best = f"`{name}` {percent(saving)}" if name else ""
        rows.append((f"`{model}`", on_sme2, most, best))
    return table_lines(*rows, numbers=(1,))


def _stored() -> list[Baseline]:
    found = map(baselines.read, STORED.glob("*.json"))
    return sorted((baseline for baseline in found if baseline is not None), key=_place)


def _place(baseline: Baseline) -> tuple[int, str, int, str]:
    model, variant = baseline.model, baseline.variant
    known = MODELS.index(model) if model in MODELS else len(MODELS)
    return known, model, PRECISIONS.index(variant.partition("@")[0]), variant


def _on_sme2(baseline: Baseline) -> str:
    found = baseline.structures[Arm.ON]
    return f"{found.sme2} of {found.matrix}"


COMMAND = "python -m benchmarks.findings --write"
TABLES = (
    Table(ROOT / "docs" / "findings.md", "overview", COMMAND, overview),
    Table(ROOT / "benchmarks" / "zoo" / "README.md", "architectures", COMMAND, architectures),
)


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0] if __doc__ else None)
    parser.add_argument("--write", action="store_true", help="write the tables into their pages")
    write = parser.parse_args(arguments).write
    for one in TABLES:
        if write:
            one.write()
        else:
            print("\n".join([*one.make(), ""]))
    return 0


if __name__ == "__main__":
    sys.exit(main())
