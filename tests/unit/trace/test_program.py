"""The reader of programs: real ones, damaged ones, and the schemas it was written after."""

from __future__ import annotations

import os
import re
from pathlib import Path

import pytest

from pytest_sme2.errors import ProgramError
from pytest_sme2.results.run import MethodOutline, TensorSpec
from pytest_sme2.trace import program
from pytest_sme2.trace.program import read_outline, read_program

PROGRAMS = Path(__file__).parents[2] / "data" / "programs"


def listed(name: str, method: int = 0) -> list[tuple[int, str, str]]:
    calls = read_program(PROGRAMS / f"{name}.pte")[method].calls
    return [(row, found.operation, str(found)) for row, many in calls.items() for found in many]


TOY = [
    (0, "convolution", "1x16x16x3 by 8x3x3x3 to 1x16x16x8"),
    (0, "convolution", "1x16x16x8 by 16x1x1x8 to 1x16x16x16"),
    (1, "aten::mean.out", "1x16x16x16 to 1x16"),
    (2, "aten::cumsum.out", "1x16 to 1x16"),
    (3, "linear", "1x16 by 10x16 to 1x10"),
]


@pytest.mark.parametrize("name", ["toy_fp16", "toy_int8"])
def test_the_operators_of_every_call_have_their_shapes(name: str) -> None:
    # The quantized program has more calls, for what is quantized between the kernels.
    operators = [(operation, shapes) for _, operation, shapes in listed(name)]
    assert operators == [(operation, shapes) for _, operation, shapes in TOY]
    if name == "toy_fp16":
        assert listed(name) == TOY


def test_every_method_is_read() -> None:
    methods = read_program(PROGRAMS / "methods.pte")
    assert sorted(method.name for method in methods) == ["forward", "scale"]
    both = {method.name: number for number, method in enumerate(methods)}
    assert listed("methods", both["forward"]) == TOY
    assert [operation for _, operation, _ in listed("methods", both["scale"])] == [
        "aten::cumsum.out"
    ]


def test_a_program_says_what_its_methods_take_and_give() -> None:
    methods = {method.name: method for method in read_outline(PROGRAMS / "methods.pte")}
    image = TensorSpec("float32", (1, 3, 16, 16))
    assert methods == {
        "forward": MethodOutline(
            "forward", (image,), (TensorSpec("float32", (1, 10)),), ("XnnpackBackend",), 4
        ),
        "scale": MethodOutline("scale", (image,), (image,), ("XnnpackBackend",), 2),
    }
    (half,) = read_outline(PROGRAMS / "toy_fp16.pte")
    assert half.inputs == (TensorSpec("float16", (1, 3, 16, 16)),)


def test_depthwise_convolutions_are_recognized() -> None:
    operations = [operation for _, operation, _ in listed("mobile_fp16")]
    assert operations.count("depthwise convolution") == 4
    assert operations.count("convolution") == 10
    assert operations.count("linear") == 1


def test_a_dense_convolution_of_one_channel_is_not_depthwise() -> None:
    """ExecuTorch writes ``Conv1d(1, 4, 5)`` as XNNPACK's depthwise node."""
    assert listed("one_channel_fp32") == [
        (0, "convolution", "1x24x1x1 by 4x5x1x1 to 1x20x1x4"),
        (0, "convolution", "1x20x1x4 by 2x3x1x4 to 1x18x1x2"),
    ]


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"", "the file is empty"),
        (b"short", "not a program"),
        (b"\0" * 4 + b"ED00" + b"\0" * 40, "not a program: the identifier ET12 is missing"),
        (b"\x08\0\0\0ET12" + b"\xff" * 60, "damaged or of another format"),
        (b"\x20\0\0\0ET12eh00\x20\0\0\0" + b"\xff" * 40, "ends before its segments begin"),
    ],
)
def test_file_that_is_not_a_program_is_refused(
    tmp_path: Path, content: bytes, message: str
) -> None:
    path = tmp_path / "a b'.pte"
    path.write_bytes(content)
    with pytest.raises(ProgramError, match=message) as caught:
        read_program(path)
    assert str(path) in str(caught.value)


def test_path_that_is_not_a_file_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ProgramError, match="no such file"):
        read_program(tmp_path / "missing.pte")
    with pytest.raises(ProgramError, match="not a file"):
        read_program(tmp_path)


