"""Times of operators on a device beside the instructions of the same programs on the emulator.

    python -m tools.against_hardware RUN_DIR [--out FILE]

RUN_DIR is of a run on a device (``sme2 run mobilenet_v3_small --device mac``). Printed are, per
arm, how well instructions put times into their order (Spearman), and the operators furthest off.
The file, against_hardware.json, is there to be sent in: it has no serial, path or user's name.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from pytest_sme2.results.evidence import InferenceCost
from pytest_sme2.results.profile import Profile
from pytest_sme2.session.cases import program_case
from pytest_sme2.session.run_directory import find_records, read_record
from pytest_sme2.session.session import Session
from pytest_sme2.session.settings import Settings
from pytest_sme2.system.files import encode, write_json


def beside(timed: Profile, emulated: Profile, cost: InferenceCost) -> list[dict[str, Any]]:
    """The operators that both have, the one furthest from the usual rate first."""
    places = {entry.index: entry for entry in cost.operators}
    members = enumerate(emulated.operators)
    counted = {(each.call, each.label): places[at] for at, each in members if at in places}
    rows = []
    for member in timed.operators:
        entry = counted.get((member.call, member.label))
        if entry is not None and entry.counts.instructions and member.median_ns > 0:
            facts: dict[str, Any] = {"operator": member.label, "ns": member.median_ns}
            facts |= {"category": str(entry.category), "kernels": entry.kernels}
            rows.append(facts | encode(entry.counts))
    rate = float(np.median([row["ns"] / row["instructions"] for row in rows] or [1.0]))
    for row in rows:
        row["off"] = row["ns"] / row["instructions"] / rate
    return sorted(rows, key=lambda row: -abs(np.log(row["off"])))


def spearman(rows: Sequence[dict[str, Any]]) -> float:
    ranks = [np.argsort(np.argsort([row[key] for row in rows])) for key in ("ns", "instructions")]
    return float(np.asarray(np.corrcoef(ranks))[0, 1]) if len(rows) > 2 else 0.0


def compare(folder: Path) -> dict[str, Any]:
    """One case of the run, counted on the emulator."""
    record, arms = read_record(folder), {}
    case = program_case(Path(record.measured.program), 1, None)
    session = Session(Settings(device="emulated", out=folder / "counted"))
    for arm, timed in record.measured.profiles.items():
        cost = session.cost(case, arm)
        if isinstance(cost, str):
            raise SystemExit(f"{record.id} could not be counted: {cost}")
        rows = beside(timed, session.profile(case, arm), cost)
        arms[str(arm)] = {"spearman": spearman(rows), "operators": rows}
        print(f"{record.id}, SME2 {arm}: Spearman {spearman(rows):.2f} of {len(rows)} operators")
        for row in rows[:5]:
            print(f"  {row['off']:.2g}x the usual time of an instruction: {row['operator']}")
    session.close()
    return {"case": record.id, "device": encode(record.measured.fingerprint), "arms": arms}


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("run_dir", type=Path)
    parser.add_argument("--out", type=Path, default="against_hardware.json")
    given = parser.parse_args()
    every = find_records(given.run_dir)
    folders = [each for each in every if not read_record(each).measured.emulated]
    if not folders:
        sys.exit(f"{given.run_dir} holds no run on a device.")
    write_json(given.out, [compare(folder) for folder in folders])
    print(f"{given.out}: please send it in.")
