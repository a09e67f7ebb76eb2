"""Batch norms of random networks: settled where that means something, left alone elsewhere."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from pytest_sme2.export.random_weights import lifeless
from tests.support.needs import needs_export

pytestmark = needs_export

ROOT = Path(__file__).parents[3]

# torch warns while it is imported, which is none of our tests' business.
SCRIPT = """
import torch
from pytest_sme2.export.random_weights import fill_zero_weights, settle_batch_norms

torch.manual_seed(0)
network = torch.nn.Sequential(
    torch.nn.Conv2d(3, 8, 3), torch.nn.BatchNorm2d(8),
    torch.nn.AdaptiveAvgPool2d(1), torch.nn.BatchNorm2d(8),
).train()
image = 5 + 3 * torch.randn(1, 3, 16, 16)
assert settle_batch_norms(network, image) is network
assert network.training
settled = network[1].eval()(network[0](image))
assert settled.mean((0, 2, 3)).abs().max() < 1e-5
assert (settled.std((0, 2, 3)) - 1).abs().max() < 1e-3
# One value a channel: its statistics stay what they were.
assert network[3].running_var.eq(1).all()
assert network[3].running_mean.eq(0).all()
assert not network[1]._forward_pre_hooks

# Layers on a few pixels: what differs in the last digits must not decide the answer.
blocks = [(torch.nn.Conv2d(32, 32, 3, padding=1), torch.nn.ReLU(), torch.nn.BatchNorm2d(32))
          for _ in range(12)]
deep = torch.nn.Sequential(*(layer for block in blocks for layer in block)).eval()
small = torch.randn(1, 32, 2, 2)
settle_batch_norms(deep, small)
with torch.no_grad():
    answer, beside = deep(small), deep(small + 1e-6)
assert 0.1 < answer.std() < 10, answer.std()
assert (answer - beside).abs().max() < 1e-4, (answer - beside).abs().max()

head = torch.nn.Sequential(torch.nn.Linear(4, 4), torch.nn.Linear(4, 2))
torch.nn.init.zeros_(head[1].weight)
kept = head[0].weight.clone()
assert fill_zero_weights(head) is head
assert head[1].weight.any()
assert head[0].weight.equal(kept)
print("fine")
"""


def test_batch_norms_get_the_statistics_of_the_inputs() -> None:
    done = subprocess.run([sys.executable, "-c", SCRIPT], cwd=ROOT, capture_output=True, text=True)
    assert done.stdout == "fine\n", done.stderr


@pytest.mark.parametrize(
    ("least", "greatest", "values", "reason"),
    [
        (-3.95e-14, 2e-14, 1000, "nearly zero (its largest value is 4e-14)"),
        (0.0, 0.0, 1, "nearly zero (its largest value is 0)"),
        (0.998, 1.0, 10, "nearly constant (all values lie between 0.998 and 1)"),
        (1.0, 1.0, 1, ""),
        (-0.1, 0.1, 10, ""),
        (1e-4, 2e-4, 10, ""),
    ],
)
def test_an_output_that_says_nothing(
    least: float, greatest: float, values: int, reason: str
) -> None:
    assert lifeless(least, greatest, values) == reason
