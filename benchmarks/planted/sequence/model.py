"""A temporal convolution network with gates over a sequence. Random weights."""

from __future__ import annotations

import torch
from torch import nn
from torch.nn import functional

from pytest_sme2 import register_model

from .parts import Gate

WIDTH = 24
SIZE = 40


class Step(nn.Module):
    def __init__(self, width: int, dilation: int) -> None:
        super().__init__()
        self.pad = 2 * dilation
        self.conv = nn.Conv1d(width, width, 3, dilation=dilation)
        self.norm = nn.BatchNorm1d(width)
        self.gate = Gate(width)

    def forward(self, value: torch.Tensor) -> torch.Tensor:
        inner = functional.pad(value, (self.pad, 0))
        inner = torch.relu(self.norm(self.conv(inner)))
        return value + self.gate(inner)


class Sequence(nn.Module):
    def __init__(self, width: int = WIDTH) -> None:
        super().__init__()
        self.enter = nn.Conv1d(8, width, 1)
        self.steps = nn.ModuleList(Step(width, 2**place) for place in range(3))
        self.score = nn.Linear(width, width)
        self.head = nn.Sequential(nn.Linear(width, 32), nn.ReLU(), nn.Linear(32, 6))

    def attend(self, value: torch.Tensor) -> torch.Tensor:
        value = value.transpose(1, 2)
        scores = self.score(value)
        return (value * scores.softmax(1)).sum(1)

    def forward(self, sound: torch.Tensor) -> torch.Tensor:
        value = self.enter(sound)
        for step in self.steps:
            value = step(value)
        value = torch.tanh(value)
        return self.head(self.attend(value))


@register_model("sequence", variants=("fp32", "fp16", "int8"))
class Model:
    def get_eager_model(self) -> nn.Module:
        return Sequence()

    def get_example_inputs(self) -> tuple[torch.Tensor, ...]:
        return (torch.randn(1, 8, SIZE),)
