"""Whether the sweep finds bugs: kernels of XNNPACK are broken on purpose, one instruction each.

``python -m benchmarks.sweep`` runs the programs of ``tools.sweep`` on each broken library until
something differs. What was found is kept in ``benchmarks/results/sweep.json``.
"""

from __future__ import annotations

import json
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from benchmarks.findings import ROOT
from pytest_sme2.results import Artifact
from pytest_sme2.runners.base import Runner
from pytest_sme2.runners.sme2 import wheel_runner
from pytest_sme2.system.qemu import find_qemu
from pytest_sme2.targets.emulated import EmulatedTarget
from tests.support.planted_kernels import EXECUTORCH, PLANTS, planted
from tools.many_exports import ManyExports
from tools.sweep.programs import RandomProgram
from tools.sweep.running import BATCH, Difference, Sweep, batch_programs

KEPT = ROOT / "benchmarks" / "results" / "sweep.json"
SEED = 0
MOST_BATCHES = 21


class Trial:
    """Programs that are exported once, and run on every broken library."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.target = EmulatedTarget(find_qemu())
        self.runner = wheel_runner(self.target.platform, executorch=EXECUTORCH, progress=print)
        log = folder / "export.log"
        self.exports = ManyExports("tools.sweep.networks", log, None, print)
        self._made: dict[tuple[RandomProgram, ...], Artifact | None] = {}

    def differences(self, runner: Runner, programs: Sequence[RandomProgram]) -> list[Difference]:
        sweep = Sweep(self.exports, [self.target], runner)
        key = tuple(programs)
        if key not in self._made:
            place = self.folder / f"program-{len(self._made)}"
            self._made[key] = sweep.exported(programs, place)[0]
        artifact = self._made[key]
        found = None
        if artifact is not None:
            with tempfile.TemporaryDirectory() as runs:
                found = sweep.compared(programs, artifact, Path(runs) / "runs")
        if found is None and len(programs) > 1:
            apart = [self.differences(runner, [program]) for program in programs]
            found = [entry for entries in apart for entry in entries]
        return found or []


def search() -> None:
    """For each plant, how many programs it takes, and what is seen; goes on where it was."""
    found = kept()["found"]
    with tempfile.TemporaryDirectory() as name:
        trial = Trial(Path(name))
        left = {
            plant.name: planted(trial.runner, plant, Path(name) / plant.name.replace(" ", "-"))
            for plant in PLANTS
            if plant.name not in found
        }
        for number in range(MOST_BATCHES if left else 0):
            programs = batch_programs(SEED, number)
            for plant, runner in list(left.items()):
                seen = trial.differences(runner, programs)
                if not seen:
                    continue
                first = min(seen, key=lambda entry: programs.index(entry.program))
                found[plant] = {
                    "programs": number * BATCH + programs.index(first.program) + 1,
                    "kind": first.kind,
                    "program": str(first.program),
                    "text": first.text,
                }
                print(f"{plant}: {found[plant]}", flush=True)
                document = {"seed": SEED, "executorch": EXECUTORCH, "found": found}
                KEPT.write_text(json.dumps(document, indent=1) + "\n", "utf-8")
                del left[plant]
            if not left:
                break
        trial.exports.close()


def kept() -> dict[str, Any]:
    found: dict[str, Any] = {"found": {}}
    return json.loads(KEPT.read_text("utf-8")) if KEPT.is_file() else found


def table(results: dict[str, Any]) -> str:
    lines = ["| planted | what it breaks | seen as | programs |", "| --- | --- | --- | ---: |"]
    for plant in PLANTS:
        seen = results["found"].get(plant.name, {"kind": "not found", "programs": ""})
        lines.append(f"| {plant.name} | {plant.what} | {seen['kind']} | {seen['programs']} |")
    return "\n".join(lines) + "\n"


if __name__ == "__main__":
    search()
    print(table(kept()))
