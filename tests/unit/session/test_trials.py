"""Rewrites are tried alone, then together; one that fails takes no other with it."""

from __future__ import annotations

from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import pytest

from pytest_sme2.errors import ModelError
from pytest_sme2.export.variant import Variant
from pytest_sme2.report.findings import trial_text
from pytest_sme2.results.case import Agreement, Tolerance
from pytest_sme2.results.evidence import Counts, InferenceCost
from pytest_sme2.results.profile import Cost, Finding, Topic
from pytest_sme2.results.run import Arm
from pytest_sme2.session import trials
from pytest_sme2.session.cases import Case
from tests.support.profiles import profile_of

CASE = Case("net", Variant("fp16"))
FORMS = SimpleNamespace(forms=("x",))
SESSION: Any = SimpleNamespace(artifact=lambda case: FORMS)  # what it would run is planted
GOOD = Agreement("reference", Arm.ON, 0, "float16", False, 0.1, 0.01, 46.9, False)
COSTS = {
    (): 1000,
    ("silu",): 600,
    ("gelu",): 990,
    ("chunk",): 800,
    ("layer_norm",): 300,
    ("pow",): 1500,
    ("select",): 995,
    ("silu", "gelu", "chunk"): 450,
}


@pytest.fixture
def before(monkeypatch: pytest.MonkeyPatch) -> trials.Ran:
    base = trials.Ran(
        profile_of(("native_call_silu.out", 10)), None, (), tolerance=Tolerance(min_sqnr_db=40.0)
    )

    def run_once(session: Any, case: Case, original: Case | None = None) -> trials.Ran:
        rewrites = case.variant.rewrites if case.variant is not None else ()
        if "conversion" in rewrites:
            raise ModelError("Propagating input shapes failed.\nMore of it.")
        agreement = replace(GOOD, sqnr_db=4.0 if "layer_norm" in rewrites else 46.9)
        counts = Counts(instructions=COSTS[rewrites])
        cost = InferenceCost("max", 512, (), (), counts, Counts())
        return replace(base, cost=cost, agreement=agreement, varying_db=46.9)

    monkeypatch.setattr(trials, "run_once", run_once)
    return run_once(SESSION, CASE)


def test_each_alone_then_all_that_cost_nothing(before: trials.Ran) -> None:
    names = ("gelu", "silu", "pow", "conversion", "chunk", "layer_norm")
    found = list(trials.try_rewrites(SESSION, CASE, before, names))
    said = {trial.rewrites: trial_text(trial).partition(";")[0] for trial in found}
    assert said == {
        ("gelu",): "saves 10 of 1,000 instructions (1.0 %), outputs 46.9 dB",
        ("silu",): "saves 400 of 1,000 instructions (40.0 %), outputs 46.9 dB",
        ("pow",): "costs 500 instructions on top of 1,000 (50.0 %), outputs 46.9 dB",
        ("conversion",): "left out: Propagating input shapes failed.",
        ("chunk",): "saves 200 of 1,000 instructions (20.0 %), outputs 46.9 dB",
        ("layer_norm",): "left out: the outputs differ: outputs: largest error 0.1 (1.00% of the "
        "largest value)",
        ("silu", "gelu", "chunk"): "saves 550 of 1,000 instructions (55.0 %), outputs 46.9 dB",
    }
    assert [trial.rewrites for trial in found if trial.helps and trial.saving > 0.5] == [
        ("silu", "gelu", "chunk")
    ]
    # Where nothing can be used nothing is put together.
    found = list(trials.try_rewrites(SESSION, CASE, before, ("pow",)))
    assert [trial.helps for trial in found] == [False]


def test_only_what_costs_enough_is_tried(before: trials.Ran) -> None:
    def costs(name: str, share: float) -> Finding:
        return Finding(Topic.PORTABLE, name, Cost(1, share, "instructions"), rewrite=name)

    named = costs("gelu", 0.006), costs("silu", 0.005), costs("silu", 0.005)
    assert trials.named_rewrites(replace(before, findings=named)) == ("silu",)
    # Where one alone helps, nothing is put together.
    assert len(list(trials.try_rewrites(SESSION, CASE, before, ("silu", "select")))) == 2


def test_a_rewrite_is_not_expressed_only_where_what_it_is_for_is_left(before: trials.Ran) -> None:
    left = Finding(
        Topic.PORTABLE, "SiLU", Cost(1, 0.7, "instructions"), place="net.py:7", rewrite="silu"
    )
    (trial,) = trials.try_rewrites(SESSION, CASE, before, ("silu",))
    assert trial.after is not None
    partly = replace(trial, after=replace(trial.after, findings=(left,)))
    wanted = "not expressed: 50.0 % of 90.0 % stay; most is SiLU (net.py:7)"
    assert trial_text(partly, 0.9) == wanted
    assert trial_text(partly, 0.7).startswith("saves 400 of 1,000")
    assert trial_text(trial, 0.9).startswith("saves 400 of 1,000")
