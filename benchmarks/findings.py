"""The table of docs/findings.md.

It is made from ``baselines/emulated``, which come from real runs on the emulator (see
baselines/README.md). ``python -m benchmarks.findings`` prints it; ``--write`` renews the page.
"""

from __future__ import annotations

import sys

from benchmarks.harness import ROOT, Table, renew, table_lines
from pytest_sme2.export.variant import PRECISIONS
from pytest_sme2.results import PAIR, Arm, Baseline
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


TABLE = Table(
    ROOT / "docs" / "findings.md", "overview", "python -m benchmarks.findings --write", overview
)

if __name__ == "__main__":
    sys.exit(renew(__doc__, TABLE))
