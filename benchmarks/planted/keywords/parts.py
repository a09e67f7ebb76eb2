"""What the model imports."""

from __future__ import annotations

import torch
from torch import nn


class Separable(nn.Module):
    """A depthwise and a 1x1 convolution, with what came in added."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.depth = nn.Conv2d(width, width, 3, padding=1, groups=width)
        self.point = nn.Conv2d(width, width, 1)
        self.norm = nn.BatchNorm2d(width)

    def forward(self, value: torch.Tensor) -> torch.Tensor:
        inner = self.point(self.depth(value))
        return value + torch.relu(self.norm(inner))
