"""The table of docs/findings.md about outputs: every shipped model and ten architectures.

``python -m benchmarks.numerics MODEL-VARIANT …`` runs these on the emulator with SME2 on, and all
without a name. What was found is kept in ``benchmarks/results/numerics.json``. ``--write`` runs
nothing and puts the table into the page.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from benchmarks.findings import MODELS, ROOT
from pytest_sme2.errors import Sme2Error
from pytest_sme2.export.variant import PRECISIONS
from pytest_sme2.session.cases import Case
from pytest_sme2.session.session import Session
from pytest_sme2.verdict.outputs import check_outputs
from tests.support import recorded_runs

PAGE = ROOT / "docs" / "findings.md"
KEPT = ROOT / "benchmarks" / "results" / "numerics.json"
BEGIN, END = "<!-- begin: python -m benchmarks.numerics --write -->\n", "<!-- end -->\n"
HEADING = (
    "| model | variant | outputs | signal over noise | reference | verdict |\n"
    "| --- | --- | ---: | ---: | --- | --- |\n"
)
Row = Mapping[str, Any]


def judged(session: Session, case: Case) -> dict[str, Any]:
    """How close each output came, whether its reference says anything, and the gate's verdict."""
    found = recorded_runs.assembled(session, case, counted=False)
    check = check_outputs(found, session.limits(case), "reference")
    return {
        "model": found.model,
        "variant": found.variant,
        "verdict": str(check.verdict),
        "message": check.message,
        "outputs": [
            {
                "identical": entry.identical,
                "sqnr_db": None if entry.sqnr_db is None else round(entry.sqnr_db, 1),
                "dead": entry.dead,
            }
            for entry in found.agreements
        ],
    }


def kept() -> dict[str, Row]:
    """By case; empty before the first run."""
    found: dict[str, Row] = json.loads(KEPT.read_text("utf-8")) if KEPT.is_file() else {}
    return found


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


def page(text: str, made: str) -> str:
    """The page with this table in its place."""
    before, begin, rest = text.partition(BEGIN)
    _, end, after = rest.partition(END)
    if not begin or not end:
        raise SystemExit(f"{PAGE} has lost the lines around its table: {BEGIN}… {END}")
    return f"{before}{BEGIN}\n{made}\n{END}{after}"


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0] if __doc__ else None)
    parser.add_argument("cases", nargs="*", metavar="MODEL-VARIANT")
    parser.add_argument("--write", action="store_true", help="write the table into its page")
    options = parser.parse_args(arguments)
    if options.write:
        _write(PAGE, page(PAGE.read_text("utf-8"), table(kept())))
        return 0
    failed = 0
    for case, session in recorded_runs.cases(options.cases):
        try:
            rows = {**kept(), case.id: judged(session, case)}
        except Sme2Error as error:
            failed += 1
            sys.stderr.write(f"{case.id}: {error}\n")
            continue
        _write(KEPT, json.dumps(dict(sorted(rows.items())), indent=1) + "\n")
    return 1 if failed else 0


def _write(path: Path, text: str) -> None:
    path.write_text(text, "utf-8")


if __name__ == "__main__":
    sys.exit(main())
