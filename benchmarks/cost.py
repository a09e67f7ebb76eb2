"""Counted instructions: the same every time, what a small growth shows, and what counting costs.

    python -m benchmarks.cost                                # all of it; long
    python -m benchmarks.cost same --runs 20                 # one part
    python -m benchmarks.cost counting --cases toy_cnn:fp32,mobilenet_v3_small:int8

same
    Counted runs of two models, first with the machine left alone, then with two busy processes per
    core. Every count of every operator and kernel has to be equal.
layers
    A program of 1,000 equal layers as the baseline: it is judged against itself and against one of
    1,001 layers, which is 0.1 % more work, each time with a run of its own.
counting
    Each model of the suite without counting and with it, in turns: CPU time, which other work on
    the machine changes little. The counter's memory is taken with a log once and with the same log
    twenty times over.
suite
    ``pytest tests/performance`` from empty and from full caches of emulated runs, with counting and
    without. Exports are made before.
"""

from __future__ import annotations

import os
import resource
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
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
    PAIR,
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
from pytest_sme2.targets.census import block_counter, observed_run
from pytest_sme2.targets.emulated import EmulatedTarget
from pytest_sme2.trace.etdump import read_etdump
from pytest_sme2.verdict import baselines
from pytest_sme2.verdict.cost import check_cost

SAME_CASES = ("toy_cnn:fp32", "llama_block_decode:int8_dynamic")
SUITE_CASES = (
    "toy_cnn:fp32", "toy_cnn:fp16", "toy_cnn:int8", "toy_cnn:int8_dynamic",
    "llama_block_decode:fp32", "llama_block_decode:fp16", "llama_block_decode:int8_dynamic",
    "llama_block_decode:int4", "llama_block_prefill:fp32@32", "llama_block_prefill:fp16@32",
    "llama_block_prefill:int8_dynamic@32", "llama_block_prefill:int4@32",
    "mobilenet_v3_small:fp32", "mobilenet_v3_small:fp16", "mobilenet_v3_small:int8",
    "squeeze_sam:fp32@16", "edgetam_image_encoder:fp32@64", "edgetam_image_encoder:fp16@64",
)  # fmt: skip
MOST_COUNTING = 1.5
MOST_MEMORY_GROWTH = 1.05
MOST_WARM_SECONDS = 30.0
_TIMES_OVER = 20


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


# --- what counting costs --------------------------------------------------------------------------


def cpu_seconds() -> float:
    """Of all processes that were started here and have ended."""
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def uncounted(bench: Bench, artifact: Artifact, arm: Arm, folder: Path) -> float:
    # As the suite runs it without counting: with the log that names the kernels.
    begun = cpu_seconds()
    log = folder / "qemu.log"
    target = bench.target.with_options("-d", "in_asm,strace", "-D", str(log))
    target.run(bench.runner, request(artifact, arm, False), folder)
    return cpu_seconds() - begun


def counted(bench: Bench, artifact: Artifact, arm: Arm, folder: Path) -> float:
    begun = cpu_seconds()
    observed_run(bench.target, bench.runner, request(artifact, arm, True), folder)
    return cpu_seconds() - begun


def counting_cost(
    bench: Bench, folder: Path, cases: Sequence[str], rounds: int
) -> tuple[list[Claim], dict[str, Any]]:
    rows: dict[str, dict[str, float]] = {}
    folder.mkdir(parents=True, exist_ok=True)
    for case in cases:
        artifact = artifact_of(case)
        for arm in PAIR:
            pairs = [
                (uncounted(bench, artifact, arm, folder), counted(bench, artifact, arm, folder))
                for _ in range(rounds)
            ]
            rows[f"{case} {arm}"] = _row(pairs)
            print(f"{case} {arm}", flush=True)
    return [*_counting_claims(rows), _memory(bench, folder)], {"counting": rows}


def _counting_claims(rows: Mapping[str, Mapping[str, float]]) -> list[Claim]:
    """What counting takes of each, and of all together."""
    plain, whole = (
        sum(row[name] for row in rows.values()) for name in ("uncounted_s", "counted_s")
    )
    return [
        *(
            Claim(
                f"counting {name}",
                f"counting `{name}`: CPU time over that without counting",
                row["ratio"],
                "x",
            )
            for name, row in rows.items()
        ),
        Claim(
            "counting all",
            "counting all of these: CPU time over that without counting",
            whole / plain,
            "x",
            limit=MOST_COUNTING,
        ),
    ]


