"""What an export does to torch and ExecuTorch before it uses them: the programs stay the same."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from pytest_sme2.export.artifacts import export_model
from pytest_sme2.export.registry import discover
from pytest_sme2.export.variant import parse_variant
from tests.support.needs import needs_export
from tests.support.recorded_runs import ARCHITECTURE_RUNS, ARCHITECTURES, MODELS

pytestmark = needs_export

BASELINES = MODELS.parent / "baselines" / "emulated"

# In a process of its own: the changes last as long as the process.
_TWICE = """
import hashlib
from unittest import mock

import torch
from executorch.backends.xnnpack.partition.xnnpack_partitioner import (
    XnnpackDynamicallyQuantizedPartitioner,
    XnnpackPartitioner,
)
from executorch.backends.xnnpack.utils.configs import get_transform_passes
from executorch.exir import EdgeProgramManager, to_edge_transform_and_lower
from torch.nn import functional

from pytest_sme2.export.lowering import quantize, quantized_first
from pytest_sme2.export.quicker import lower_quicker


class Network(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.first = torch.nn.Conv2d(3, 8, 3, padding=1)
        self.norm = torch.nn.BatchNorm2d(8)
        self.one = torch.nn.Conv1d(8, 8, 3)
        self.linear = torch.nn.Linear(8, 8)

    def forward(self, image):
        rows = functional.relu(self.norm(self.first(image))).flatten(2)
        rows = functional.prelu(self.one(rows), torch.ones(8)).flip(-1).transpose(1, 2)
        rows = functional.scaled_dot_product_attention(rows, rows, self.linear(rows))
        rows = rows.expand(1, 62, 8)  # does nothing, and a pass removes it
        cut = torch.cat((rows, rows[:, :4]), 1)
        return functional.interpolate(cut[None], scale_factor=2.0, mode="bilinear").tanh()


class Words(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.words = torch.nn.Embedding(16, 8)
        self.linear = torch.nn.Linear(8, 8)
        self.register_buffer("cache", torch.zeros(1, 32, 8))

    def forward(self, tokens, places):
        rows = self.linear(functional.rms_norm(self.words(tokens), (8,)))
        self.cache[:, places] = rows
        rows = functional.softmax(rows @ self.cache.transpose(1, 2), -1) @ self.cache
        return torch.cat(rows.chunk(2, -1)[::-1], -1)[:, -1:]


TOKENS = torch.export.Dim("tokens", min=1, max=16)
SHAPES = {1: TOKENS}, {0: TOKENS}


ALL, FIRST = XnnpackPartitioner(), XnnpackDynamicallyQuantizedPartitioner()
WORDS = torch.tensor([[1, 2, 3]]), torch.arange(3)


def capture(network, example, shapes=None):
    torch.manual_seed(0)
    network = network().eval().requires_grad_(False)
    return torch.export.export(network, example, dynamic_shapes=shapes)


def lower(captured, *partitioners):
    passes = get_transform_passes()
    edge = to_edge_transform_and_lower(captured, passes, list(partitioners))
    return hashlib.sha256(edge.to_executorch().buffer).hexdigest()


def program(*chosen):
    return lower(capture(*chosen), ALL)


def programs():
    return program(Network, (torch.ones(1, 3, 8, 8),)), program(Words, WORDS, SHAPES)


plain = programs()
quantized = quantize(capture(Words, WORDS), "int8_dynamic", WORDS, {}, torch)
in_turn = lower(quantized, FIRST, ALL)
lower_quicker()

delegate, asked = EdgeProgramManager.to_backend, []


def refuse_once(self, partitioner):
    asked.append(self)
    if len(asked) == 1:
        raise AssertionError("Invalid partition, found dependency cycles")
    return delegate(self, partitioner)


with mock.patch.object(EdgeProgramManager, "to_backend", refuse_once), quantized_first():
    assert lower(quantized, ALL) == in_turn
refused, first, then = asked
assert refused is first is not then, "decomposed again"

graph = torch.fx.symbolic_trace(torch.nn.ReLU())
assert "_code" not in vars(graph), "compiled before its code is read"
assert "relu" in graph.code.lower()
other = torch.fx.symbolic_trace(torch.nn.ReLU())
assert other(torch.tensor([-1.0, 2.0])).tolist() == [0.0, 2.0]
assert "_code" in vars(other), "called without being compiled"

assert programs() == plain, "a program differs"
"""


def test_a_program_is_the_same_byte_for_byte() -> None:
    made = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", _TWICE], capture_output=True, text=True, check=False
    )
    assert made.returncode == 0, made.stderr[-2000:]


_PLAIN = """
import sys
from contextlib import nullcontext
from pathlib import Path

from pytest_sme2.export import lowering
from pytest_sme2.export.explain import Reporter
from pytest_sme2.export.registry import discover
from pytest_sme2.export.variant import parse_variant

models, name, variant, folder = sys.argv[1:]
lowering.lower_quicker = lambda: None
lowering.quantized_first = nullcontext
entry = discover([Path(models)]).get(name)
request = lowering.LoweringRequest(entry, parse_variant(variant), 0, None, Path(folder))
try:
    lowering.lower(request, Reporter(print, ""))
except AssertionError as error:
    assert "dependency cycles" in str(error)
    from executorch.backends.xnnpack.partition import xnnpack_partitioner as xnnpack

    first = xnnpack.XnnpackDynamicallyQuantizedPartitioner()
    lowering.partitioners = lambda _: [first, xnnpack.XnnpackPartitioner()]
    lowering.lower(request, Reporter(print, ""))
"""


@pytest.mark.nightly
@pytest.mark.parametrize(
    ("models", "case"),
    [
        *((MODELS, file.stem) for file in sorted(BASELINES.glob("*.json"))),
        *((ARCHITECTURES, name) for name in ARCHITECTURE_RUNS),
    ],
    ids=lambda value: value if isinstance(value, str) else value.name,
)
def test_a_real_program_is_the_same_byte_for_byte(models: Path, case: str, tmp_path: Path) -> None:
    name, _, variant = case.partition("-")
    words = [sys.executable, "-W", "ignore", "-c", _PLAIN, str(models), name, variant]
    # As exports are: the order of a set of strings is in the bytes.
    environment = {**os.environ, "PYTHONHASHSEED": "0"}
    subprocess.run([*words, str(tmp_path)], env=environment, check=True)
    artifact = export_model(discover([models]).get(name), parse_variant(variant))
    (plain,) = tmp_path.glob("*.pte")
    assert plain.read_bytes() == artifact.pte.read_bytes()
