from __future__ import annotations

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
