"""A small U-Net. Random weights."""

from __future__ import annotations

import torch
from torch import nn
from torch.nn import functional

from pytest_sme2 import register_model

from . import parts

WIDTH = 12
SIZE = 16


def block(channels: int, wider: int) -> nn.Sequential:
    return nn.Sequential(
        nn.Conv2d(channels, wider, 3, padding=1),
        nn.BatchNorm2d(wider),
        nn.ReLU(),
        nn.Conv2d(wider, wider, 3, padding=1),
        nn.ReLU(),
    )


class Segments(nn.Module):
    def __init__(self, width: int = WIDTH) -> None:
        super().__init__()
        self.first = block(3, width)
        self.second = block(width, 2 * width)
        self.third = block(2 * width, 2 * width)
        self.widen = nn.ConvTranspose2d(2 * width, width, 2, 2)
        self.last = block(2 * width, width)
        self.masks = nn.Conv2d(width, 4, 1)

    def joined(self, small: torch.Tensor, large: torch.Tensor) -> torch.Tensor:
        larger = self.widen(small)
        return self.last(torch.cat([larger, large], dim=1))

    def forward(self, image: torch.Tensor) -> torch.Tensor:
        fine = self.first(image)
        coarse = functional.max_pool2d(fine, 2)
        coarse = self.second(coarse)
        coarse = coarse + self.third(coarse)
        fine = self.joined(coarse, fine)
        return parts.decided(self.masks(fine))


@register_model("segments", variants=("fp32", "fp16", "int8"))
class Model:
    def get_eager_model(self) -> nn.Module:
        return Segments()

    def get_example_inputs(self) -> tuple[torch.Tensor, ...]:
        return (torch.randn(1, 3, SIZE, SIZE),)
