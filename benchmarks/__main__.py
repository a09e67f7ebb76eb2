"""All benchmarks as one command: run them, resume them, and write down what they claim.

    python -m benchmarks --quick           # minutes: does everything work?
    python -m benchmarks                   # the figures; on an idle machine
    python -m benchmarks detection faults  # those that take long, by name, or all with --all
    python -m benchmarks table --take      # into benchmarks/results, docs/project.md, README.md

Each benchmark runs alone, in a process of its own. One that has its result already is not run
again, unless with --again. Exit code 0: all limits met; 1: one was missed; 3: one did not run.

A test compares the figures of the pages with the kept results, so nobody can change one by hand.
"""

from __future__ import annotations

import argparse
import shutil
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

from benchmarks.harness import ROOT, Benchmark, Result, Table, read_result, run_one, table_lines

OUT = ROOT / "sme2-out" / "benchmarks"
KEPT = ROOT / "benchmarks" / "results"

BENCHMARKS = (
    Benchmark(
        "startup",
        "start of pytest",
        1.5,
        quick=("--rounds", "5"),
        headline="Installed but not used, the plugin adds **{cost}** to the start of pytest. "
        "pytest-benchmark adds {cost.peer}.",
    ),
    Benchmark(
        "first_run",
        "the main command from nothing, and where its time goes",
        30,
        headline="The main command takes **{total}** from nothing, {ours} of it after the "
        "installation, and {again} once more.",
    ),
    Benchmark(
        "first_insight",
        "from an empty folder to the first insight about a model of one's own",
        5,
        headline="From an empty folder to the first insight about a MobileNet V2: {commands} "
        "commands and **{total}** of CPU time, if uv has the packages at hand.",
    ),
    Benchmark(
        "detection",
        "false alarms and missed slowdowns, against other rules",
        0.5,
        full=("report",),
        samples="sme2-out/detection.jsonl",
        headline="False alarms: **{alarms}** of {verdicts} verdicts on equal programs. It caught "
        "{caught 5} of 5 % slowdowns and {caught 3} of 3 % slowdowns. On the same samples "
        "pytest-benchmark's `mean:5%` raised {alarms.peer} and caught {caught 5.peer} and "
        "{caught 3.peer}.",
    ),
    Benchmark(
        "detection_gate",
        "the whole gate on real programs where the truth is known",
        0.1,
        full=("report",),
        samples="sme2-out/detection_gate/verdicts.jsonl",
        headline="The whole gate on a loaded machine: of {slower} verdicts on programs at least "
        "5 % slower, **{green}** pass. Of {equal} on equal programs, {alarms} are red, whatever "
        "the verdict is called.",
    ),
    Benchmark(
        "clocks",
        "ratios on phones that move their clocks (a simulation)",
        0.1,
    ),
    Benchmark(
        "simulated_gate",
        "the gate on pretended machines where the truth is known (a simulation)",
        5,
    ),
    Benchmark(
        "history",
        "what is told of histories whose truth is known (a simulation)",
        5,
        headline="Of {histories} simulated histories with 0.3 to 5 % noise, intervals hold the "
        "true size of **{sizes}** of the changes told; {as steps} of the drifts are told as "
        "steps, and `--fail-on 5%` is red on {red 5%} of 1,000 equal ones.",
    ),
    Benchmark(
        "generation",
        "slowdowns in one phase of a language model's generation",
        60,
        quick=("--quick",),
    ),
    Benchmark(
        "blame",
        "whether a failure points at what was changed",
        0.1,
        full=("report",),
        samples="sme2-out/blame.jsonl",
        headline="Of {edits} planted edits, the first line of a failure names **{right}**, and "
        "{innocent} times a line that has nothing to do with it.",
    ),
    Benchmark("attacks", "whole runs of pytest that must not end green", 3),
    Benchmark(
        "faults",
        "a phone that breaks while it is measured on",
        25,
        quick=("--trials", "1"),
        headline="Faults of a phone during a measurement (a fake phone behind a real adbd): "
        "**{clean} of {trials}** trials ended cleanly.",
    ),
    Benchmark(
        "hostile",
        "kills, full disks, hostile files and names",
        180,
        quick=("--quick",),
        headline="Kills, full disks, damaged files and hostile names: **{clean} of {trials}** "
        "trials ended cleanly.",
    ),
)
BY_NAME = {benchmark.name: benchmark for benchmark in BENCHMARKS}


