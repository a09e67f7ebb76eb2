"""What an export does to torch and ExecuTorch before it uses them: the programs stay the same."""

from __future__ import annotations

import subprocess
import sys

from tests.support.needs import needs_export

pytestmark = needs_export

# In a process of its own: the changes last as long as the process.
_TWICE = """
import hashlib
import torch
from executorch.backends.xnnpack.partition.xnnpack_partitioner import XnnpackPartitioner
from executorch.backends.xnnpack.utils.configs import get_transform_passes
from executorch.exir import to_edge_transform_and_lower
from torch.nn import functional

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


def program(network, example, shapes=None):
    torch.manual_seed(0)
    network = network().eval().requires_grad_(False)
    captured = torch.export.export(network, example, dynamic_shapes=shapes)
    lowered = to_edge_transform_and_lower(
        captured, transform_passes=get_transform_passes(), partitioner=[XnnpackPartitioner()]
    )
    return hashlib.sha256(lowered.to_executorch().buffer).hexdigest()


def programs():
    words = torch.tensor([[1, 2, 3]]), torch.arange(3)
    return program(Network, (torch.ones(1, 3, 8, 8),)), program(Words, words, SHAPES)


plain = programs()
lower_quicker()

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
