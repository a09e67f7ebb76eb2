"""A simulation: the ratio of two arms on phones that move their clocks, where it is 2.50.

    python -m benchmarks.moving_clocks

Nothing is timed: arms of known work run on a pretended core, measured by the product's own pairs.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence

from benchmarks.harness import Claim, finish, parser_of
from tests.support.moving_clocks import ALLOWED, CLOCKS, MILLISECONDS, TRUTH, measured

HOW = {True: "in turns", False: "one process after the other"}


def main(argv: Sequence[str] | None = None) -> int:
    arguments = parser_of(__doc__).parse_args(argv)
    rows, claims = [], []
    for turns, allowed in ALLOWED.items():
        off = 0.0
        for kind in CLOCKS:
            for milliseconds in MILLISECONDS:
                found = measured(kind, milliseconds, turns=turns)
                off = max(off, abs(found.speedup / TRUTH - 1))
                rows.append(
                    {
                        "clock": kind,
                        "ms": milliseconds,
                        "how": HOW[turns],
                        "ratio": round(found.speedup, 4),
                        "pairs": len(found.pairs),
                        "dropped": len(found.dropped),
                    }
                )
                print(*rows[-1].values(), flush=True)
        claims.append(
            Claim(HOW[turns], f"a ratio {HOW[turns]} is off by at most", off, "%", allowed)
        )
    return finish(claims, arguments.json, {"rows": rows})


if __name__ == "__main__":
    sys.exit(main())
