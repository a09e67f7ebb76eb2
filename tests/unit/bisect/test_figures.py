"""Which figure tells a good commit from a bad one."""

from __future__ import annotations

from dataclasses import replace

import pytest

from pytest_sme2.bisect.bisecting import FIGURES, missing_figures, worse_figure
from pytest_sme2.errors import UsageError
from pytest_sme2.results import Arm, CaseResult, Structure
from tests.support import gate_examples

SIZE = next(figure for figure in FIGURES if figure.name == "size")


def case(*, operators: int = 3, size: int | None = 1000) -> CaseResult:
    made = gate_examples.emulated()
    entry = replace(made.structures[Arm.ON].operators[0], count=operators)
    return replace(made, structures={Arm.ON: Structure((entry,))}, pte_bytes=size, costs={})


def test_the_first_figure_that_is_worse_is_taken() -> None:
    found = worse_figure(case(), case(operators=5, size=2000), None)
    assert found is not None
    assert found.name == "operators"
    asked = worse_figure(case(), case(operators=5, size=2000), "size")
    assert asked is SIZE


def test_nothing_is_worse_where_it_only_got_better() -> None:
    assert worse_figure(case(), case(), None) is None
    assert worse_figure(case(operators=5), case(operators=3, size=900), None) is None
    # A hundredth of the size says nothing.
    assert worse_figure(case(), case(size=1009), None) is None
    assert worse_figure(case(size=None), case(), "size") is None


def test_a_commit_is_bad_if_it_is_nearer_to_the_bad_end() -> None:
    good, bad = case(size=1000), case(size=2000)
    judged = [SIZE.is_bad(good, bad, case(size=size)) for size in (900, 1400, 1500, 3000)]
    assert judged == [False, False, True, True]
    assert SIZE.is_bad(good, bad, case(size=None)) is None


def test_an_unknown_figure_is_refused() -> None:
    with pytest.raises(UsageError, match="Choose one of: cost, coverage, operators, size"):
        worse_figure(case(), case(), "speed")


def test_what_one_end_does_not_have_is_named() -> None:
    assert missing_figures(case(), case(size=None), "size") == ["size"]
    assert missing_figures(case(), case(), "size") == []
    # No instructions were counted, and nothing was profiled.
    assert {"cost", "size"} <= set(missing_figures(case(size=None), case(), None))
