"""A small encoder of patches with attention. Random weights."""

from __future__ import annotations

import torch
from torch import nn

from pytest_sme2 import register_model

from .parts import mixed

WIDTH = 48
SIZE = 16


class Attention(nn.Module):
    def __init__(self, width: int, heads: int = 4) -> None:
        super().__init__()
        self.heads = heads
        self.qkv = nn.Linear(width, 3 * width)
        self.out = nn.Linear(width, width)

    def split(self, value: torch.Tensor) -> torch.Tensor:
        rows, width = value.shape[1:]
        return value.reshape(1, rows, self.heads, width // self.heads).transpose(1, 2)

    def forward(self, value: torch.Tensor) -> torch.Tensor:
        query, key, inner = map(self.split, self.qkv(value).chunk(3, dim=-1))
        scores = query @ key.transpose(-2, -1) * query.shape[-1] ** -0.5
        answer = scores.softmax(-1) @ inner
        return self.out(answer.transpose(1, 2).reshape(value.shape))


class Layer(nn.Module):
    def __init__(self, width: int) -> None:
        super().__init__()
        self.first = nn.LayerNorm(width)
        self.attention = Attention(width)
        self.second = nn.LayerNorm(width)
        self.feed = nn.Sequential(
            nn.Linear(width, 2 * width),
            nn.ReLU(),
            nn.Linear(2 * width, width),
        )

    def forward(self, value: torch.Tensor) -> torch.Tensor:
        value = value + self.attention(self.first(value))
        return value + self.feed(self.second(value))


class Encoder(nn.Module):
    def __init__(self, width: int = WIDTH) -> None:
        super().__init__()
        self.patches = nn.Conv2d(3, width, 4, stride=4)
        self.layers = nn.Sequential(Layer(width), Layer(width))
        self.norm = nn.LayerNorm(width)
        self.head = nn.Linear(width, 10)

    def forward(self, image: torch.Tensor) -> torch.Tensor:
        value = self.patches(image)
        value = value.flatten(2).transpose(1, 2)
        value = self.layers(value)
        value = mixed(self.norm(value))
        return self.head(value)


@register_model("encoder", variants=("fp32", "fp16", "int8"))
class Model:
    def get_eager_model(self) -> nn.Module:
        return Encoder()

    def get_example_inputs(self) -> tuple[torch.Tensor, ...]:
        return (torch.randn(1, 3, SIZE, SIZE),)
