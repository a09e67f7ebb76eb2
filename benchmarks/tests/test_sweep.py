"""What the page says of planted bugs."""

from __future__ import annotations

from benchmarks.findings import ROOT
from benchmarks.sweep import kept
from tests.support.planted_kernels import PLANTS


def test_every_planted_bug_was_found_as_the_page_says() -> None:
    found = kept()["found"]
    assert {plant.name for plant in PLANTS} == set(found)
    programs = [entry["programs"] for entry in found.values()]
    told = f"all {len(found)} after {min(programs)} to {max(programs)} programs"
    assert told in (ROOT / "docs" / "project.md").read_text("utf-8")
