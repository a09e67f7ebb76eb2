from __future__ import annotations

from dataclasses import replace

import pytest

from pytest_sme2.profile.categories import classify
from pytest_sme2.profile.origins import match_origins, source_text
from pytest_sme2.results import Attribution, Operator, Origin
from pytest_sme2.trace.etrecord import read_attribution
from tests.support import ETDUMPS

ETRECORD = ETDUMPS.parent / "etrecords" / "toy.etrecord"


def traced(*names: str) -> list[tuple[Operator, int]]:
    return [(classify(name), 0) for name in names]


def graph(*nodes: tuple[str, str]) -> Attribution:
    return Attribution({}, {}, {}, {0: tuple((name, Origin(name, path)) for name, path in nodes)})


def places(operators: list[tuple[Operator, int]], found: Attribution) -> list[str]:
    return [source_text(origin) for origin in match_origins(operators, found) if origin]


CONVOLUTION = "Convolution (NHWC, PF32) IGEMM"
LINEAR = "Fully Connected (NC, PF32) GEMM"


def test_matrix_operators_of_a_delegate_get_the_modules_of_the_graph_in_its_order() -> None:
    found = graph(("aten.convolution.default", "stem.0"), ("aten.linear.default", "head"))
    operators = traced("Transpose (ND, X32)", CONVOLUTION, "Clamp (NC)", LINEAR)
    assert places(operators, found) == ["near stem.0", "stem.0", "near stem.0", "head"]
    # A 1x1 convolution runs as Fully Connected.
    assert places(traced(LINEAR, LINEAR), found) == ["stem.0", "head"]


def test_other_operators_are_matched_between_two_matrix_operators() -> None:
    found = graph(
        ("aten.convolution.default", "stem.0"),
        ("aten.relu.default", "stem.1"),
        ("aten.permute_copy.default", "turn"),
        ("aten.linear.default", "head"),
        ("aten.permute_copy.default", "last"),
    )
    names = CONVOLUTION, "Transpose (ND, X32)", LINEAR, "Transpose (ND, X32)"
    assert places(traced(*names), found) == ["stem.0", "turn", "head", "last"]
    # Two of them where the graph has one: it is not known which is the model's own.
    more = CONVOLUTION, "Transpose (ND, X32)", "Transpose (ND, X32)", LINEAR
    assert places(traced(*more), found) == ["stem.0", "near turn", "near turn", "head"]


def test_a_batch_norm_after_no_convolution_runs_as_one() -> None:
    norm = "aten._native_batch_norm_legit_no_training.default"
    found = graph(
        ("aten.convolution.default", "a"), (norm, "b"), ("aten.relu.default", "c"), (norm, "d")
    )
    assert places(traced(CONVOLUTION, CONVOLUTION), found) == ["a", "d"]


def test_a_place_is_told_as_far_as_it_is_known() -> None:
    whole = Origin("aten.flip", "stem.0", "Conv2d", "/x/site-packages/net/b.py", 8, "x.flip(-1)")
    assert source_text(whole) == "`x.flip(-1)` at net/b.py:8 in stem.0 (Conv2d)"
    assert source_text(replace(whole, near=True)).startswith("near `x.flip(-1)` at ")
    assert source_text(Origin("aten.flip", file="a.py", line=3)) == "at a.py:3"
    assert source_text(Origin("aten.flip")) == ""


@pytest.mark.parametrize(
    "names", [(CONVOLUTION,), (CONVOLUTION, LINEAR, LINEAR), ("Batch Matrix Multiply", LINEAR)]
)
def test_nothing_is_claimed_where_number_or_kind_differ(names: tuple[str, ...]) -> None:
    found = graph(("aten.convolution.default", "stem.0"), ("aten.linear.default", "head"))
    assert set(match_origins(traced(*names), found)) == {None}
    assert set(match_origins(traced(*names), graph())) == {None}


def test_the_modules_of_a_real_model_are_found() -> None:
    (nodes,) = (found for found in read_attribution(ETRECORD).nodes.values() if len(found) > 1)
    matrix = [origin for name, origin in nodes if name.startswith("aten.convolution.")]
    assert matrix
    assert all(origin.module and origin.line and origin.code for origin in matrix)
