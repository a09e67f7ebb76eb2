"""The table of docs/findings.md about outputs: every shipped model and ten architectures.

``python -m benchmarks.numerics RUN_DIRECTORY …`` keeps what runs of the suite on the emulator found
(``pytest tests/performance --device emulated``) in ``benchmarks/results/numerics.json``. The
architectures are those of ``tests/data/runs``. ``--write`` puts the table into the page.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from benchmarks.findings import MODELS, ROOT, Table
from pytest_sme2.export.variant import PRECISIONS
from pytest_sme2.results import CaseResult
from pytest_sme2.session.run_directory import find_records, read_record
from pytest_sme2.verdict.limits import resolve
from pytest_sme2.verdict.outputs import check_outputs
from tests.support import recorded_runs

KEPT = ROOT / "benchmarks" / "results" / "numerics.json"
HEADING = (
    "| model | variant | outputs | signal over noise | reference | verdict |\n"
    "| --- | --- | ---: | ---: | --- | --- |\n"
)
Row = Mapping[str, Any]


def judged(found: CaseResult) -> Row:
    """How close each output came, whether its reference says anything, and the gate's verdict."""
    file = recorded_runs.MODELS / found.model / "limits.toml"
    limits = resolve(found.variant, files=[file] if file.is_file() else ())
    agreements = [
        entry
        for entry in found.agreements
        if entry.against == "reference" and entry.arm is found.arm
    ]
    return {
        "model": found.model,
        "variant": found.variant,
        "verdict": str(check_outputs(found, limits, "reference").verdict),
        "outputs": [
            {
                "sqnr_db": None if entry.sqnr_db is None else round(entry.sqnr_db, 1),
                "dead": entry.dead,
            }
            for entry in agreements
        ],
    }


def kept() -> dict[str, Row]:
    """By case: what is kept of run directories, and the recorded runs."""
    stored: dict[str, Row] = json.loads(KEPT.read_text("utf-8")) if KEPT.is_file() else {}
    return stored | {
        name: judged(recorded_runs.measured(name)) for name in recorded_runs.recorded()
    }


def table(rows: Mapping[str, Row]) -> str:
    return HEADING + "".join(map(_line, sorted(rows.values(), key=_place)))


def _place(row: Row) -> tuple[int, str, int]:
    model = row["model"]
    known = MODELS.index(model) if model in MODELS else len(MODELS)
    return known, model, PRECISIONS.index(row["variant"].partition("@")[0])


def _line(row: Row) -> str:
    outputs = row["outputs"]
    dead = [entry["dead"] for entry in outputs if entry["dead"]]
    alive = [entry for entry in outputs if not entry["dead"]]
    noise = [entry["sqnr_db"] for entry in alive if entry["sqnr_db"] is not None]
    signal = f"{min(noise):.1f} dB" if noise else "identical" if alive else ""
    reference = "alive" if not dead else f"{len(dead)} of {len(outputs)} {dead[0]}"
    cells = f"`{row['model']}`", f"`{row['variant']}`", len(outputs), signal, reference
    return f"| {' | '.join(map(str, cells))} | {row['verdict']} |\n"


TABLE = Table(
    ROOT / "docs" / "findings.md", "numerics", lambda: table(kept()), "benchmarks.numerics"
)


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0] if __doc__ else None)
    parser.add_argument("runs", nargs="*", type=Path, metavar="RUN_DIRECTORY")
    parser.add_argument("--write", action="store_true", help="write the table into its page")
    options = parser.parse_args(arguments)
    stored = json.loads(KEPT.read_text("utf-8")) if KEPT.is_file() else {}
    for folder in options.runs:
        for found in find_records(folder):
            record = read_record(found)
            stored[record.id] = judged(record.measured)
    if options.runs:
        KEPT.write_text(json.dumps(stored, indent=1, sort_keys=True) + "\n", "utf-8")
    if options.write:
        TABLE.write()
    else:
        print(TABLE.make())
    return 0


if __name__ == "__main__":
    sys.exit(main())
