from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from pytest_sme2.export.explain import Reporter, explain
from tests.support.needs import needs_export

pytestmark = needs_export


def reporter(**facts: Any) -> Reporter:
    return Reporter(say=lambda _: None, stage="capturing the graph", **facts)


@pytest.mark.parametrize(
    ("text", "remedy"),
    [
        ("Could not guard on data-dependent expression u0 > 1", "torch.where"),
        ("Missing out variants: {'aten::_linalg_det'}", "register a kernel"),
        ("unsupported scalar type ComplexFloat", "sine and cosine"),
        ("DynamicCache is not registered with pytree", "use_cache=False"),
        ("[Errno 28] No space left on device", "Free space where the cache"),
    ],
)
def test_a_known_failure_names_the_way_out(text: str, remedy: str) -> None:
    assert remedy in explain(RuntimeError(text), reporter())


def test_the_line_of_a_library_is_named_where_the_model_has_none() -> None:
    trace = (
        'File "/x/site-packages/transformers/models/gpt2/modeling_gpt2.py", line 7, in forward\n'
        'File "/x/site-packages/torch/nn/functional.py", line 9, in embedding'
    )
    schema = SimpleNamespace(name="aten::embedding", overload_name="")
    node = SimpleNamespace(
        op="call_function", target=SimpleNamespace(_schema=schema), meta={"stack_trace": trace}
    )
    captured = SimpleNamespace(graph=SimpleNamespace(nodes=[node]))
    found = explain(
        RuntimeError("aten::embedding got a float"),
        reporter(captured=captured, own_files=(Path("/x/model.py"),)),
    )
    assert "modeling_gpt2.py:7" in found


_HELPER = """
import torch
from pytest_sme2.export.explain import keep_helper_frames

keep_helper_frames()

class Network(torch.nn.Module):
    def scan(self, rows):
        return torch.cumsum(rows, 1)

    def forward(self, rows):
        return torch.relu(self.scan(rows))

program = torch.export.export(Network(), (torch.ones(2, 3),)).run_decompositions()
for node in program.graph.nodes:
    if node.op == "call_function":
        lines = node.meta["stack_trace"].splitlines()
        print(node.target, *(line.rpartition(", in ")[2] for line in lines if " line " in line))
"""


def test_nodes_of_a_graph_remember_the_helpers_of_a_model(tmp_path: Path) -> None:
    program = tmp_path / "program.py"
    program.write_text(_HELPER, "utf-8")
    done = subprocess.run([sys.executable, program], capture_output=True, text=True, check=True)
    lines = ["aten.cumsum.default forward scan", "aten.relu.default forward"]
    assert done.stdout.splitlines() == lines
