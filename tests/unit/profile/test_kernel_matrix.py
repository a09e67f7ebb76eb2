"""Kernel matrices: kept whole, refused when damaged, compared, and what they say of an operator."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from pytest_sme2.profile import kernel_matrix
from pytest_sme2.profile.categories import classify
from pytest_sme2.profile.coverage import Proof, settled
from pytest_sme2.profile.kernel_matrix import (
    cell_of,
    evidence,
    shipped_matrix,
    shipped_versions,
)
from pytest_sme2.profile.known_names import shipped_tables
from pytest_sme2.results.case import RUNTIME
from pytest_sme2.results.evidence import Cell, CellAnswer, Counts, KernelMatrix
from pytest_sme2.results.run import Arm, OperatorShapes
from pytest_sme2.verdict import baselines
from tests.support import recorded_runs

ROOT = Path(__file__).parents[3]

LINEAR = Cell("linear", "fp32", 32, "regular")
POINTWISE = Cell("convolution 1x1", "fp16", 32, "regular")
FAILED = Cell("attention", "bf16", 1, "regular")
MATRIX = KernelMatrix(
    executorch="1.5.1",
    torch="2.13.0",
    torchao="0.18.0",
    cpu="max,sme512=on,sme_fa64=off",
    answers=(
        CellAnswer(LINEAR, "sme2", "kai_sme2_mopa", ("Fully Connected",), 131072, 4300, 138.9),
        CellAnswer(POINTWISE, "neon", "library.so+0x10", ("Convolution",), 4096, 900, 60.0),
        CellAnswer(FAILED, problem="RuntimeError: no such kernel"),
    ),
)


# SME2 and NEON kernels share these names, and only what was executed tells.
SHARED = {f"Fully Connected (NC, QP8, F32, {weights}) GEMM" for weights in ("QC4W", "QC8W")}
# An operator by its name, the arm, and whether it executed instructions of streaming mode.
Ran = Iterator[tuple[str, Arm, bool]]


def in_the_matrix(version: str) -> Ran:
    for answer in shipped_matrix(version).answers:
        for name in answer.operators:
            yield name, Arm.ON, answer.family == "sme2"
            yield name, Arm.SME1, answer.sme1 == "sme1"
        yield from ((name, Arm.OFF, False) for name in answer.off)


def in_the_suite(version: str) -> Ran:
    for path in sorted((ROOT / "baselines" / "emulated").glob("*.json")):
        stored = baselines.read(path)
        assert stored is not None
        assert stored.versions[RUNTIME] == version
        for arm, structure in stored.structures.items():
            for entry in structure.operators:
                if entry.matrix or entry.kind == "depthwise":
                    yield entry.name.removesuffix(", depthwise"), arm, entry.sme2


def in_stored_runs(version: str) -> Ran:
    """Of real architectures; what their operators executed is counted."""
    for run in map(recorded_runs.measured, recorded_runs.recorded()):
        assert run.versions[RUNTIME] == version
        for arm, cost in run.costs.items():
            for entry in cost.operators:
                kinds = replace(entry.counts, instructions=0)
                if entry.matrix:
                    yield entry.name, arm, kinds != Counts()


@pytest.mark.parametrize("version", shipped_tables())
@pytest.mark.parametrize(
    ("source", "arms"),
    [(in_the_matrix, {*Arm}), (in_the_suite, {*Arm}), (in_stored_runs, {Arm.ON})],
)
def test_names_tell_what_was_executed_in_every_program(
    source: Callable[[str], Ran], arms: set[Arm], version: str
) -> None:
    """In each arm a name means one thing, whatever the shapes; of the shared ones it tells none."""
    proof, means = Proof(executorch=version), dict[tuple[str, Arm], bool]()
    for name, arm, ran in source(version):
        told = settled(classify(name), None, proof).proof
        assert told == ("unproven" if name in SHARED else ran), (name, arm)
        assert means.setdefault((name, arm), ran) is ran
    assert {arm for _, arm in means} == arms
    both = {name for name, _ in means if means.get((name, Arm.ON)) and (name, Arm.OFF) in means}
    assert both <= SHARED


def test_every_cell_that_can_be_made_ran_in_every_arm() -> None:
    newest = shipped_matrix(shipped_versions()[-1])
    assert not newest.missing
    failed = [each.cell for each in newest.answers if not (each.family and each.sme1 and each.off)]
    assert (len(newest.answers), len(failed)) == (364, 3)
    assert all(newest.by_cell[cell].problem for cell in failed)


POINTWISE_LAYER = OperatorShapes("convolution", ((1, 8, 8, 64), (10, 1, 1, 64)), (1, 8, 8, 10))
LAYER = OperatorShapes("linear", ((1, 64), (10, 64)), (1, 10))
FULL = OperatorShapes("convolution", ((1, 8, 8, 64), (10, 3, 3, 64)), (1, 8, 8, 10))
GROUPED = OperatorShapes("convolution", ((1, 8, 8, 64), (64, 3, 3, 16)), (1, 8, 8, 64))
ONE = OperatorShapes("convolution", ((1, 8, 8, 1), (64, 3, 3, 1)), (1, 8, 8, 64))
ONE_LARGE = OperatorShapes("convolution", ((1, 32, 32, 1), (64, 3, 3, 1)), (1, 32, 32, 64))
DEPTHWISE = OperatorShapes("depthwise convolution", ((1, 8, 8, 96), (1, 7, 7, 96)), (1, 8, 8, 96))
PRODUCT = OperatorShapes("matrix product", ((4, 1, 64), (4, 64, 32)), (4, 1, 32))
CELLS = tuple(
    Cell(operator, data_type, rows, size)
    for operator in (
        "linear", "convolution 1x1", "convolution 3x3", "grouped convolution",
        "batch matrix product", "depthwise convolution",
    )
    for data_type in (
        "fp32", "fp16", "int8 per channel", "int8 per tensor", "int4 per group",
        "int4 per channel", "dynamic int8",
    )
    for rows, size in ((1, "regular"), (4, "regular"), (32, "regular"), (256, "regular"),
                       (32, "1 input"))
)  # fmt: skip


@pytest.mark.parametrize(
    ("name", "shapes", "operator", "data_type", "rows"),
    [
        ("Fully Connected (NC, F16) GEMM", POINTWISE_LAYER, "convolution 1x1", "fp16", 32),
        ("Fully Connected (NC, PF32) GEMM", LAYER, "linear", "fp32", 1),
        ("Convolution (NHWC, F32) IGEMM", FULL, "convolution 3x3", "fp32", 32),
        ("Convolution (NHWC, QC8) IGEMM", FULL, "convolution 3x3", "int8 per channel", 32),
        ("Convolution (NHWC, F16) IGEMM", GROUPED, "grouped convolution", "fp16", 32),
        ("Batch Matrix Multiply (NC, F32) GEMM", PRODUCT, "batch matrix product", "fp32", 1),
        ("Fully Connected (NC, QS8) GEMM", LAYER, "linear", "int8 per tensor", 1),
        ("Fully Connected (NC, QP8, F32, QB4W) GEMM", LAYER, "linear", "int4 per group", 1),
        (
            "Fully Connected (NC, QP8, F32, QC4W) GEMM",
            LAYER,
            "linear",
            "int4 per channel",
            1,
        ),
        ("Fully Connected (NC, QD8, F32, QC8W) GEMM", LAYER, "linear", "dynamic int8", 1),
        # One input channel is a size of its own, of which the matrix has 32 rows alone.
        ("Convolution (NHWC, F32) IGEMM", ONE, "convolution 3x3", "fp32", 32),
        ("Convolution (NHWC, F32) IGEMM", ONE_LARGE, "convolution 3x3", "fp32", 32),
        ("Convolution (NHWC, F16) IGEMM", DEPTHWISE, "depthwise convolution", "fp16", 32),
    ],
)
def test_an_operator_belongs_to_a_cell(
    name: str, shapes: OperatorShapes, operator: str, data_type: str, rows: int
) -> None:
    size = "1 input" if shapes in (ONE, ONE_LARGE) else "regular"
    assert cell_of(classify(name), shapes, CELLS) == Cell(operator, data_type, rows, size)


def test_without_shapes_or_outside_of_the_delegate_there_is_no_cell() -> None:
    assert cell_of(classify("Fully Connected (NC, F16) GEMM"), None, CELLS) is None
    assert cell_of(classify("native_call_mm.out"), LAYER, CELLS) is None
    assert cell_of(classify("Convolution (NCHW, F32) SPMM"), FULL, CELLS) is None
    assert cell_of(classify("Fully Connected (NC, QD8, F32, QC2W) GEMM"), LAYER, CELLS) is None


def matrix(version: str) -> KernelMatrix:
    def cell(data_type: str) -> Cell:
        return Cell("convolution 1x1", data_type, 32, "regular")

    answers = (
        CellAnswer(cell("fp32"), "sme2", "kai_mopa"),
        CellAnswer(cell("fp16"), "neon", "xnn_neon"),
        CellAnswer(cell("dynamic int8"), problem="it failed"),
    )
    return KernelMatrix(version, "2.13.0", "0.18.0", "max", answers, (cell("int8 per channel"),))


@pytest.fixture
def shipped(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(kernel_matrix, "shipped_versions", lambda: ("1.5.0", "1.5.1"))
    monkeypatch.setattr(kernel_matrix, "shipped_matrix", matrix)


@pytest.mark.usefixtures("shipped")
def test_the_evidence_is_the_cell_and_its_neighbours() -> None:
    assert evidence(classify("Fully Connected (NC, F16) GEMM"), POINTWISE_LAYER) == (
        "kernel matrix of ExecuTorch 1.5.1: convolution 1x1, fp16, 32 rows, regular size: NEON "
        "(xnn_neon); on SME2 in fp32 (dynamic int8, int8 per channel: not known)"
    )


@pytest.mark.usefixtures("shipped")
def test_what_the_matrix_does_not_have_is_not_known() -> None:
    said = evidence(classify("Fully Connected (NC, QS8, QC8W) GEMM"), POINTWISE_LAYER)
    assert "convolution 1x1, int8 per channel, 32 rows, regular size is not known" in said
    prompt = OperatorShapes("linear", ((33, 64), (10, 64)), (33, 10))
    for operator in ("Fully Connected (NC, F16) GEMM", "native_call_mm.out"):
        assert "no cell for it" in evidence(classify(operator), prompt)
