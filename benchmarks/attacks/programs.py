"""A real program on the emulator, as a project has it, and a slower one of a branch."""

from __future__ import annotations

from benchmarks.attacks.stage import Change, Stage, both, swap, write

SUITE = """
def test_structure(sme2_gate):
    sme2_gate.check_operators()
    sme2_gate.check_kernels()
    sme2_gate.check_evidence()

def test_cost(sme2_gate):
    sme2_gate.check_cost()

def test_outputs(sme2_gate):
    sme2_gate.check_outputs()
    sme2_gate.check_outputs(against="off")
"""
INI = "[pytest]\nsme2_models = models\nsme2_device = emulated\n"
NET = """
import torch
from torch import nn

from pytest_sme2 import register_model

class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.first = nn.Conv2d(3, 16, 3, padding=1)
        self.second = nn.Conv2d(16, 16, 3, padding=1)
        self.last = nn.Linear(16, 10)

    def forward(self, image):
        features = torch.relu(self.second(torch.relu(self.first(image))))
        return self.last(features.mean((2, 3)))

@register_model("net", variants=("fp32",))
class Model:
    def get_eager_model(self):
        net = Net()
        return net

    def get_example_inputs(self):
        return (torch.randn(1, 3, 16, 16),)
"""


def files(net: str = NET) -> Change:
    """A project with this model."""
    return both(
        write("models/net/model.py", net), write("tox.ini", INI), write("test_suite.py", SUITE)
    )


ONE = Stage("one", files(), ())
SLOWER = swap(
    "models/net/model.py",
    "        return net\n",
    "        net.last = nn.Sequential(net.last, nn.Linear(10, 10))\n        return net\n",
)
