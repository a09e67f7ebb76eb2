"""The table of docs/advice.md about rewrites: what each brings in instructions and in time.

``python -m benchmarks.rewrites MODEL+REWRITE …`` exports a model before and after, counts both on
the emulator, and times both on this machine in interleaved pairs of processes; all without a name.
What was found is kept in ``benchmarks/results/rewrites.json``. ``--write`` runs nothing and puts
the table into the page.
"""

from __future__ import annotations

import platform
import sys
import tempfile
from pathlib import Path
from statistics import median
from typing import Any

from benchmarks.harness import ROOT, Rows, Table, renew, table_lines
from pytest_sme2.export.variant import parse_variant
from pytest_sme2.results import Arm, Artifact, Executor, Run, RunRequest
from pytest_sme2.runners.sme2 import wheel_runner
from pytest_sme2.session.cases import Case
from pytest_sme2.session.session import Session
from pytest_sme2.session.settings import Settings
from pytest_sme2.system.platforms import host_platform
from pytest_sme2.targets.local import LocalTarget
from pytest_sme2.timing.pairs import measure_pairs
from pytest_sme2.timing.processes import SamplingPlan, Starter
from pytest_sme2.verdict.numerics import compare_reference
from tests.support.recorded_runs import ARCHITECTURES

# A small model that has everything that a rewrite is known for.
SPLITTING = ROOT / "tests" / "support" / "splitting"


# A model and what is rewritten in it: all that the advice on it names. The rows of the page.
ADVISED = (
    "efficientnet+silu",
    "detector+silu+chunk+constant",
    "vit+gelu+sdpa+layer_norm+constant",
    "bert+gelu+sdpa+layer_norm+constant",
    "qwen2+silu+sdpa+unsqueeze+expand+mean+conversion+constant",
    "gpt2+pow+sdpa+layer_norm+constant",
)
# One at a time.
SINGLE = (
    "vit+gelu", "vit+sdpa", "vit+layer_norm", "vit+constant", "detector+chunk", "gpt2+pow",
    "qwen2+unsqueeze", "qwen2+expand", "qwen2+mean", "qwen2+conversion", "splitting+select",
    "splitting+group_norm", "splitting+hardsigmoid", "splitting+transposed", "splitting+conv1d",
    "yolo_head+form", "fastvit+depthwise", "crnn:fp32+channel",
)  # fmt: skip
HEADINGS = (
    "model", "rewrites", "instructions before", "after", "change", "outside of the delegate",
    "signal over noise", "faster (interval)",
)  # fmt: skip


def counted(session: Session, case: Case) -> dict[str, Any]:
    """Instructions, operators outside of the delegate, and the outputs' signal over noise."""
    cost = session.cost(case, Arm.ON)
    if isinstance(cost, str):
        raise SystemExit(f"{case.id} could not be counted: {cost}")
    outputs = session.traced(case, Arm.ON).outputs
    found = compare_reference(session.artifact(case), outputs, Arm.ON)
    noise = [entry.sqnr_db for entry in found if entry.sqnr_db is not None]
    return {
        "instructions": cost.total.instructions,
        "outside": session.profile(case, Arm.ON).executor_counts.get(Executor.PORTABLE, 0),
        "sqnr_db": round(min(noise), 1) if noise else None,
    }


def timed(before: Artifact, after: Artifact) -> dict[str, Any]:
    """Both programs in interleaved pairs of processes, without SME2."""
    target, runner = LocalTarget(), wheel_runner(host_platform())
    programs = {"before": before, "after": after}

    def run_arm(arm: str, /, *, warmup: int, runs: int) -> Run:
        request = RunRequest(programs[arm], Arm.OFF, warmup=warmup, runs=runs)
        return target.run(runner, request, Path(folder) / arm)

    with tempfile.TemporaryDirectory() as folder:
        plan = SamplingPlan(threshold=None, budget_seconds=20)
        found = measure_pairs(Starter(run_arm), "before", "after", plan)
    sides = ("reference", "candidate")
    medians = [median(getattr(pair, f"{side}_ns") for pair in found.pairs) for side in sides]
    return {
        "machine": platform.machine(),
        "pairs": len(found.pairs),
        "median_ms": [round(one / 1e6, 3) for one in medians],
        "faster": round(1 / found.ratio, 2),
        "interval": found.interval and [round(1 / one, 2) for one in reversed(found.interval)],
    }


def measured(row: str) -> dict[str, Any]:
    """The model as it is written, and rewritten; in fp16, where the row names no other type."""
    case, _, rewrites = row.partition("+")
    model, _, named = case.partition(":")
    variant = named or "fp16"
    with tempfile.TemporaryDirectory() as out:
        session = Session(
            Settings(
                device="emulated",
                models=(model,),
                model_folders=(ARCHITECTURES, SPLITTING),
                variants=(parse_variant(variant), parse_variant(f"{variant}+{rewrites}")),
                out=Path(out),
            ),
            print,
        )
        before, after = session.cases()
        found = {"before": counted(session, before), "after": counted(session, after)}
        found["time"] = timed(session.artifact(before), session.artifact(after))
        session.close()
    return found


ROWS = Rows(ROOT / "benchmarks" / "results" / "rewrites.json", ADVISED + SINGLE, measured)


def table() -> list[str]:
    rows = [_cells(name, row) for name, row in ROWS.kept().items() if name in ADVISED]
    return table_lines(HEADINGS, *rows, numbers=range(2, len(HEADINGS)))


def _cells(name: str, found: dict[str, Any]) -> tuple[str, ...]:
    before, after, time = found["before"], found["after"], found["time"]
    change = after["instructions"] / before["instructions"] - 1
    interval = time["interval"]
    model, *rewrites = name.split("+")
    certain = "" if interval is None else f" ({interval[0]} to {interval[1]})"
    return (
        f"`{model}`",
        ", ".join(rewrites),
        f"{before['instructions']:,}",
        f"{after['instructions']:,}",
        f"{change * 100:+.1f} %",
        f"{before['outside']} to {after['outside']}",
        "" if after["sqnr_db"] is None else f"{after['sqnr_db']} dB",
        f"{time['faster']}x{certain}",
    )


TABLE = Table(
    ROOT / "docs" / "advice.md", "rewrites", "python -m benchmarks.rewrites --write", table
)


if __name__ == "__main__":
    sys.exit(renew(__doc__, TABLE, ROWS))
