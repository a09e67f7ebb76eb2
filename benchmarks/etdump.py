"""Times ETDump to category table against ExecuTorch's Inspector, and its growth with size.

    python -m benchmarks.etdump [--runs 10000] [--largest-mb 100] [--json FILE]

It needs the export extra: it exports a small program and traces it. Fair, because both sides read
the same real dump, each in a process of its own that has imported and read another dump before its
clock starts, and both end where a user begins to look: ours with the time by name or category,
Inspector with its DataFrame. Each side's quickest reading counts, of three by Inspector and of as
many by ours as take about as long together. Memory is what a reading adds to the process after its
imports.
"""

from __future__ import annotations

import multiprocessing
import resource
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path
from typing import Any

from benchmarks.harness import Claim, finish, parser_of

LEAST_SPEEDUP = 100.0
FEWEST_RUNS = 10_000
GREATEST_PEAK_MB = 100.0
# Caches and the operating system have their say; a quadratic reader would show 100 here.
GREATEST_GROWTH = 2.0

INSPECTOR_READINGS = 3
READINGS = 300
PEER = "ExecuTorch's Inspector"

_RSS_UNIT = 1 if sys.platform == "darwin" else 1024


def categories(path: Path) -> Any:
    """Our side: read, and make the profile with the category table, as ``report analyze`` does."""
    from pytest_sme2.profile.build import build_profile
    from pytest_sme2.trace.etdump import read_etdump

    return build_profile(read_etdump(path)).category_ns


def frame(path: Path) -> Any:
    """Inspector's side: its DataFrame."""
    from executorch.devtools import Inspector

    return Inspector(etdump_path=str(path)).to_dataframe()


def measure(call: Callable[[Path], Any], path: Path, warm: Path, repeats: int) -> dict[str, float]:
    """In a child: the quickest of ``repeats``, and how far memory rose above the imports."""
    call(warm)
    imported = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    seconds = []
    cpu_seconds = []
    for _ in range(repeats):
        started, cpu_started = time.perf_counter(), time.process_time()
        call(path)
        seconds.append(time.perf_counter() - started)
        cpu_seconds.append(time.process_time() - cpu_started)
    risen = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - imported
    return {
        "seconds": min(seconds),
        "cpu_seconds": min(cpu_seconds),
        "rss_mb": risen * _RSS_UNIT / 1e6,
    }


def trace(path: Path, runs: int) -> Path:
    """In a child: the ETDump of so many inferences, by ExecuTorch's Python runtime."""
    from tests.support import etdump_programs

    program = path.with_name("toy.pte")
    if not program.exists():
        program.write_bytes(etdump_programs.export("toy", "fp32"))
    path.write_bytes(etdump_programs.trace(program.read_bytes(), ["forward"] * runs))
    return path


def in_child(call: Callable[..., Any], *words: Any) -> Any:
    """What it returns in a process of its own.

    This one stays small: a child's peak memory is counted from what its parent had.
    """
    with ProcessPoolExecutor(1, mp_context=multiprocessing.get_context("spawn")) as pool:
        return pool.submit(call, *words).result()


def compare(runs: int, largest_mb: float, repeats: int) -> dict[str, Any]:
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        warm = in_child(trace, folder / "warm.etdump", 2)
        path = in_child(trace, folder / "runs.etdump", runs)
        size_mb = path.stat().st_size / 1e6
        inspector = in_child(measure, frame, path, warm, INSPECTOR_READINGS)
        reader = in_child(measure, categories, path, warm, READINGS)
        growth = []
        for part in (0.01, 0.1, 0.3, 1.0):
            count = round(runs * largest_mb / size_mb * part)
            larger = in_child(trace, folder / "larger.etdump", count)
            megabytes = larger.stat().st_size / 1e6
            growth.append({"mb": megabytes, **in_child(measure, categories, larger, warm, repeats)})
    # The smallest is all fixed cost and says nothing about growth. The reader is one thread, so
    # its CPU time is its time, whatever else the machine does.
    rates = [row["cpu_seconds"] / row["mb"] for row in growth[1:]]
    return {
        "runs": runs,
        "mb": size_mb,
        "reader": reader,
        "inspector": inspector,
        "speedup": inspector["seconds"] / reader["seconds"],
        "growth": growth,
        "growth_ratio": max(rates) / min(rates),
    }


def claims(result: dict[str, Any]) -> list[Claim]:
    """The limits are for dumps of the sizes they were set for; smaller ones are all fixed cost."""
    reader, inspector = result["reader"], result["inspector"]
    dump = f"a dump of {result['runs']:,} runs ({result['mb']:.1f} MB)"
    largest = f"{result['growth'][-1]['mb']:.0f} MB"

    def limit(value: float) -> float | None:
        return value if result["runs"] >= FEWEST_RUNS else None

    return [
        Claim("speedup", f"reading {dump}: how many times faster than Inspector",
              result["speedup"], "x", limit=limit(LEAST_SPEEDUP), least=True),
        Claim("seconds", f"reading {dump}", reader["seconds"], "s",
              peer=PEER, peer_value=inspector["seconds"]),
        Claim("memory", f"memory for {dump}", reader["rss_mb"], "MB",
              limit=limit(GREATEST_PEAK_MB), peer=PEER, peer_value=inspector["rss_mb"]),
        Claim("growth", f"time a megabyte, largest over smallest, up to {largest}",
              result["growth_ratio"], "x", limit=limit(GREATEST_GROWTH)),
    ]  # fmt: skip


def main(arguments: Sequence[str] | None = None) -> int:
    parser = parser_of(__doc__)
    parser.add_argument("--runs", type=int, default=10_000, help="of 12 events each")
    parser.add_argument("--largest-mb", type=float, default=100.0, help="where growth ends")
    parser.add_argument("--repeats", type=int, default=7)
    options = parser.parse_args(arguments)
    result = compare(options.runs, options.largest_mb, options.repeats)
    return finish(claims(result), options.json, result)


if __name__ == "__main__":
    sys.exit(main())
