"""The gate, attacked: whole pytest runs that must not end green, and how each of them ended.

    python -m benchmarks.attacks [--json FILE]

Each attack is a test of the plugin that starts pytest in a project of its own and looks at the exit
code and at what was printed. Runs that take no measured time use a device with a virtual clock.
"""

from __future__ import annotations

import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path
from xml.etree import ElementTree

from benchmarks.harness import ROOT, clean_claims, finish, parser_of

# What is tried, and the tests that try it.
ATTACKS = {
    "the same program with other inputs": ("test_situations", "inputs"),
    "the same bytes, slower, with a machine that is not": ("test_situations", "bytes and machine"),
    "slower programs, one arm or both": ("test_situations", "slower"),
    "a strict run that compares nothing": ("test_contract", "never_green_and_empty"),
    "a model, variant or test that is gone": ("test_contract", "promised or is_gone"),
    "inputs, weights, threads or figures that changed": ("test_contract", "change or no_longer"),
    "a refused update, a broken model": ("test_contract", "refused or broken_model"),
    "a baseline edited by hand or damaged": ("test_verdicts", "by_hand or damaged"),
    "-x, --maxfail, --lf, two updates at once": ("test_contract", "early or last or at_once"),
    "a test that ends its worker": ("test_contract", "ends_its_worker"),
    "weights that are zero or turned round": ("test_unchecked", "broken_models"),
    "nothing that could be checked": ("test_unchecked", "strict or required or unused"),
}


def tried(file: str, chosen: str) -> dict[str, int]:
    """How many runs there were, and how many ended as they must."""
    with tempfile.TemporaryDirectory() as folder:
        results = Path(folder, "results.xml")
        words = ["-q", "-p", "no:cacheprovider", f"--junitxml={results}", "-k", chosen]
        done = subprocess.run(
            [sys.executable, "-m", "pytest", f"tests/plugin/{file}.py", *words],
            cwd=ROOT,
            capture_output=True,
            text=True,
            check=False,
        )
        if done.returncode not in (0, 1):
            raise SystemExit(done.stdout + done.stderr)
        cases = list(ElementTree.parse(results).iter("testcase"))
    return {"trials": len(cases), "clean": sum(not len(case) for case in cases)}


def main(argv: Sequence[str] | None = None) -> int:
    arguments = parser_of(__doc__).parse_args(argv)
    rows = []
    for what, (file, chosen) in ATTACKS.items():
        rows.append({"what": what, **tried(file, chosen)})
        print(f"{rows[-1]['clean']:3} of {rows[-1]['trials']:3}  {what}", flush=True)
    return finish(clean_claims(rows), arguments.json, {"rows": rows})


if __name__ == "__main__":
    sys.exit(main())
