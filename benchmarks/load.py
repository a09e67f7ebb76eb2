"""How much memory a large run takes: the controller's at the end, and that of its workers.

    python -m benchmarks.load [--cases 200] [--operators 2000] [--runs 10000] [--json FILE]

Each part runs in a process of its own, whose peak memory the system reports:

    controller  the conclusion of a run of 200 cases of 2,000 operators each: every report of it
    worker      one of these cases: its two ETDumps read, profiled and compared, its files written
    runs        an ETDump of 10,000 runs of 12 operators: read and profiled, as a worker does

The cases are made up, with times and verdicts from a seed; reading, judging and writing are the
product's own. Limits: 1 GiB for the controller, 512 MiB for a worker, so that two workers and a
controller fit into a machine of 4 GiB.
"""

from __future__ import annotations

import multiprocessing
import random
import resource
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

from benchmarks.harness import Claim, finish, parser_of
from pytest_sme2.plugin.conclusion import conclude_run
from pytest_sme2.profile.build import build_profile
from pytest_sme2.profile.compare import compare
from pytest_sme2.report.writing import write_case
from pytest_sme2.results import PAIR, Arm, Check, Estimate, Outcome
from pytest_sme2.session.analysis import analyze_file
from pytest_sme2.session.run_directory import read_record
from pytest_sme2.session.settings import Settings
from pytest_sme2.system.files import encode
from tests.support.etdump_builder import build_etdump
from tests.support.profiles import Call, run_of
from tests.support.records import write_case as write_record

MOST_CONTROLLER_MIB = 1024.0
MOST_WORKER_MIB = 512.0
RUN_OPERATORS = 12
Peak = tuple[float, float]
"""MiB, and seconds of CPU time."""

VARIANTS = ("fp32", "fp16", "int8", "int8_dynamic")
_VERDICTS = (Outcome.PASS,) * 6 + (Outcome.REGRESSED, Outcome.INCONCLUSIVE, Outcome.IMPROVED)
# What each in turn takes, in nanoseconds, with SME2 off and on; {} is where SME2 shows.
_KINDS = (
    ("Convolution (NHWC, {}F32) IGEMM", 240_000, 60_000),
    ("Fully Connected (NC, {}F32) GEMM", 90_000, 30_000),
    ("Transpose (ND, X32) Transpose", 50_000, 50_000),
    ("Convolution (NHWC, {}F32) IGEMM", 240_000, 60_000),
    ("Add (ND)", 9_000, 9_000),
    ("Convolution (NHWC, F32) DWConv", 20_000, 20_000),
    ("Clamp (NC)", 5_000, 5_000),
)
_DELEGATED = 60
"""Operators in one delegate call; a portable one stands between two calls."""


def calls(arm: Arm, operators: int, source: random.Random) -> list[Call]:
    """A program of so many operators."""
    made: list[Call] = []
    inside: list[tuple[str, int]] = []
    counts: dict[str, int] = {}
    for index in range(operators):
        name, off, on = _KINDS[index % len(_KINDS)]
        name = name.format("P" if arm is Arm.ON else "")
        counts[name] = counts.get(name, 0) + 1
        duration = int((on if arm is Arm.ON else off) * source.uniform(0.5, 1.5))
        inside.append((f"{name} #{counts[name]}", duration))
        if len(inside) == _DELEGATED:
            made += [inside, ("mean.out", 40_000)]
            inside = []
    return [*made, inside] if inside else made


def dump(arm: Arm, operators: int, source: random.Random, runs: int = 3) -> bytes:
    program = calls(arm, operators, source)
    return build_etdump([run_of(program, slower=source.uniform(0.98, 1.02)) for _ in range(runs)])


