"""Tables of docs/findings.md and README.md, made from ``baselines/emulated`` and recorded runs.

``python -m benchmarks.findings`` prints them, ``--write`` puts each into its page. The baselines
come from real runs on the emulator: see baselines/README.md.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from pytest_sme2.export.variant import PRECISIONS
from pytest_sme2.profile.categories import classify
from pytest_sme2.profile.coverage import settled
from pytest_sme2.profile.findings import case_findings
from pytest_sme2.profile.transposes import LAYOUT_KERNELS
from pytest_sme2.report.findings import advice
from pytest_sme2.report.text import percent
from pytest_sme2.results import Arm, Baseline, Executor, OperatorCount
from pytest_sme2.verdict import baselines
from tests.support.recorded_runs import TWELVE, recorded
from tests.support.recorded_runs import measured as recorded_run

ROOT = Path(__file__).parents[1]
PAGE = ROOT / "docs" / "findings.md"
README = ROOT / "README.md"
STORED = ROOT / "baselines" / "emulated"
BEGIN, END = "<!-- begin {}: python -m {} --write -->\n", "<!-- end -->\n"
# The order of the rows.
MODELS = (
    "toy_cnn", "mobilenet_v3_small", "edgetam_image_encoder", "squeeze_sam", "efficient_sam",
    "llama_block_decode", "llama_block_prefill",
)  # fmt: skip
HEADING = (
    "| model | variant | on SME2 | depthwise | transposes | outside of the delegate | operators |\n"
    "| --- | --- | ---: | ---: | ---: | ---: | ---: |\n"
)
COST_HEADING = (
    "| model | variant | off | on | gain | outer products | tile use | on SME2 | % of work "
    "| packing and layout |\n"
    "| --- | --- | ---: | ---: | ---: | ---: | ---: | ---: | ---: | ---: |\n"
)


def table() -> str:
    """One row per model and variant."""
    return HEADING + "".join(_row(found) for found in _stored())


def summary() -> str:
    """One row per model, one column per precision: matrix operators on SME2 kernels."""
    cells: dict[str, dict[str, str]] = {}
    for found in _stored():
        precision = found.variant.partition("@")[0]
        cells.setdefault(found.model, {})[precision] = _on_sme2(found)
    del cells["toy_cnn"]
    used = [name for name in PRECISIONS if any(name in row for row in cells.values())]
    lines = [f"| model | {' | '.join(used)} |", f"| --- |{' ---: |' * len(used)}"]
    for model, row in cells.items():
        lines.append(f"| `{model}` | {' | '.join(row.get(name, '') for name in used)} |")
    return "\n".join(lines) + "\n"


def overview() -> str:
    """One row per model: how many times fewer instructions SME2 leaves, and its coverage."""
    cells: dict[str, dict[str, str]] = {}
    for found in _stored():
        gain = ""
        if len(found.costs) == len(Arm):
            on, off = (found.costs[arm].total.instructions for arm in (Arm.ON, Arm.OFF))
            gain = f"{off / on:.1f}x, "
        precision = found.variant.partition("@")[0]
        cells.setdefault(found.model, {})[precision] = f"{gain}{_on_sme2(found)}"
    used = [name for name in PRECISIONS if any(name in row for row in cells.values())]
    lines = [f"| model | {' | '.join(used)} |", f"| --- |{' ---: |' * len(used)}"]
    for model, row in cells.items():
        lines.append(f"| `{model}` | {' | '.join(row.get(name, '') for name in used)} |")
    return "\n".join(lines) + "\n"


def architectures() -> str:
    """One row per recorded architecture in fp16: coverage, and the two things that cost most."""
    lines = [
        "| model | on SME2 | outside of the delegate | costs most | then |",
        "| --- | ---: | ---: | --- | --- |",
    ]
    for model in TWELVE:
        if f"{model}-fp16" not in recorded():
            continue
        measured = recorded_run(f"{model}-fp16")
        profile = measured.profiles[measured.arm]
        coverage = profile.coverage
        found = advice({"fp16": case_findings(measured)})
        costly = [f"{entry.what} ({percent(entry.share)})" for entry in found[:2]]
        cells = (
            f"`{model}`",
            f"{coverage.sme2_operators} of {coverage.matrix_operators}",
            profile.executor_counts.get(Executor.PORTABLE, 0),
            *costly,
            *[""] * (2 - len(costly)),
        )
        lines.append(f"| {' | '.join(map(str, cells))} |")
    return "\n".join(lines) + "\n"


def costs() -> str:
    """One row per model and variant whose instructions were counted."""
    rows = [_cost_row(found) for found in _stored() if len(found.costs) == len(Arm)]
    return COST_HEADING + "".join(rows)


def _cost_row(baseline: Baseline) -> str:
    on, off = baseline.costs[Arm.ON], baseline.costs[Arm.OFF]
    use = "" if on.tile_use is None else f"{on.tile_use:.0%}"
    cells = (
        f"`{baseline.model}`",
        f"`{baseline.variant}`",
        f"{off.total.instructions:,}",
        f"{on.total.instructions:,}",
        f"{off.total.instructions / on.total.instructions:.2f}x",
        f"{on.total.outer_products:,}",
        use,
        _on_sme2(baseline),
        f"{on.sme2_macs / on.macs:.0%}" if on.macs else "",
        f"{on.packing_share:.0%}",
    )
    return f"| {' | '.join(cells)} |\n"


def _stored() -> list[Baseline]:
    found = map(baselines.read, STORED.glob("*.json"))
    return sorted((baseline for baseline in found if baseline is not None), key=_place)


def _place(baseline: Baseline) -> tuple[int, str, int, str]:
    model, variant = baseline.model, baseline.variant
    known = MODELS.index(model) if model in MODELS else len(MODELS)
    return known, model, PRECISIONS.index(variant.partition("@")[0]), variant


def _on_sme2(baseline: Baseline) -> str:
    matrix = [entry for entry in baseline.structures[Arm.ON].operators if entry.matrix]
    census = baseline.kernels.get(Arm.ON)
    on_sme2 = sum(
        entry.count for entry in matrix if settled(classify(entry.name), None, census).sme2
    )
    return f"{on_sme2} of {sum(entry.count for entry in matrix)}"


def _row(baseline: Baseline) -> str:
    entries = baseline.structures[Arm.ON].operators
    depthwise = sum(entry.count for entry in entries if entry.kind == "depthwise")
    moves = sum(entry.count for entry in entries if _moves(entry))
    outside = sum(
        entry.count
        for entry in entries
        if entry.executor is Executor.PORTABLE and not _moves(entry)
    )
    cells = (
        f"`{baseline.model}`", f"`{baseline.variant}`", _on_sme2(baseline), depthwise, moves,
        outside, sum(entry.count for entry in entries),
    )  # fmt: skip
    return f"| {' | '.join(map(str, cells))} |\n"


def _moves(entry: OperatorCount) -> bool:
    return entry.kind == "transpose" or classify(entry.name).operation in LAYOUT_KERNELS


@dataclass(frozen=True)
class Table:
    """A table, the page it stands in, and the name between its marks there."""

    path: Path
    name: str
    make: Callable[[], str]
    module: str = "benchmarks.findings"

    def write(self) -> None:
        self.path.write_text(self.put(self.path.read_text("utf-8")), "utf-8")

    def put(self, text: str) -> str:
        """The page's text with the table in its place."""
        mark = BEGIN.format(self.name, self.module)
        before, begin, rest = text.partition(mark)
        _, end, after = rest.partition(END)
        if not begin or not end:
            raise SystemExit(
                f"{self.path.name} has lost the lines around its table {self.name}: {mark}… {END}"
            )
        return f"{before}{begin}\n{self.make()}\n{end}{after}"


TABLES = (
    Table(PAGE, "overview", overview),
    Table(PAGE, "architectures", architectures),
    Table(PAGE, "operators", table),
    Table(PAGE, "cost", costs),
    Table(README, "summary", summary),
)


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0] if __doc__ else None)
    parser.add_argument("--write", action="store_true", help="write the tables into their pages")
    write = parser.parse_args(arguments).write
    for one in TABLES:
        if write:
            one.write()
        else:
            print(one.make())
    return 0


if __name__ == "__main__":
    sys.exit(main())
