"""All benchmarks as one command: run them, resume them, and write down what they claim.

    python -m benchmarks --quick           # minutes: does everything work?
    python -m benchmarks                   # the figures; on an idle machine
    python -m benchmarks detection faults  # those that take long, by name, or all with --all
    python -m benchmarks table --take      # into benchmarks/results, docs/project.md, README.md

Each benchmark runs alone, in a process of its own. One that has its result already is not run
again, unless with --again. Exit code 0: all limits met; 1: one was missed; 3: one did not run.
"""

from __future__ import annotations

import argparse
import signal
import sys
from collections.abc import Sequence
from pathlib import Path

from filelock import FileLock, Timeout

from benchmarks.harness import Claim
from benchmarks.page import write_pages
from benchmarks.running import BENCHMARKS, BY_NAME, ROOT, Result, chosen, run_all
from pytest_sme2.system.cache import cache_folder

OUT = ROOT / "sme2-out" / "benchmarks"
KEPT = ROOT / "benchmarks" / "results"


def stop(number: int, frame: object) -> None:
    """To be told to end is to be interrupted: what is running must not go on alone."""
    raise KeyboardInterrupt


def say(line: str) -> None:
    print(line, flush=True)


def summary(results: Sequence[Result]) -> list[str]:
    """The table of claims for a terminal."""
    rows = [
        (result.name, claim.what, claim.told_value(), claim.told_limit(), _word(claim))
        for result in results
        for claim in result.claims
    ]
    if not rows:
        return []
    widths = [max(len(row[column]) for row in rows) for column in range(4)]
    return ["  ".join(map(str.ljust, row, (*widths, 0))).rstrip() for row in rows]


def _word(claim: Claim) -> str:
    return {True: "met", False: "MISSED", None: ""}[claim.met]


def run(arguments: argparse.Namespace) -> int:
    benchmarks = chosen(arguments.names, quick=arguments.quick, everything=arguments.all)
    if arguments.quick:
        for benchmark in benchmarks:
            if benchmark.quick is None:
                say(f"{benchmark.name} has no quick form: a few trials would say nothing.")
        benchmarks = [benchmark for benchmark in benchmarks if benchmark.quick is not None]
    folder = arguments.results or OUT / ("quick" if arguments.quick else "full")
    lock = cache_folder() / "locks" / "benchmarks.lock"
    lock.parent.mkdir(parents=True, exist_ok=True)
    try:
        with FileLock(lock, timeout=0):
            results, failed = run_all(
                benchmarks, folder, quick=arguments.quick, again=arguments.again, say=say
            )
    except Timeout:
        print("Other benchmarks are being run on this machine: wait for them.", file=sys.stderr)
        return 3
    except KeyboardInterrupt:
        print(f"Interrupted. The same command goes on; results: {folder}", file=sys.stderr)
        return 130
    say("")
    for line in summary(results):
        say(line)
    left = [benchmark.name for benchmark in BENCHMARKS if benchmark not in benchmarks]
    if left and not arguments.names:
        say(f"\nnot run: {', '.join(left)} (name them, or --all)")
    say(f"results: {folder}")
    for name, reason in failed.items():
        print(f"{name}: no result: {reason}", file=sys.stderr)
    if failed:
        return 3
    return 1 if any(result.missed for result in results) else 0


def table(arguments: argparse.Namespace) -> int:
    for path in write_pages(KEPT, ROOT, take=arguments.take):
        say(f"written: {path.relative_to(ROOT)}")
    return 0


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
        return table(parser.parse_args(words[1:]))
    parser.add_argument("names", nargs="*", metavar="NAME", help=", ".join(BY_NAME))
    parser.add_argument("--quick", action="store_true", help="minutes; its figures are not kept")
    parser.add_argument("--all", action="store_true", help="those that take long, too")
    parser.add_argument("--again", action="store_true", help="also those that have a result")
    parser.add_argument("--results", type=Path, metavar="FOLDER", help=f"default: below {OUT}")
    arguments = parser.parse_args(words)
    unknown = [name for name in arguments.names if name not in BY_NAME]
    if unknown:
        parser.error(f"{unknown[0]!r} is not a benchmark. Choose from: {', '.join(BY_NAME)}")
    return run(arguments)


if __name__ == "__main__":
    signal.signal(signal.SIGTERM, stop)
    sys.exit(main())
