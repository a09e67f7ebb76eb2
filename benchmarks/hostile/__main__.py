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

from benchmarks.hostile import disks, fuzz, kills, surroundings
from benchmarks.hostile.stage import enter_namespace
from benchmarks.trials import run

SUBJECTS = (*fuzz.SUBJECTS, *kills.SUBJECTS, *disks.SUBJECTS, *surroundings.SUBJECTS)


def main(words: Sequence[str] | None = None) -> int:
    enter_namespace()
    return run(__doc__, SUBJECTS, words)


if __name__ == "__main__":
    sys.exit(main())
