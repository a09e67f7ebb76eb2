"""Tables of docs/findings.md and docs/measuring.md: ``python -m benchmarks.findings``.

The first is made from ``baselines/emulated``, which come from real runs on the emulator (see
baselines/README.md). The second has instructions beside published times, which stand with their
sources and with the model that ``sme2 run`` counts in ``benchmarks/results/hardware.json``.
``dense`` is a Linear(640, 1280) on 100 rows.
"""

from __future__ import annotations

import json
from typing import Any

from benchmarks.harness import ROOT, Table, table_lines
from pytest_sme2.export.variant import PRECISIONS
from pytest_sme2.results.case import Baseline
from pytest_sme2.results.run import PAIR, Arm
from pytest_sme2.verdict import baselines

STORED = ROOT / "baselines" / "emulated"
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


COMMAND = "python -m benchmarks.findings"
OVERVIEW = Table(ROOT / "docs" / "findings.md", "overview", COMMAND, overview)

FILE = ROOT / "benchmarks" / "results" / "hardware.json"
PUBLISHED: dict[str, dict[str, Any]] = json.loads(FILE.read_text("utf-8"))
"""By name: what somebody measured, and which model here is the same work, or nearly."""


def hardware() -> list[str]:
    rows = [("work", "hardware, ms", "time", "instructions, millions", "instructions")]
    for row in PUBLISHED.values():
        off, on = row[Arm.OFF], row[Arm.ON]
        rows.append((
            f"[{row['work']}]({row['source']})",
            f"{row['off_ms']:g} to {row['on_ms']:g}", f"{row['off_ms'] / row['on_ms']:.1f}x less",
            f"{off / 1e6:.3f} to {on / 1e6:.3f}", f"{off / on:.1f}x fewer",
        ))  # fmt: skip
    return table_lines(*rows, numbers=range(1, 5))


HARDWARE = Table(ROOT / "docs" / "measuring.md", "hardware", COMMAND, hardware)

if __name__ == "__main__":
    for one in (OVERVIEW, HARDWARE):
        one.write()
