"""``python -m tools.sweep``: random programs with SME2 on, off and in eager PyTorch, compared."""

from __future__ import annotations

import argparse
import math
import sys
import time
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from pytest_sme2.cli.main import exit_code
from pytest_sme2.cli.options import Arguments, add_arguments, show
from pytest_sme2.errors import UsageError
from pytest_sme2.runners.sdk import sdk_version
from pytest_sme2.runners.sme2 import wheel_runner
from pytest_sme2.system.files import encode, write_text
from pytest_sme2.system.qemu import EVERY_CPU, find_qemu
from pytest_sme2.system.terminal import say
from pytest_sme2.system.wording import count
from pytest_sme2.targets.emulated import EmulatedTarget
from tools.many_exports import ManyExports
from tools.sweep.results import SweepResults, read_results, script_name, write_results
from tools.sweep.running import BATCH, Difference, Sweep
from tools.sweep.script import script

OUT = Path("sme2-sweep")


ARGUMENTS: Arguments = {
    "--programs N": ("how many in all (default: 56)", 56),
    "--seed N": ("another seed, other programs (default: 0)", 0),
    "--minutes N": ("stop then; the same command goes on where it was", math.inf),
    "--out DIR": (f"for results, and a script for each difference (default: {OUT})", OUT),
    "--json": "print JSON",
}


def main(words: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m tools.sweep", description=__doc__)
    add_arguments(parser, ARGUMENTS)
    return exit_code(sweep, parser.parse_args(words))


def sweep(arguments: argparse.Namespace) -> int:
    """Exit code 1 where something differs."""
    if arguments.programs < 1:
        raise UsageError("--programs takes a number from 1 on.")
    qemu = find_qemu()
    targets = [EmulatedTarget(qemu, cpu=cpu) for cpu in EVERY_CPU]
    runner = wheel_runner(targets[0].platform, executorch=sdk_version(None), progress=say)
    cpus = tuple(str(target.cpu) for target in targets)
    results = read_results(
        arguments.out, SweepResults(arguments.seed, runner.executorch, qemu.version, cpus)
    )
    log = arguments.out / "export.log"
    running = Sweep(ManyExports("tools.sweep.networks", log, say), targets, runner)
    ends = time.monotonic() + 60 * arguments.minutes
    batches = -(-arguments.programs // BATCH)
    try:
        for number in range(len(results.batches), batches):
            if time.monotonic() > ends:
                break
            made = running.batch(arguments.seed, number)
            known = {entry.likeness for entry in results.differences}
            found: list[Difference] = []
            for entry in made.differences:
                # One of a kind is enough to make small.
                if entry.likeness not in known:
                    known.add(entry.likeness)
                    entry = running.shrunk(entry)
                    name = script_name(number, len(found))
                    text = script(entry, name, runner.executorch)
                    write_text(arguments.out / f"{name}.py", text)
                    say(f"{entry.kind} on {entry.cpu}: {entry.program}: {entry.text}")
                found.append(entry)
            made = replace(made, differences=tuple(found))
            results = replace(results, batches=(*results.batches, made))
            write_results(results, arguments.out)
            say(f"{results.programs} of {count(batches * BATCH, 'program')}")
    finally:
        running.close()
    show(arguments, encode(results), results.lines(arguments.out))
    return 1 if results.differences else 0


if __name__ == "__main__":
    sys.exit(main())