@pytest.fixture(scope="module")
def schemas() -> str:
    if not os.environ.get("CI"):
        pytest.importorskip("executorch")
    import executorch

    root = Path(next(iter(executorch.__path__)))
    files = ("exir/_serialize/program.fbs", "backends/xnnpack/serialization/schema.fbs")
    text = "\n".join((root / file).read_text("utf-8") for file in files)
    return re.sub(r"//.*", "", text)


def slots(schemas: str, table: str) -> dict[str, int]:
    """A table's fields by name; a union takes two slots, the type's first."""
    body = re.search(rf"\btable {table} {{(.*?)}}", schemas, re.DOTALL)
    assert body, table
    unions = set(re.findall(r"\bunion (\w+)", schemas))
    found: dict[str, int] = {}
    slot = 0
    for name, kind in re.findall(r"(\w+)\s*:\s*\[?([\w.]+)", body[1]):
        slot += kind in unions
        found[name] = slot
        slot += 1
    return found


def members(schemas: str, union: str) -> list[str]:
    body = re.search(rf"\bunion {union} {{(.*?)}}", schemas, re.DOTALL)
    assert body, union
    return [entry.split(":")[0].strip() for entry in body[1].split(",") if entry.strip()]


@pytest.mark.filterwarnings("ignore")
def test_the_slots_are_those_of_the_installed_schemas(schemas: str) -> None:
    plan = slots(schemas, "ExecutionPlan")
    assert [plan[name] for name in ("name", "values", "chains", "operators", "delegates")] == [
        0, 2, 5, 6, 7,
    ]  # fmt: skip
    whole = slots(schemas, "Program")
    assert [whole[name] for name in ("execution_plan", "backend_delegate_data", "segments")] == [
        1, 3, 4,
    ]  # fmt: skip
    assert slots(schemas, "Chain")["instructions"] == 2
    assert slots(schemas, "Tensor")["sizes"] == 2
    for call, index in (("KernelCall", "op_index"), ("DelegateCall", "delegate_index")):
        assert slots(schemas, call) == {index: 0, "args": 1}
    assert slots(schemas, "Operator") == {"name": 0, "overload": 1}
    assert slots(schemas, "BackendDelegateDataReference") == {"location": 0, "index": 1}
    assert slots(schemas, "DataSegment") == {"offset": 0, "size": 1}
    assert slots(schemas, "EValue")["val"] == slots(schemas, "Instruction")["instr_args"] == 1
    assert members(schemas, "KernelTypes")[program._TENSOR - 1] == "Tensor"
    assert members(schemas, "InstructionArguments")[:2] == ["KernelCall", "DelegateCall"]


@pytest.mark.filterwarnings("ignore")
def test_the_nodes_are_those_of_the_installed_schema(schemas: str) -> None:
    graph = slots(schemas, "XNNGraph")
    assert (graph["xnodes"], graph["xvalues"]) == (1, 2)
    value = slots(schemas, "XNNTensorValue")
    assert (value["dims"], value["id_out"]) == (2, 6)
    assert members(schemas, "XValueUnion")[1] == "XNNQuantizedTensorValue"
    nodes = members(schemas, "XNodeUnion")
    expected = {
        "XNNFullyConnected": ("XNNFullyConnected", ("input1_id", "filter_id"), "output_id"),
        "XNNConv2d": ("_XNNNodeConv", ("input1_id", "filter_id"), "output_id"),
        "XNNDepthwiseConv2d": ("_XNNNodeConv", ("input1_id", "filter_id"), "output_id"),
        "XNNConvTranspose2d": ("_XNNNodeConv", ("input1_id", "filter_id"), "output_id"),
        "XNNBatchMatrixMultiply": ("_XNNNode2x1", ("input1_id", "input2_id"), "output_id"),
        "XNNScaledDotProductAttention": (
            "XNNScaledDotProductAttention", ("query_id", "key_id", "value_id"), "output_id",
        ),
    }  # fmt: skip
    assert {nodes[number - 1] for number in program.XNNPACK_NODES} == set(expected)
    for number, (_, inputs, output) in program.XNNPACK_NODES.items():
        table, names, result = expected[nodes[number - 1]]
        found = slots(schemas, table)
        assert inputs == tuple(found[name] for name in names)
        assert output == found[result]
