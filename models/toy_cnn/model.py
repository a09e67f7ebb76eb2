"""toy_cnn: a small network with one of each: what a phone's vision model is made of, in 0.2 s."""

from __future__ import annotations

import torch
from torch import nn

from pytest_sme2 import register_model


class ToyCnn(nn.Module):
    """3x3, depthwise and pointwise convolutions, a residual add, pooling, two linear layers."""

    def __init__(self) -> None:
        super().__init__()
        self.stem = nn.Sequential(
            nn.Conv2d(3, 32, 3, stride=2, padding=1, bias=False), nn.BatchNorm2d(32), nn.ReLU()
        )
        self.widen = nn.Sequential(
            nn.Conv2d(32, 96, 3, stride=2, padding=1, bias=False), nn.BatchNorm2d(96), nn.ReLU()
        )
        self.depthwise = nn.Sequential(
            nn.Conv2d(96, 96, 3, padding=1, groups=96, bias=False), nn.BatchNorm2d(96), nn.ReLU()
        )
        self.pointwise = nn.Sequential(nn.Conv2d(96, 96, 1, bias=False), nn.BatchNorm2d(96))
        self.expand = nn.Sequential(nn.Conv2d(96, 256, 1), nn.ReLU())
        self.pool = nn.AdaptiveAvgPool2d(1)
        self.hidden = nn.Linear(256, 256)
        self.classifier = nn.Linear(256, 100)

    def forward(self, image: torch.Tensor) -> torch.Tensor:
        features = self.widen(self.stem(image))
        features = torch.relu(features + self.pointwise(self.depthwise(features)))
        pooled = torch.flatten(self.pool(self.expand(features)), 1)
        logits: torch.Tensor = self.classifier(torch.relu(self.hidden(pooled)))
        return logits


@register_model("toy_cnn", variants=("fp32", "fp16", "int8", "int8_dynamic"))
class ToyCnnModel:
    """One image of 64x64 unless another size is asked for."""

    def __init__(self, size: int = 64) -> None:
        self.size = size

    def get_eager_model(self) -> nn.Module:
        return ToyCnn()

    def get_example_inputs(self) -> tuple[torch.Tensor, ...]:
        return (torch.randn(1, 3, self.size, self.size),)
