"""Tables of what names mean: shipped, added to by counted runs, and never guessed."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from pytest_sme2.profile.categories import classify
from pytest_sme2.profile.known_names import (
    KnownName,
    NameTable,
    keep_names,
    read_table,
    seen_names,
    shipped_tables,
    table_of,
    write_table,
)
from pytest_sme2.results.run import Arm

PRODUCT = classify("Fully Connected (NC, QP8, F32, QC2W) GEMM")
ON = replace(PRODUCT, sme2=True)


@pytest.fixture(autouse=True)
def _cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SME2_CACHE_DIR", str(tmp_path / "cache"))


def test_both_arms_say_what_a_name_means() -> None:
    both = seen_names({Arm.ON: [(ON, "mopa")], Arm.OFF: [(PRODUCT, "neon")]})
    assert both == {PRODUCT.name: KnownName(sme2=("mopa",), other=("neon",))}
    assert seen_names({Arm.ON: [(ON, "mopa")]}) == {}
    add = classify("Add (ND)")
    assert seen_names({Arm.ON: [(add, "")], Arm.OFF: []}) == {}


def test_a_counted_run_adds_the_names_that_a_version_does_not_have() -> None:
    seen = {PRODUCT.name: KnownName(sme2=("mopa",))}
    assert table_of("1.9.0").names == {}
    keep_names("1.9.0", seen)
    keep_names("1.9.0", {"Fully Connected (NC, PBF16) GEMM": KnownName(other=("neon",))})
    keep_names("1.9.0", {PRODUCT.name: KnownName()})
    assert table_of("1.9.0").names[PRODUCT.name] == seen[PRODUCT.name]
    assert len(table_of("1.9.0").names) == 2
    # A run that does not say its version says nothing of any.
    keep_names("", seen)
    assert PRODUCT.name not in table_of("").names


def test_what_is_shipped_is_not_overruled() -> None:
    version = [*shipped_tables()][-1]
    name = "Fully Connected (NC, PF32) GEMM"
    keep_names(version, {name: KnownName(other=("neon",)), PRODUCT.name: KnownName(("mopa",))})
    assert table_of(version).names[name] == shipped_tables()[version].names[name]
    assert table_of(version).names[PRODUCT.name].sme2 == ("mopa",)


def test_a_table_is_written_as_it_is_read(tmp_path: Path) -> None:
    table = NameTable("1.9.0", {PRODUCT.name: KnownName(("a",), ("b",), ("c",)), "B": KnownName()})
    write_table(table, tmp_path / "table.json")
    assert read_table(tmp_path / "table.json") == table
    assert len((tmp_path / "table.json").read_text().splitlines()) == 4
