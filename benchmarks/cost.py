"""Counted instructions: the same every time, and what a small growth shows.

    python -m benchmarks.cost
    python -m benchmarks.cost --runs 1 --layers 50    # does it work?

same
    Counted runs of two models, first with the machine left alone, then with two busy processes per
    core. Every count of every operator and kernel has to be equal.
layers
    A program of 1,000 equal layers as the baseline: it is judged against itself and against one of
    1,001 layers, which is 0.1 % more work, each time with a run of its own.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from benchmarks.detection_programs import layers_artifact
from benchmarks.harness import Claim, finish, parser_of
from benchmarks.running import ROOT
from pytest_sme2.export.artifacts import export_model
from pytest_sme2.export.discovery import discover
from pytest_sme2.export.variant import parse_variant
from pytest_sme2.profile.build import build_profile
from pytest_sme2.profile.cost import build_cost
from pytest_sme2.results import (
    Arm,
    Artifact,
    CaseResult,
    InferenceCost,
    Limits,
    Outcome,
    RunRequest,
    Structure,
)
from pytest_sme2.runners.base import Runner
from pytest_sme2.runners.sme2 import wheel_runner
from pytest_sme2.system.platforms import LINUX_AARCH64
from pytest_sme2.system.qemu import find_qemu
from pytest_sme2.targets.census import observed_run
from pytest_sme2.targets.emulated import EmulatedTarget
from pytest_sme2.trace.etdump import read_etdump
from pytest_sme2.verdict import baselines
from pytest_sme2.verdict.cost import check_cost

SAME_CASES = ("toy_cnn:fp32", "llama_block_decode:int8_dynamic")


@dataclass(frozen=True)
class Bench:
    """What everything here runs on."""

    target: EmulatedTarget
    runner: Runner

    def cost(self, artifact: Artifact, arm: Arm, folder: Path) -> InferenceCost:
        """One inference, counted now."""
        made = observed_run(self.target, self.runner, request(artifact, arm, True), folder)
        assert made.run.etdump is not None
        assert made.counted is not None
        columns = read_etdump(made.run.etdump)
        return build_cost(
            made.counted,
            columns,
            build_profile(columns, census=made.census),
            cpu=self.target.cpu.model(arm),
            toolchain=self.runner.toolchain,
        )


def request(artifact: Artifact, arm: Arm, counted: bool) -> RunRequest:
    return RunRequest(artifact, arm, warmup=0, runs=1, traced=True, counted=counted)


def artifact_of(case: str) -> Artifact:
    model, _, variant = case.partition(":")
    return export_model(discover([ROOT / "models"]).get(model), parse_variant(variant))


@contextmanager
def load() -> Iterator[None]:
    """Two processes per core that only count; a little aside, for others who work here."""
    busy = [
        subprocess.Popen(
            [sys.executable, "-c", "import os; os.nice(10)\nwhile True: sum(range(100_000))"]
        )
        for _ in range(2 * (os.cpu_count() or 1))
    ]
    try:
        yield
    finally:
        for process in busy:
            process.kill()
            process.wait()


# --- the same every time --------------------------------------------------------------------------


def same(bench: Bench, folder: Path, runs: int) -> tuple[list[Claim], dict[str, Any]]:
    claims, details = [], {}
    for case in SAME_CASES:
        artifact = artifact_of(case)
        found = _counted_often(bench, artifact, folder, runs)
        with load():
            found += _counted_often(bench, artifact, folder, runs)
        different = sum(cost != found[0] for cost in found)
        what = f"of {2 * runs} counted runs of `{case}`, half of them under load: different counts"
        claims.append(Claim(f"different {case}", what, different, limit=0))
        details[case] = {
            "runs": runs,
            "runs under load": runs,
            "instructions": sorted({cost.total.instructions for cost in found}),
        }
    return claims, {"same": details}


def _counted_often(
    bench: Bench, artifact: Artifact, folder: Path, runs: int
) -> list[InferenceCost]:
    found = []
    for number in range(runs):
        found.append(bench.cost(artifact, Arm.ON, folder))
        print(f"{artifact.model} {number + 1}: {found[-1].total.instructions:,}", flush=True)
    return found


# --- one layer more -------------------------------------------------------------------------------


def layers(bench: Bench, folder: Path, runs: int, count: int) -> tuple[list[Claim], dict[str, Any]]:
    equal, more = layers_artifact(count), layers_artifact(count + 1)
    stored, _ = baselines.update(None, _case(bench, bench.cost(equal, Arm.ON, folder)))
    outcomes: dict[str, list[Outcome]] = {}
    for name, artifact in (("equal", equal), ("one more", more)):
        outcomes[name] = [
            check_cost(
                _case(bench, bench.cost(artifact, Arm.ON, folder)), stored, Limits(), Arm.ON
            ).verdict
            for _ in range(runs)
        ]
    caught = outcomes["one more"].count(Outcome.REGRESSED) / runs
    alarms = sum(outcome is not Outcome.PASS for outcome in outcomes["equal"])
    claims = [
        Claim(
            "caught",
            f"{count + 1:,} equal layers against {count:,}: caught, of {runs} verdicts",
            caught,
            "%",
            limit=1.0,
            least=True,
        ),
        Claim("alarms", f"{count:,} layers against {count:,}: alarms of {runs}", alarms, limit=0),
    ]
    told = {name: [str(outcome) for outcome in found] for name, found in outcomes.items()}
    return claims, {"layers": {"count": count, **told}}


def _case(bench: Bench, cost: InferenceCost) -> CaseResult:
    return CaseResult(
        "layers",
        "fp32",
        bench.target.fingerprint(),
        True,
        bench.runner.kind,
        "",
        "",
        structures={Arm.ON: Structure(())},
        costs={Arm.ON: cost},
    )


def main(argv: Sequence[str] | None = None) -> int:
    parser = parser_of(__doc__)
    parser.add_argument("--runs", type=int, default=20, help="counted runs; default %(default)s")
    parser.add_argument("--layers", type=int, default=1000, help="default %(default)s")
    arguments = parser.parse_args(argv)
    bench = Bench(EmulatedTarget(find_qemu()), wheel_runner(LINUX_AARCH64))
    with tempfile.TemporaryDirectory() as name:
        claims, details = same(bench, Path(name), arguments.runs)
        more, told = layers(bench, Path(name), arguments.runs, arguments.layers)
    return finish([*claims, *more], arguments.json, {**details, **told})


if __name__ == "__main__":
    sys.exit(main())
