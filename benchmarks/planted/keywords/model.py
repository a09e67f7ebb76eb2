"""Keyword spotting on a spectrogram: separable convolutions. Random weights."""

from __future__ import annotations

import torch
from torch import nn

from pytest_sme2 import register_model

from .parts import Separable

WIDTH = 32
SIZE = 24


class Keywords(nn.Module):
    def __init__(self, width: int = WIDTH) -> None:
        super().__init__()
        self.stem = nn.Conv2d(1, width, 3, stride=2, padding=1)
        self.blocks = nn.ModuleList([Separable(width), Separable(width)])
        self.mix = nn.Conv2d(width, width, 1)
        self.norm = nn.BatchNorm2d(width)
        self.head = nn.Linear(width, 12)

    def pooled(self, value: torch.Tensor) -> torch.Tensor:
        value = torch.relu(self.norm(self.mix(value)))
        return value.mean((2, 3))

    def forward(self, sound: torch.Tensor) -> torch.Tensor:
        value = torch.relu(self.stem(sound))
        for block in self.blocks:
            value = block(value)
        value = self.pooled(value)
        return self.head(value)


@register_model("keywords", variants=("fp32", "fp16", "int8"))
class Model:
    def get_eager_model(self) -> nn.Module:
        return Keywords()

    def get_example_inputs(self) -> tuple[torch.Tensor, ...]:
        return (torch.randn(1, 1, SIZE, SIZE),)
