"""The gate, attacked: whole pytest runs that must not end green, and how each of them ended.

    python -m benchmarks.attacks [--only WORDS]

An attack is a project of a few lines whose figures are stored; something is changed in it, and then
pytest runs there as in CI. The exit code and the reason must be the expected ones. Equal code must
be green. Runs that need no real program use a device with a virtual clock, the others the emulator.
"""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from typing import Any

from benchmarks.attacks import baselines, choices, exports, tricks, trust
from benchmarks.harness import Claim
from benchmarks.trials import Subject, run

ATTACKS = (*choices.ATTACKS, *baselines.ATTACKS, *tricks.ATTACKS, *exports.ATTACKS, *trust.ATTACKS)
FEWEST = 100


def claims_of(rows: Sequence[Mapping[str, Any]]) -> list[Claim]:
    codes = {(attack.group, attack.what): attack.code for attack in ATTACKS}
    red = sum(codes[row["name"], row["what"]] != 0 for row in rows)
    return [
        Claim("attacks", "attacks on the gate and on what it believes", red, limit=FEWEST,
              least=True),
        Claim("equal", "runs of equal code", len(rows) - red),
        Claim("clean", "of all, ended with the expected exit code and reason",
              sum(row["clean"] for row in rows), limit=len(rows), least=True),
    ]  # fmt: skip


def main(words: Sequence[str] | None = None) -> int:
    subjects = [Subject(each.group, each.what, 1, each.attempt) for each in ATTACKS]
    return run(__doc__, subjects, words, claims_of, at_once=2)


if __name__ == "__main__":
    sys.exit(main())
