"""How well counted instructions predict time, operator by operator, on an Arm machine.

    python -m benchmarks.cost_and_time [--json FILE]

Only on Linux on Arm. Each model runs without SME2: once counted, on an emulated CPU like this one
where QEMU has it, and a few times timed and traced on this machine. Both have the same operators,
so their instructions and their times can be compared one by one: rank correlation, correlation, and
the shares of each operation side by side. Fair to neither side are operators that wait for memory,
which is the point: the table shows where cost must not be trusted.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
from collections import Counter
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from benchmarks.claims import Claim, finish
from benchmarks.cost import Bench, artifact_of
from pytest_sme2.profile.build import build_profile
from pytest_sme2.results import Arm, InferenceCost, Profile, RunRequest
from pytest_sme2.runners.sme2 import wheel_runner
from pytest_sme2.system.platforms import LINUX_AARCH64, host_platform
from pytest_sme2.system.qemu import EmulatedCpu, find_qemu
from pytest_sme2.targets.emulated import EmulatedTarget
from pytest_sme2.targets.local import LocalTarget
from pytest_sme2.trace.etdump import read_etdump

CASES = (
    "toy_cnn:fp32",
    "mobilenet_v3_small:fp32",
    "mobilenet_v3_small:int8",
    "llama_block_prefill:fp32@32",
    "squeeze_sam:fp32@64",
)
LEAST_RANK_CORRELATION = 0.9
# The parts that QEMU emulates by name, by Arm's implementer and part.
EMULATED = {
    "0x41:0xd08": "cortex-a72",
    "0x41:0xd0b": "cortex-a76",
    "0x41:0xd0c": "neoverse-n1",
    "0x41:0xd40": "neoverse-v1",
    "0x41:0xd49": "neoverse-n2",
}


class NamedCpu(EmulatedCpu):
    """A CPU that QEMU knows by name; none of them has SME2."""

    def model(self, arm: Arm) -> str:
        return self.name


@dataclass(frozen=True)
class Operator:
    """One operator, counted and timed."""

    name: str
    instructions: int
    time_ns: float


@dataclass(frozen=True)
class Agreement:
    """How well the two go together."""

    operators: int
    rank_correlation: float
    correlation: float
    shares: dict[str, tuple[float, float]]
    """By operation: of the instructions, and of the time; most instructions first."""


def joined(cost: InferenceCost, timed: Profile) -> list[Operator]:
    """The operators of both, which have to be the same."""
    names = [entry.name for entry in cost.operators]
    if names != [entry.operator.name for entry in timed.operators]:
        raise SystemExit("The counted and the timed run have different operators.")
    return [
        Operator(counted.name, counted.counts.instructions, entry.median_ns)
        for counted, entry in zip(cost.operators, timed.operators, strict=True)
    ]


def agreement(operators: Sequence[Operator]) -> Agreement:
    from scipy.stats import pearsonr, spearmanr

    instructions = [entry.instructions for entry in operators]
    times = [entry.time_ns for entry in operators]
    work: Counter[str] = Counter()
    time: Counter[str] = Counter()
    for entry in operators:
        operation = entry.name.partition(" (")[0]
        work[operation] += entry.instructions
        time[operation] += round(entry.time_ns)
    return Agreement(
        operators=len(operators),
        rank_correlation=float(spearmanr(instructions, times).statistic),
        correlation=float(pearsonr(instructions, times).statistic),
        shares={
            name: (count / sum(work.values()), time[name] / sum(time.values()))
            for name, count in work.most_common()
        },
    )


def cpu_here() -> EmulatedCpu:
    part = dict(LocalTarget().fingerprint().facts)["cpu"]
    return NamedCpu(EMULATED[part]) if part in EMULATED else EmulatedCpu("strict")


def main(argv: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--cases", default=",".join(CASES), help="MODEL:VARIANT,…")
    parser.add_argument("--runs", type=int, default=30, help="timed; default %(default)s")
    parser.add_argument("--json", type=Path, metavar="FILE")
    arguments = parser.parse_args(argv)
    if host_platform() != LINUX_AARCH64:
        print(
            "Counted cost is compared with measured time, and this machine "
            f"({host_platform()}) does not execute Arm instructions. "
            "Run this on Linux on an Arm CPU.",
            file=sys.stderr,
        )
        return 2
    cpu = cpu_here()
    runner = wheel_runner(LINUX_AARCH64)
    bench = Bench(EmulatedTarget(find_qemu(), cpu=cpu), runner)
    claims: list[Claim] = []
    details: dict[str, Any] = {"emulated CPU": str(cpu)}
    with tempfile.TemporaryDirectory() as name:
        for case in arguments.cases.split(","):
            artifact = artifact_of(case)
            cost = bench.cost(artifact, Arm.OFF, Path(name) / "counted")
            request = RunRequest(artifact, Arm.OFF, warmup=3, runs=arguments.runs, traced=True)
            run = LocalTarget().run(runner, request, Path(name) / "timed")
            if run.etdump is None:
                raise SystemExit(f"{case}: the timed run left no ETDump.")
            found = agreement(joined(cost, build_profile(read_etdump(run.etdump))))
            claims.append(
                Claim(
                    f"rank {case}",
                    f"`{case}`: rank correlation of instructions and time, "
                    f"{found.operators} operators",
                    found.rank_correlation,
                    limit=LEAST_RANK_CORRELATION,
                    least=True,
                )
            )
            claims.append(Claim(f"linear {case}", f"`{case}`: correlation", found.correlation))
            details[case] = asdict(found)
            for operation, (work, time) in found.shares.items():
                print(f"{case} {operation}: {work:.1%} of the instructions, {time:.1%} of the time")
    return finish(claims, arguments.json, details)


if __name__ == "__main__":
    sys.exit(main())
