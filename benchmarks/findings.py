"""The table of docs/findings.md, made from the baselines in ``baselines/emulated``.

``python -m benchmarks.findings`` prints it, ``--write`` puts it into the page. The baselines come
from real runs on the emulator: see baselines/README.md.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path

from pytest_sme2.export.variant import PRECISIONS
from pytest_sme2.profile.categories import classify
from pytest_sme2.profile.coverage import proven
from pytest_sme2.profile.transposes import LAYOUT_KERNELS
from pytest_sme2.results import Arm, Baseline, Executor, OperatorCount
from pytest_sme2.verdict import baselines

ROOT = Path(__file__).parents[1]
PAGE = ROOT / "docs" / "findings.md"
STORED = ROOT / "baselines" / "emulated"
BEGIN, END = "<!-- begin: python -m benchmarks.findings --write -->\n", "<!-- end -->\n"
# In the order in which people meet them.
MODELS = (
    "toy_cnn", "mobilenet_v3_small", "edgetam_image_encoder", "squeeze_sam", "efficient_sam",
    "llama_block_decode", "llama_block_prefill",
)  # fmt: skip
HEADING = (
    "| model | variant | on SME2 | depthwise | transposes | outside of the delegate | operators |\n"
    "| --- | --- | ---: | ---: | ---: | ---: | ---: |\n"
)


def table() -> str:
    stored = [found for found in map(baselines.read, STORED.glob("*.json")) if found is not None]
    return HEADING + "".join(_row(found) for found in sorted(stored, key=_place))


def _place(baseline: Baseline) -> tuple[int, str, int, str]:
    model, variant = baseline.model, baseline.variant
    known = MODELS.index(model) if model in MODELS else len(MODELS)
    return known, model, PRECISIONS.index(variant.partition("@")[0]), variant


def _row(baseline: Baseline) -> str:
    entries = baseline.structures[Arm.ON].operators
    census = baseline.kernels.get(Arm.ON)
    on_sme2 = sum(
        entry.count for entry in entries if entry.matrix and proven(classify(entry.name), census)
    )
    matrix = sum(entry.count for entry in entries if entry.matrix)
    depthwise = sum(entry.count for entry in entries if entry.kind == "depthwise")
    moves = sum(entry.count for entry in entries if _moves(entry))
    outside = sum(
        entry.count
        for entry in entries
        if entry.executor is Executor.PORTABLE and not _moves(entry)
    )
    cells = (
        f"`{baseline.model}`", f"`{baseline.variant}`", f"{on_sme2} of {matrix}", depthwise, moves,
        outside, sum(entry.count for entry in entries),
    )  # fmt: skip
    return f"| {' | '.join(map(str, cells))} |\n"


def _moves(entry: OperatorCount) -> bool:
    return entry.kind == "transpose" or classify(entry.name).operation in LAYOUT_KERNELS


def page(text: str) -> str:
    """The page with the table as it should be."""
    before, begin, rest = text.partition(BEGIN)
    _, end, after = rest.partition(END)
    if not begin or not end:
        raise SystemExit(f"{PAGE} has lost the lines around its table: {BEGIN}… {END}")
    return f"{before}{BEGIN}\n{table()}\n{END}{after}"


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0] if __doc__ else None)
    parser.add_argument("--write", action="store_true", help="put it into docs/findings.md")
    if parser.parse_args(arguments).write:
        PAGE.write_text(page(PAGE.read_text("utf-8")), "utf-8")
    else:
        print(table(), end="")
    return 0


if __name__ == "__main__":
    sys.exit(main())