def write_cases(root: Path, count: int, operators: int) -> Iterator[Path]:
    """The folders of so many cases, as a run leaves them before it is concluded."""
    source = random.Random(1)
    for index in range(count):
        off = source.uniform(2, 900) * 1e6
        speedup = source.uniform(1.1, 4)
        verdict = _VERDICTS[index % len(_VERDICTS)]
        check = Check(
            "latency (on)",
            verdict,
            "The latency is compared with the baseline's.",
            old=0.97 * off / speedup,
            new=off / speedup,
            unit="ns",
            details=("CONV grew by 2 ms",),
        )
        yield write_record(
            root,
            f"model_{index // len(VARIANTS)}",
            VARIANTS[index % len(VARIANTS)],
            {arm: dump(arm, operators, source) for arm in PAIR},
            checks=(check,),
            medians_ns={
                Arm.OFF: tuple(off * source.gauss(1, 0.01) for _ in range(20)),
                Arm.ON: tuple(off / speedup * source.gauss(1, 0.01) for _ in range(20)),
            },
            speedup=Estimate(speedup, 0.98 * speedup, 1.02 * speedup, 0.99, 20),
        )


def controller(out: Path) -> None:
    folders, checks = {}, {}
    for path in sorted(out.rglob("metrics.json")):
        record = read_record(path.parent)
        folders[record.id] = str(path.parent)
        checks[record.id] = encode(record.checks)
    lines, wrong = conclude_run(folders, checks, Settings(out=out, report=out / "report.html"))
    if wrong:
        raise SystemExit("\n".join(lines))


def worker(case: Path) -> None:
    dumps = sorted(case.rglob("*.etdump"))
    profiles = [analyze_file(path).profile for path in dumps]
    compare(profiles[0], profiles[-1])
    write_case(case, read_record(case))


def runs(path: Path) -> None:
    build_profile(analyze_file(path).columns)


def measured(work: Callable[[Path], None], path: Path) -> Peak:
    """Do the work in a fresh process."""
    context = multiprocessing.get_context("spawn")
    with context.Pool(1) as pool:
        return pool.apply(_work, (work, path))


def _work(work: Callable[[Path], None], path: Path) -> Peak:
    started = time.process_time()
    work(path)
    used = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    # Linux counts in KiB, macOS in bytes.
    return used / (1 << 20 if sys.platform == "darwin" else 1 << 10), time.process_time() - started


def main(argv: Sequence[str] | None = None) -> int:
    parser = parser_of(__doc__)
    parser.add_argument("--cases", type=int, default=200)
    parser.add_argument("--operators", type=int, default=2000)
    parser.add_argument("--runs", type=int, default=10_000)
    arguments = parser.parse_args(argv)
    cases, operators = arguments.cases, arguments.operators
    with tempfile.TemporaryDirectory() as name:
        root = Path(name)
        folders = list(write_cases(root / "out", cases, operators))
        worker_mib, worker_seconds = measured(worker, folders[0])
        controller_mib, controller_seconds = measured(controller, root / "out")
        etdump = root / "runs.etdump"
        etdump.write_bytes(dump(Arm.ON, RUN_OPERATORS, random.Random(1), arguments.runs))
        runs_mib, runs_seconds = measured(runs, etdump)
    of_cases = f"{cases} cases of {operators:,} operators"
    of_runs = f"an ETDump of {arguments.runs:,} runs"
    return finish(
        [
            Claim(
                "controller",
                f"peak memory of the controller, {of_cases}",
                controller_mib,
                "MiB",
                limit=MOST_CONTROLLER_MIB,
            ),
            Claim(
                "worker",
                f"peak memory of a worker, a case of {operators:,} operators",
                worker_mib,
                "MiB",
                limit=MOST_WORKER_MIB,
            ),
            Claim(
                "runs",
                f"peak memory of a worker, {of_runs}",
                runs_mib,
                "MiB",
                limit=MOST_WORKER_MIB,
            ),
            Claim("conclude", f"concluding {of_cases}, CPU time", controller_seconds, "s"),
        ],
        arguments.json,
        {
            "cases": cases,
            "operators": operators,
            "runs": arguments.runs,
            "worker_seconds": worker_seconds,
            "runs_seconds": runs_seconds,
        },
    )


if __name__ == "__main__":
    sys.exit(main())
