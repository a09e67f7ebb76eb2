"""Faults and hostile input, tried and counted: every trial must end clean.

    python -m benchmarks.hostile                      # all of it, about three hours
    python -m benchmarks.hostile --quick              # the same with fewer trials
    python -m benchmarks.hostile --only kill-export --seed 7 --trial 3

A trial that is not clean is printed with the command that repeats it; the exit code is then 1.
Mounts are made in a namespace of their own and are gone when this ends.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence

from benchmarks.harness import clean_claims, finish, parser_of
from benchmarks.hostile import disks, fuzz, kills, surroundings
from benchmarks.hostile.stage import count, enter_namespace

SUBJECTS = (
    *fuzz.SUBJECTS,
    *kills.SUBJECTS,
    *disks.SUBJECTS,
    *surroundings.SUBJECTS,
)


def main(words: Sequence[str] | None = None) -> int:
    parser = parser_of(__doc__)
    parser.add_argument("--quick", action="store_true", help="fewer trials: minutes")
    parser.add_argument("--seed", type=int, default=0, help="default: 0")
    parser.add_argument("--only", action="append", metavar="NAME", help="what begins like this")
    parser.add_argument("--trial", type=int, metavar="N", help="only the one with this number")
    arguments = parser.parse_args(words)
    chosen = [
        subject
        for subject in SUBJECTS
        if arguments.only is None or subject.name.startswith(tuple(arguments.only))
    ]
    if not chosen:
        parser.error(f"choose from: {', '.join(subject.name for subject in SUBJECTS)}")
    enter_namespace()
    print(f"seed {arguments.seed}\n{'what':<60} {'trials':>6} {'clean':>6} {'seconds':>8}")
    rows = []
    for subject in chosen:
        numbers = range(subject.quick if arguments.quick else subject.full)
        if not numbers and arguments.only is None:
            continue
        if arguments.trial is not None:
            numbers = range(arguments.trial, arguments.trial + 1)
        row = count(subject, numbers, arguments.seed, lambda line: print(line, flush=True))
        rows.append(row)
        counts = f"{row['trials']:>6} {row['clean']:>6} {row['seconds']:>8.1f}"
        missing = f"  not possible here: {row['not_possible']}" if "not_possible" in row else ""
        print(f"{f'{subject.name}: {subject.what}':<60} {counts}{missing}", flush=True)
    details = {"seed": arguments.seed, "quick": arguments.quick, "rows": rows}
    return finish(clean_claims(rows), arguments.json, details)


if __name__ == "__main__":
    sys.exit(main())
