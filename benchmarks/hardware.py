"""Instructions beside times that others measured on hardware: the table of docs/measuring.md.

``python -m benchmarks.hardware [NAME …]`` counts the same work on the emulator and keeps it
in ``benchmarks/results/hardware.json``. ``--write`` runs nothing and puts the table into the
page. Times are published ones, in milliseconds.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

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
_PATHS = (
    "https://github.com/ArmDeveloperEcosystem/arm-learning-paths/blob/main/content/learning-paths"
)
_LITERT = f"{_PATHS}/mobile-graphics-and-gaming/litert-sme/4-benchmark.md"
_ONNX = (
    f"{_PATHS}/mobile-graphics-and-gaming/performance_onnxruntime_kleidiai_sme2/"
    "profiling_example.md"
)
_EXECUTORCH = (
    "https://pytorch.org/blog/accelerating-on-device-ml-inference-with-executorch-and-arm-sme2"
)


class Published(NamedTuple):
    """What somebody measured, and which model here is the same work, or nearly."""

    work: str
    source: str
    off_ms: float
    on_ms: float
    model: str
    variant: str


PUBLISHED = {
    "dense": Published(
        "Fully Connected 100x640 to 1280, fp32: XNNPACK's operator, a phone",
        _LITERT, 1.269, 0.382, "dense", "fp32",
    ),
    "resnet50": Published(
        "ResNet-50 v2, fp32: ONNX Runtime, one C1-Pro at 2 GHz",
        _ONNX, 339.38, 98.96, "executorch:resnet50", "fp32",
    ),
    "squeeze_sam-fp16": Published(
        "SqueezeSAM, fp16: ExecuTorch, Dimensity 9500", _EXECUTORCH, 1163.0, 298.2,
        "squeeze_sam", "fp16@16",
    ),
    "squeeze_sam-int8": Published(
        "SqueezeSAM, int8: ExecuTorch, Dimensity 9500", _EXECUTORCH, 555.8, 304.1,
        "squeeze_sam", "int8@64",
    ),
}  # fmt: skip


def counted(name: str) -> dict[str, Any]:
    """Instructions of one inference by arm."""
    row = PUBLISHED[name]
    with tempfile.TemporaryDirectory() as text:
        folder = Path(text)
        (folder / "dense").mkdir()
        (folder / "dense" / "model.py").write_text(_DENSE, "utf-8")
        settings = Settings(
            device="emulated",
            models=(row.model,),
            model_folders=(ROOT / "models", folder),
            variants=(parse_variant(row.variant),),
            out=folder / "out",
        )
        session = Session(settings, lambda line: print(f"  {line}", flush=True))
        try:
            (case,) = session.cases()
            costs = {arm: session.cost(case, arm) for arm in PAIR}
        finally:
            session.close()
    found = {}
    for arm, cost in costs.items():
        if isinstance(cost, str):
            raise SystemExit(f"{case.id} could not be counted: {cost}")
        found[str(arm)] = cost.total.instructions
    return found


ROWS = Rows(ROOT / "benchmarks" / "results" / "hardware.json", list(PUBLISHED), counted)


def table() -> list[str]:
    kept = ROWS.kept()
    rows = [("work", "hardware, ms", "time", "instructions, millions", "instructions")]
    for name, row in PUBLISHED.items():
        off, on = kept[name][Arm.OFF], kept[name][Arm.ON]
        rows.append(
            (
                f"[{row.work}]({row.source})",
                f"{row.off_ms:g} to {row.on_ms:g}",
                f"{row.off_ms / row.on_ms:.1f}x less",
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
