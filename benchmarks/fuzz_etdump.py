"""Mutates real ETDumps and reads them: an EtdumpError or a sound parse, in bounded time and memory.

``python -m benchmarks.fuzz_etdump --count 200000 --seed 1`` reads that many and prints one line
of JSON. A reading that breaks a promise is kept as a file and named, and the exit code is 1.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
import tracemalloc
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from random import Random

from benchmarks.claims import clean_claims, finish
from tests.support.damaged_etdumps import DUMPS, mutate, read


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0] if __doc__ else None)
    parser.add_argument("--count", type=int, default=200_000, help="how many to read")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--keep", type=Path, default=Path("fuzz-failures"), metavar="FOLDER")
    parser.add_argument("--json", type=Path, metavar="FILE")
    options = parser.parse_args(arguments)
    dumps = [path.read_bytes() for path in sorted(DUMPS.glob("*.etdump"))]
    random = Random(options.seed)
    outcomes: Counter[str] = Counter()
    failures: list[str] = []
    slowest = 0.0
    began = time.perf_counter()
    tracemalloc.start()
    for number in range(options.count):
        data = mutate(random, dumps)
        started = time.perf_counter()
        try:
            outcomes[read(data) or "parsed"] += 1
        except Exception as error:
            options.keep.mkdir(parents=True, exist_ok=True)
            path = options.keep / f"{options.seed}-{number}.etdump"
            path.write_bytes(data)
            failures.append(f"{path}: {type(error).__name__}: {error}")
        slowest = max(slowest, time.perf_counter() - started)
    tracemalloc.stop()
    summary = {
        "count": options.count,
        "seed": options.seed,
        "parsed": outcomes["parsed"],
        "refused": outcomes.total() - outcomes["parsed"],
        "failures": failures,
        "slowest_seconds": round(slowest, 4),
        "seconds": round(time.perf_counter() - began, 1),
    }
    print(json.dumps(summary))
    row = {
        "name": "etdump",
        "what": "a damaged ETDump: refused with its reason, or read soundly, within its bounds",
        "trials": options.count,
        "clean": options.count - len(failures),
        "seconds": summary["seconds"],
    }
    for problem, count in outcomes.most_common(12):
        print(f"{count:8d}  {problem}", file=sys.stderr)
    return finish(clean_claims([row]), options.json, {"rows": [row], **summary})


if __name__ == "__main__":
    sys.exit(main())
