"""The gate, attacked: whole pytest runs that must not end green, and how each of them ended.

    python -m benchmarks.attacks [--json FILE] [--only WORDS]

An attack is a project of a few lines whose figures are stored; something is changed in it, and then
pytest runs there as in CI. The exit code and the reason must be the expected ones. Equal code must
be green. Runs that need no real program use a device with a virtual clock, the others the emulator.
"""

from __future__ import annotations

import sys
import threading
import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any

from benchmarks.attacks.rows import ATTACKS
from benchmarks.attacks.stage import Attack, last_lines, tried
from benchmarks.harness import Claim, finish, parser_of

FEWEST = 100
AT_ONCE = 2


def row_of(attack: Attack) -> dict[str, Any]:
    started = time.monotonic()
    ending, problem = tried(attack)
    text = f"{'NOT AS EXPECTED' if problem else 'ok':2} {attack.group}: {attack.what}"
    with _PRINTING:
        print(f"{text}: {problem}\n{last_lines(ending)}" if problem else text, flush=True)
    return {
        "group": attack.group,
        "what": attack.what,
        "exit code": ending.code,
        "says": attack.said,
        "as expected": not problem,
        "seconds": round(time.monotonic() - started, 1),
    }


_PRINTING = threading.Lock()


def claims_of(rows: Sequence[dict[str, Any]]) -> list[Claim]:
    red = [row for row in rows if row["exit code"] != 0 or not row["as expected"]]
    right = sum(row["as expected"] for row in rows)
    return [
        Claim("attacks", "attacks on the gate and on what it believes", len(red), limit=FEWEST,
              least=True),
        Claim("equal", "runs of equal code", len(rows) - len(red)),
        Claim("clean", "of all, ended with the expected exit code and reason", right,
              limit=len(rows), least=True),
    ]  # fmt: skip


def main(argv: Sequence[str] | None = None) -> int:
    parser = parser_of(__doc__)
    parser.add_argument("--only", default="", metavar="WORDS", help="those that have these words")
    arguments = parser.parse_args(argv)
    chosen = [one for one in ATTACKS if arguments.only in f"{one.group}: {one.what}"]
    with ThreadPoolExecutor(AT_ONCE) as pool:
        rows = list(pool.map(row_of, chosen))
    return finish(claims_of(rows), arguments.json, {"rows": rows})


if __name__ == "__main__":
    sys.exit(main())
