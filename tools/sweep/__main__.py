"""``python -m tools.sweep``: random programs with SME2 on, off and in eager PyTorch, compared."""

from __future__ import annotations

import argparse
import json
import sys
import time
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from pytest_sme2.cli.main import exit_code
from pytest_sme2.errors import UsageError
from pytest_sme2.runners.sdk import sdk_version
from pytest_sme2.runners.sme2 import wheel_runner
from pytest_sme2.system.files import encode, write_text
from pytest_sme2.system.qemu import CPUS, DEFAULT_CPU, VECTOR_BITS, find_qemu
from pytest_sme2.system.terminal import say
from pytest_sme2.system.wording import count
from pytest_sme2.targets.emulated import EmulatedTarget
from tools.many_exports import ManyExports
from tools.sweep.results import SweepResults, read_results, script_name, write_results
from tools.sweep.running import BATCH, Difference, Sweep
from tools.sweep.script import script

OUT = Path("sme2-sweep")


def main(words: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m tools.sweep", description=__doc__)
    parser.add_argument(
        "--programs", type=int, default=56, metavar="N", help="how many in all (default: 56)"
    )
    parser.add_argument(
        "--seed", type=int, default=0, metavar="N", help="another seed, other programs (default: 0)"
    )
    parser.add_argument(
        "--minutes",
        type=float,
        metavar="N",
        help="stop then; the same command goes on where it was",
    )
    parser.add_argument(
        "--out",
        type=Path,
        default=OUT,
        metavar="DIR",
        help=f"for results, and a script for each difference (default: {OUT})",
    )
    parser.add_argument("--qemu", type=Path, metavar="FILE", help="the emulator")
    parser.add_argument("--json", action="store_true", help="print JSON")
    return exit_code(sweep, parser.parse_args(words))


def sweep(arguments: argparse.Namespace) -> int:
    """Exit code 1 where something differs."""
    if arguments.programs < 1:
        raise UsageError("--programs takes a number from 1 on.")
    qemu = find_qemu(arguments.qemu)
    shorter = [bits for bits in VECTOR_BITS if bits != DEFAULT_CPU.vector_bits]
    every = [*CPUS, *(replace(DEFAULT_CPU, vector_bits=bits) for bits in reversed(shorter))]
    targets = [EmulatedTarget(qemu, cpu=cpu) for cpu in every]
    runner = wheel_runner(targets[0].platform, executorch=sdk_version(None), progress=say)
    cpus = tuple(str(target.cpu) for target in targets)
    results = read_results(
        arguments.out, SweepResults(arguments.seed, runner.executorch, qemu.version, cpus)
    )
    log = arguments.out / "export.log"
    running = Sweep(ManyExports("tools.sweep.networks", log, None, say), targets, runner)
    ends = None if arguments.minutes is None else time.monotonic() + 60 * arguments.minutes
    batches = -(-arguments.programs // BATCH)
    try:
        for number in range(len(results.batches), batches):
            if ends is not None and time.monotonic() > ends:
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
    if arguments.json:
        print(json.dumps(encode(results), indent=1))
    else:
        print("\n".join(results.lines(arguments.out)))
    return 1 if results.differences else 0


if __name__ == "__main__":
    sys.exit(main())