def chosen(names: list[str], *, quick: bool, everything: bool) -> list[Benchmark]:
    """What to run: what is named, else all that fits the kind of run."""
    wanted = [BY_NAME[name] for name in names] or [*BENCHMARKS]
    if quick:
        return [benchmark for benchmark in wanted if benchmark.quick is not None]
    return [benchmark for benchmark in wanted if names or everything or not benchmark.long]


def load(folder: Path) -> dict[str, Result]:
    """The kept results, in the catalogue's order."""
    found = {name: read_result(folder / f"{name}.json") for name in BY_NAME}
    return {name: result for name, result in found.items() if result is not None}


def headlines(results: Mapping[str, Result]) -> list[str]:
    """One line per benchmark of the README, with the command that makes its numbers."""
    lines = []
    for name, result in results.items():
        line = BY_NAME[name].headline
        for claim in result.claims:
            line = line.replace(f"{{{claim.key}}}", claim.told_value())
            peer = claim.told_peer().removeprefix(f"{claim.peer}: ")
            line = line.replace(f"{{{claim.key}.peer}}", peer)
        lines += [f"- {line} `{result.command}`"] if line else []
    return lines


def figures(results: Mapping[str, Result]) -> list[str]:
    """One row per benchmark that has limits: when it was run, on what, and how many it meets."""
    rows = [("command", "run", "machine", "limits met")]
    for result in results.values():
        met = [claim.met for claim in result.claims if claim.met is not None]
        made = f"{result.finished.partition('T')[0]}, `{result.commit}`"
        if met:
            of = f"{met.count(True)} of {len(met)}"
            rows.append((f"`{result.command}`", made, result.machine["cpu"], of))
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


def run(benchmarks: Sequence[Benchmark], folder: Path, *, quick: bool, again: bool) -> int:
    """One after another, each that has no result yet; the exit code."""
    missed = failed = False
    for benchmark in benchmarks:
        result = None if again else read_result(folder / f"{benchmark.name}.json")
        if result is not None:
            print(f"{benchmark.name}: finished at {result.finished}, commit {result.commit}")
        else:
            about = "" if quick else f", about {benchmark.minutes:g} min"
            print(f"{benchmark.name}: {benchmark.title}{about} …", flush=True)
            found = run_one(benchmark, folder, quick=quick)
            if isinstance(found, str):
                print(f"{benchmark.name}: no result: {found}", file=sys.stderr)
                failed = True
                continue
            result = found
        missed |= any(claim.met is False for claim in result.claims)
    print(f"results: {folder}")
    return 3 if failed else int(missed)


def main(argv: Sequence[str] | None = None) -> int:
    words = list(sys.argv[1:] if argv is None else argv)
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    if words[:1] == ["table"]:
        parser.add_argument(
            "--take",
            type=Path,
            nargs="?",
            const=OUT / "full",
            metavar="FOLDER",
            help="first keep the results of a run: default %(const)s",
        )
        return write_tables(parser.parse_args(words[1:]).take)
    parser.add_argument("names", nargs="*", metavar="NAME", help=", ".join(BY_NAME))
    parser.add_argument("--quick", action="store_true", help="minutes; its figures are not kept")
    parser.add_argument("--all", action="store_true", help="those that take long, too")
    parser.add_argument("--again", action="store_true", help="also those that have a result")
    arguments = parser.parse_args(words)
    unknown = [name for name in arguments.names if name not in BY_NAME]
    if unknown:
        parser.error(f"{unknown[0]!r} is not a benchmark. Choose from: {', '.join(BY_NAME)}")
    benchmarks = chosen(arguments.names, quick=arguments.quick, everything=arguments.all)
    left = [benchmark.name for benchmark in BENCHMARKS if benchmark not in benchmarks]
    if left and not arguments.names:
        print(f"not run: {', '.join(left)} (name them, or --all)")
    folder = OUT / ("quick" if arguments.quick else "full")
    return run(benchmarks, folder, quick=arguments.quick, again=arguments.again)


if __name__ == "__main__":
    sys.exit(main())
