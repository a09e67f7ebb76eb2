"""The table of outputs, and what it has to show."""

from __future__ import annotations

import pytest

from benchmarks.findings import STORED
from benchmarks.numerics import TABLE, kept, table
from tests.support.recorded_runs import TEN

pytestmark = pytest.mark.nightly

ROWS = kept()


def test_the_page_has_the_table() -> None:
    text = TABLE.path.read_text("utf-8")
    assert TABLE.put(text) == text, "python -m benchmarks.numerics --write, then read the page"


def test_every_shipped_model_and_every_architecture_is_in_it() -> None:
    shipped = {path.stem.partition("-")[0] for path in STORED.glob("*.json")}
    wanted = {name for name in shipped if not name.startswith("executorch")} | set(TEN)
    assert wanted <= {row["model"] for row in ROWS.values()}


@pytest.mark.parametrize("case", ROWS)
def test_no_dead_output_passes_and_none_fails(case: str) -> None:
    row = ROWS[case]
    alive = [entry for entry in row["outputs"] if not entry["dead"]]
    assert (row["verdict"] in ("PASS", "FAILED")) == bool(alive)


def test_a_dead_output_is_shown() -> None:
    dead = {"identical": False, "sqnr_db": 3.0, "dead": "nearly zero (its largest value is 4e-14)"}
    alive = {"identical": False, "sqnr_db": 41.26, "dead": ""}
    row = {"model": "net", "variant": "int8", "verdict": "PASS", "outputs": [dead, alive]}
    assert table({"net-int8": row}).splitlines()[-1] == (
        "| `net` | `int8` | 2 | 41.3 dB | 1 of 2 nearly zero (its largest value is 4e-14) | PASS |"
    )
