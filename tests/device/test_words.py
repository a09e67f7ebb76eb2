"""What a whole run on the emulator says, in every form, of how many instructions were executed."""

from __future__ import annotations

import re
from typing import Any

import pytest

from pytest_sme2.system.qemu import Qemu
from tests.support.gate_examples import edit_baseline
from tests.support.toy_project import toy_suite

SUITE = """
def test_it(sme2_gate):
    sme2_gate.check_evidence()
    sme2_gate.check_coverage()
    sme2_gate.check_operators()
    sme2_gate.check_cost()
    sme2_gate.check_outputs()
"""
OF_TIME = re.compile(r"\b(gain\w*|speed-?ups?|faster|slower|as fast as)\b", re.IGNORECASE)
FORMS = ("r.html", "c.json")


def cheapen(document: dict[str, Any]) -> None:
    """As if one operator had executed half as much when the model was accepted."""
    for cost in document["costs"].values():
        less = cost["operators"][1]["instructions"] // 2
        cost["operators"][1]["instructions"] -= less
        cost["total"]["instructions"] -= less


def test_no_emulated_output_calls_a_count_a_speedup(
    pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch, qemu: Qemu
) -> None:
    run = toy_suite(pytester, monkeypatch, SUITE, "emulated")
    run("--update-baselines").assert_outcomes(passed=1)
    (baseline,) = pytester.path.glob("baselines/*/*.json")
    edit_baseline(baseline, cheapen)
    monkeypatch.setenv("GITHUB_STEP_SUMMARY", str(pytester.path / "summary.md"))
    forms = (f"--sme2-report={form}" for form in FORMS)
    result = run("-v", "--junitxml=junit.xml", "--sme2-history=history", *forms)
    result.assert_outcomes(failed=1)
    written = {
        str(path.relative_to(pytester.path)): path.read_text("utf-8")
        for path in pytester.path.rglob("*.*")
        if path.suffix in (".json", ".md", ".csv", ".xml") and "models" not in path.parts
    }
    page = (pytester.path / "r.html").read_text("utf-8")
    data = page.partition('application/json">')[2].partition("</script>")[0]
    outputs = {"terminal": result.stdout.str(), "page": data, **written}
    assert {"c.json", "junit.xml", "summary.md"} <= {*written}
    assert "x fewer" in outputs["terminal"]
    assert "more instructions" in outputs["terminal"]
    for name, text in outputs.items():
        # No figure is under this key.
        told = re.sub(r'"speedups?": ?(null|\{\})', "", text)
        assert not OF_TIME.search(told), (name, OF_TIME.search(told))
