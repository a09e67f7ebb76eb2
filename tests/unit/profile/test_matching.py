"""Shapes and places find their operators, in real traces of real programs."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from pytest_sme2.profile.build import build_profiles
from pytest_sme2.profile.categories import classify
from pytest_sme2.profile.matching import match_nodes, match_origins, source_text
from pytest_sme2.report.findings import profile_findings
from pytest_sme2.results.profile import Operator, Profile
from pytest_sme2.results.run import Attribution, Frame, MethodShapes, Origin
from pytest_sme2.session.analysis import analyze_file
from pytest_sme2.trace.etdump import read_etdump
from pytest_sme2.trace.program import read_program
from tests.support import ETDUMPS

PROGRAMS = Path(__file__).parents[2] / "data" / "programs"
EDGETAM = Path(__file__).parents[2] / "data" / "edgetam"
POINTWISE = "1x16x16x8 by 16x1x1x8"


def profile(trace: str, program: str) -> Profile:
    methods = read_program(PROGRAMS / f"{program}.pte")
    return build_profiles(read_etdump(ETDUMPS / f"{trace}.etdump"), shapes=methods)[0]


@pytest.mark.parametrize(
    ("trace", "program"),
    [
        ("cpp_toy_fp16_on", "toy_fp16"),
        ("cpp_toy_fp16_off", "toy_fp16"),
        ("py_toy_fp16", "toy_fp16"),
        ("cpp_toy_int8_on", "toy_int8"),
        ("cpp_toy_int8_off", "toy_int8"),
        ("py_toy_int8", "toy_int8"),
        ("cpp_mobile_fp16_on", "mobile_fp16"),
        ("cpp_mobile_fp16_off", "mobile_fp16"),
        ("py_mobile_fp16", "mobile_fp16"),
        ("py_methods", "methods"),
    ],
)
def test_every_matrix_operator_finds_its_shapes(trace: str, program: str) -> None:
    found = profile(trace, program)
    matrix = [member for member in found.operators if member.operator.matrix]
    assert all(member.shapes is not None for member in matrix)
    for member in matrix:
        weights = member.shapes.inputs[-1]
        if member.operator.kind == "linear" and member.shapes.operation == "convolution":
            assert weights[1:3] == (1, 1), "only a pointwise convolution runs as Fully Connected"
        assert weights[0] == member.shapes.output[-1]
    if trace == "cpp_toy_fp16_on":
        assert [str(member.shapes) for member in matrix] == [
            "1x16x16x3 by 8x3x3x3 to 1x16x16x8",
            f"{POINTWISE} to 1x16x16x16",
            "1x16 by 10x16 to 1x10",
        ]


def test_a_call_with_other_operators_stays_unknown() -> None:
    (method,) = read_program(PROGRAMS / "toy_fp16.pte")
    fewer = {**method.calls, 0: method.calls[0][:1]}
    other = {**method.calls, 0: tuple(replace(found, operation="matrix product")
                                      for found in method.calls[0])}  # fmt: skip
    for calls in (fewer, other):
        columns = read_etdump(ETDUMPS / "cpp_toy_fp16_on.etdump")
        found = build_profiles(columns, shapes=[MethodShapes("forward", calls)])[0]
        known = [member.shapes is not None for member in found.operators if member.operator.matrix]
        assert known == [False, False, True]


def test_findings_name_the_shapes_and_are_certain_then() -> None:
    unknown = profile_findings(build_profiles(read_etdump(ETDUMPS / "cpp_toy_fp16_on.etdump"))[0])
    assert any("of the time): most likely 1x1 convolutions" in line for line in unknown)

    found = profile("cpp_toy_fp16_on", "toy_fp16")
    known = profile_findings(found, timed=False)
    (missed,) = (line for line in known if "not on SME2" in line)
    assert missed.startswith(
        f"not on SME2: 1 Fully Connected (NC, F16) GEMM ({POINTWISE}): 1x1 conv"
    )


def test_the_coverage_gap_of_edgetam_is_told_in_words() -> None:
    whole = analyze_file(EDGETAM / "fp32_on.etdump").profile
    assert "matrix operators on SME2: all 81 (fp32)" in profile_findings(whole)

    found = profile_findings(analyze_file(EDGETAM / "fp16_on.etdump").profile, timed=False)
    assert found[0] == "matrix operators on SME2: 2 of 81 (fp16)"
    assert found[1].startswith("outside of the delegate: GELU (27 gelu, with 80 transposes beside)")
    assert found[2].startswith("not on SME2: 79 Fully Connected (NC, F16) GEMM (1x")
    assert found[2].endswith(
        "other shapes): 1x1 convolutions: ExecuTorch stores the weights of fp16 "
        "convolutions as fp32, and XNNPACK has no SME2 kernel for Fully Connected in fp16 with "
        "fp32 weights"
    )
    assert not any("time" in line for line in found)


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


def test_a_place_in_a_helper_names_the_way_to_it() -> None:
    calls = Frame("a.py", 9, "forward"), Frame("a.py", 45, "forward"), Frame("a.py", 35, "scan")
    helper = Origin("aten.cumsum", "", "", "a.py", 35, "x.cumsum(1)", way=calls)
    assert source_text(helper) == "`x.cumsum(1)` at a.py:35 (forward:45 → scan:35)"
    assert source_text(replace(helper, line=45, way=calls[:2])) == "`x.cumsum(1)` at a.py:45"
    library = replace(helper, file="/x/site-packages/net/b.py", line=8)
    assert source_text(library) == "`x.cumsum(1)` at net/b.py:8 (from a.py:35)"


@pytest.mark.parametrize(
    "names", [(CONVOLUTION,), (CONVOLUTION, LINEAR, LINEAR), ("Batch Matrix Multiply", LINEAR)]
)
def test_nothing_is_claimed_where_number_or_kind_differ(names: tuple[str, ...]) -> None:
    found = graph(("aten.convolution.default", "stem.0"), ("aten.linear.default", "head"))
    assert set(match_origins(traced(*names), found)) == {None}
    assert set(match_origins(traced(*names), graph())) == {None}


@pytest.mark.parametrize(
    ("operations", "nodes", "ran", "parts"),
    [
        # In XNNPACK's union: 1 Add, 2 Linear, 6 Clamp, 7 Convolution, 18 Convert, 20 Reshape.
        (["Convolution", "Add", "Clamp"], [7, 6, 1, 6], [0, 2, 3], {1: 0}),
        (["Add", "Clamp", "Fully Connected"], [1, 2, 7, 6], [0, 0, 1], {2: 1, 3: 1}),
        (["Clamp", "Add"], [1, 18], [0, 0], {1: 0}),
        (["Fully Connected", "Fully Connected"], [18, 2, 20, 2], [1, 3], {0: 1, 2: 3}),
        # Of a later version: anything may be what it runs.
        (["Add", "Erf", "Softmax"], [1, 99, 3], [0, 1, 2], {}),
        (["Add"], [], [], {}),
        ([], [1], [], {}),
    ],
)
def test_operators_are_laid_on_the_nodes_that_they_run(
    operations: list[str], nodes: list[int], ran: list[int], parts: dict[int, int]
) -> None:
    assert match_nodes(operations, nodes) == (ran, parts)
