"""All benchmarks as one command: run them, and write down what they claim.

    python -m benchmarks --quick           # minutes: does everything work?
    python -m benchmarks                   # the figures; on an idle machine
    python -m benchmarks history faults    # those that take long, by name, or all with --all
    python -m benchmarks table --take      # into benchmarks/results, docs/project.md, README.md

Each benchmark runs alone, in a process of its own. Exit code 0: all limits met; 1: one was missed;
3: one did not run. Those with ``collect`` report on what was collected before.

A test compares the figures of the pages with the kept results, so nobody can change one by hand.
"""

from __future__ import annotations

import argparse
import shutil
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from benchmarks.harness import ROOT, Benchmark, Table, read_result, run_one, table_lines

OUT = ROOT / "sme2-out" / "benchmarks"
KEPT = ROOT / "benchmarks" / "results"
Results = dict[str, dict[str, Any]]

BENCHMARKS = (
    Benchmark(
        "startup",
        "Installed but not used, the plugin adds **{cost}** to the start of pytest. "
        "pytest-benchmark adds {cost.peer}.",
        quick=("--rounds", "5"),
    ),
    Benchmark(
        "first_run",
        "The main command takes **{total}** from nothing, {ours} of it after the installation, and "
        "{again} once more.",
        long=True,
    ),
    Benchmark(
        "detection_gate",
        "The whole gate on a loaded machine: of {slower} verdicts on programs at least 5 % slower, "
        "**{green}** pass. Of {equal} on equal programs, {alarms} are red, whatever the verdict is "
        "called.",
        words=("report",),
        long=True,
    ),
    Benchmark("simulated_gate", long=True),
    Benchmark(
        "history",
        "Of {histories} simulated histories with 0.3 to 5 % noise, intervals hold the true size of "
        "**{sizes}** of the changes told; {as steps} of the drifts are told as steps, and "
        "`--fail-on 5%` is red on {red 5%} of 1,000 equal ones.",
        long=True,
    ),
    Benchmark(
        "blame",
        "Of {edits} planted edits, the first line of a failure names **{right}**, and {innocent} "
        "times a line that has nothing to do with it.",
        words=("report",),
        long=True,
    ),
    Benchmark("attacks"),
    Benchmark(
        "faults",
        "Faults of a phone during a measurement (a fake phone behind a real adbd): **{clean} of "
        "{trials}** trials ended cleanly.",
        quick=("--quick",),
        long=True,
    ),
    Benchmark(
        "hostile",
        "Kills, full disks, damaged files and hostile names: **{clean} of {trials}** trials ended "
        "cleanly.",
        quick=("--quick",),
        long=True,
    ),
)
BY_NAME = {benchmark.name: benchmark for benchmark in BENCHMARKS}


def chosen(names: Sequence[str], *, quick: bool, everything: bool) -> list[Benchmark]:
    """What to run: what is named, else all that fits the kind of run."""
    wanted = [BY_NAME[name] for name in names or BY_NAME]
    if quick:
        return [benchmark for benchmark in wanted if benchmark.quick is not None]
    return [benchmark for benchmark in wanted if names or everything or not benchmark.long]


def load(folder: Path) -> Results:
    """The results, in the catalogue's order."""
    paths = {name: folder / f"{name}.json" for name in BY_NAME}
    return {name: read_result(path) for name, path in paths.items() if path.is_file()}


def headlines(results: Results) -> list[str]:
    """One line per benchmark of the README, with the command that makes its numbers."""
    lines = []
    for name, result in results.items():
        line = BY_NAME[name].headline
        for claim in result["claims"]:
            line = line.replace(f"{{{claim.key}}}", claim.told_value())
            peer = claim.told_peer().removeprefix(f"{claim.peer}: ")
            line = line.replace(f"{{{claim.key}.peer}}", peer)
        lines += [f"- {line} `{result['command']}`"] if line else []
    return lines


def figures(results: Results) -> list[str]:
    """One row per benchmark that has limits: when it was run, on what, and how many it meets."""
    rows = [("command", "run", "machine", "limits met")]
    for result in results.values():
        met = [claim.met for claim in result["claims"] if claim.met is not None]
        made = f"{result['finished'].partition('T')[0]}, `{result['commit']}`"
        if met:
            of = f"{met.count(True)} of {len(met)}"
            rows.append((f"`{result['command']}`", made, result["machine"]["cpu"], of))
    return table_lines(*rows)


def tables() -> list[Table]:
    """What stands on the pages, from the kept results alone: nothing is measured."""
    results, command = load(KEPT), "python -m benchmarks table"
    return [
        Table(ROOT / "docs" / "project.md", "figures", command, lambda: figures(results)),
        Table(ROOT / "README.md", "claims", command, lambda: headlines(results)),
    ]


def write_tables(take: Path | None) -> int:
    """Renew the pages; ``take`` first keeps the results of a run."""
    for name in load(take) if take else ():
        print(f"written: {shutil.copy(f'{take}/{name}.json', KEPT)}")
    for table in tables():
        table.write()
        print(f"written: {table.path}")
    return 0


def main(argv: Sequence[str] | None = None) -> int:
    words = list(sys.argv[1:] if argv is None else argv)
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    if words[:1] == ["table"]:
        told = "first keep the results of a run: default %(const)s"
        parser.add_argument("--take", type=Path, nargs="?", const=OUT / "full", help=told)
        return write_tables(parser.parse_args(words[1:]).take)
    parser.add_argument("names", nargs="*", metavar="NAME", help=", ".join(BY_NAME))
    parser.add_argument("--quick", action="store_true", help="minutes; its figures are not kept")
    parser.add_argument("--all", action="store_true", help="those that take long, too")
    arguments = parser.parse_args(words)
    unknown = [name for name in arguments.names if name not in BY_NAME]
    if unknown:
        parser.error(f"{unknown[0]!r} is not a benchmark. Choose from: {', '.join(BY_NAME)}")
    folder = OUT / ("quick" if arguments.quick else "full")
    benchmarks = chosen(arguments.names, quick=arguments.quick, everything=arguments.all)
    codes = []
    for benchmark in benchmarks:
        print(f"{benchmark.name} …", flush=True)
        codes.append(run_one(benchmark, folder, quick=arguments.quick))
    print(f"results: {folder}")
    return max(codes, default=0)


if __name__ == "__main__":
    sys.exit(main())
