"""How much memory a large run takes: the controller's at the end, and that of its workers.

    python -m benchmarks.load [--cases 200] [--operators 2000] [--runs 10000] [--json FILE]

Each part runs in a process of its own, whose peak memory the system reports:

    controller  the conclusion of a run of 200 cases of 2,000 operators each: every report of it
    worker      one of these cases: its two ETDumps read, profiled and compared, its files written
    runs        an ETDump of 10,000 runs of 12 operators: read and profiled, as a worker does

The cases are made up (many_cases.py); reading, judging and writing are the product's own. Limits:
1 GiB for the controller, 512 MiB for a worker, so that two workers and a controller fit into a
machine of 4 GiB.
"""

from __future__ import annotations

import argparse
import multiprocessing
import random
import resource
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from pathlib import Path

from benchmarks.claims import Claim, finish
from benchmarks.many_cases import dump, write_cases
from pytest_sme2.plugin.conclusion import conclude_run
from pytest_sme2.profile.build import build_profile
from pytest_sme2.profile.compare import compare
from pytest_sme2.report.writing import write_case
from pytest_sme2.results import Arm
from pytest_sme2.session.analysis import analyze_file
from pytest_sme2.session.run_directory import read_record
from pytest_sme2.session.settings import Settings
from pytest_sme2.system.files import encode

MOST_CONTROLLER_MIB = 1024.0
MOST_WORKER_MIB = 512.0
RUN_OPERATORS = 12
Peak = tuple[float, float]
"""MiB, and seconds of CPU time."""


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
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--cases", type=int, default=200)
    parser.add_argument("--operators", type=int, default=2000)
    parser.add_argument("--runs", type=int, default=10_000)
    parser.add_argument("--json", type=Path, metavar="FILE")
    arguments = parser.parse_args(argv)
    cases, operators = arguments.cases, arguments.operators
    with tempfile.TemporaryDirectory() as name:
        root = Path(name)
        folders = list(write_cases(root / "out", cases, (operators,)))
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