def _row(pairs: Sequence[tuple[float, float]]) -> dict[str, float]:
    plain, whole = (statistics.median(taken) for taken in zip(*pairs, strict=True))
    return {
        "uncounted_s": round(plain, 2),
        "counted_s": round(whole, 2),
        "ratio": round(whole / plain, 3),
    }


def _memory(bench: Bench, folder: Path) -> Claim:
    log = folder / "whole.log"
    target = bench.target.with_options("-d", "in_asm,strace,exec,nochain", "-D", str(log))
    target.run(bench.runner, request(artifact_of("toy_cnn:int8"), Arm.ON, False), folder)
    once, often = (_peak_of_counter(folder, log, times) for times in (1, _TIMES_OVER))
    return Claim(
        "memory",
        f"the counter's peak memory with a log {_TIMES_OVER} times as long",
        often / once,
        "x",
        limit=MOST_MEMORY_GROWTH,
    )


def _peak_of_counter(folder: Path, log: Path, times: int) -> int:
    command = [str(block_counter()), str(folder / "counts"), str(folder / "rest")]
    process = subprocess.Popen(command, stdin=subprocess.PIPE)
    assert process.stdin is not None
    process.stdin.write(b'1 faccessat(-1,"sme2:inference",F_OK,0) = -1\n')
    for _ in range(times):
        with log.open("rb") as file:
            while block := file.read(1 << 20):
                process.stdin.write(block)
    process.stdin.close()
    _, status, used = os.wait4(process.pid, 0)
    if status != 0:
        raise SystemExit(f"the counter ended with status {status}")
    return used.ru_maxrss


# --- the suite ------------------------------------------------------------------------------------


def suite(folder: Path, models: str) -> tuple[list[Claim], dict[str, Any]]:
    seconds: dict[str, float] = {}
    for name, options in (("without counting", ("--sme2-no-cost",)), ("with counting", ())):
        _suite(folder / "warm-up", models, *options, "--sme2-no-cost", "--sme2-fresh")
        seconds[f"cold, {name}"] = _suite(folder / name, models, *options, "--sme2-fresh")
        seconds[f"warm, {name}"] = _suite(folder / name, models, *options)
    claims = [
        Claim(
            name,
            f"the suite, {name}",
            taken,
            "s",
            limit=MOST_WARM_SECONDS if name.startswith("warm") else None,
        )
        for name, taken in seconds.items()
    ]
    return claims, {"suite": {"models": models or "all", **seconds}}


def _suite(out: Path, models: str, *options: str) -> float:
    command = [
        *(sys.executable, "-m", "pytest", "tests/performance", "--device=emulated", "-q"),
        *("-p", "no:cacheprovider", f"--sme2-out={out}", *options),
        *([f"--sme2-models={models}"] if models else []),
    ]
    begun = time.monotonic()
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        raise SystemExit(f"{done.stdout[-3000:]}\nThe suite failed: {' '.join(command)}")
    return time.monotonic() - begun


def main(argv: Sequence[str] | None = None) -> int:
    parser = parser_of(__doc__)
    parts = ("same", "layers", "counting", "suite")
    parser.add_argument("parts", nargs="*", metavar="PART", help=", ".join(parts))
    parser.add_argument("--runs", type=int, default=20, help="counted runs; default %(default)s")
    parser.add_argument("--layers", type=int, default=1000, help="default %(default)s")
    parser.add_argument("--rounds", type=int, default=3, help="of counting; default %(default)s")
    parser.add_argument("--cases", default=",".join(SUITE_CASES), help="MODEL:VARIANT,…")
    parser.add_argument("--models", default="", help="of the suite; default: all")
    arguments = parser.parse_args(argv)
    unknown = sorted({*arguments.parts} - {*parts})
    if unknown:
        parser.error(f"{unknown[0]!r} is not a part. Choose from: {', '.join(parts)}")
    bench = Bench(EmulatedTarget(find_qemu()), wheel_runner(LINUX_AARCH64))
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        calls: dict[str, Callable[[], tuple[list[Claim], dict[str, Any]]]] = {
            "same": lambda: same(bench, folder, arguments.runs),
            "layers": lambda: layers(bench, folder, arguments.runs, arguments.layers),
            "counting": lambda: counting_cost(
                bench, folder, arguments.cases.split(","), arguments.rounds
            ),
            "suite": lambda: suite(folder, arguments.models),
        }
        claims: list[Claim] = []
        details: dict[str, Any] = {}
        for part in arguments.parts or parts:
            made, told = calls[part]()
            claims += made
            details |= told
    return finish(claims, arguments.json, details)


if __name__ == "__main__":
    sys.exit(main())
