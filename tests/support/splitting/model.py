"""A network that holds everything a rewrite is known for."""

from __future__ import annotations

import torch
from torch import nn
from torch.nn import functional

from pytest_sme2 import register_model

WIDTH, HEADS, STEPS = 16, 2, 4


class Splitting(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.convolution = nn.Conv2d(4, WIDTH, 3, stride=2, padding=1)
        self.larger = nn.ConvTranspose2d(WIDTH, WIDTH, 2, stride=2)
        self.layers = nn.ModuleList(nn.Linear(WIDTH, WIDTH) for _ in range(4))
        self.part = nn.Linear(WIDTH // 2, WIDTH)
        self.norm = nn.LayerNorm(WIDTH)
        self.words = nn.Embedding(8, WIDTH)

    def forward(self, image: torch.Tensor, words: torch.Tensor) -> torch.Tensor:
        image = functional.silu(self.larger(self.convolution(image)))
        image = functional.hardsigmoid(functional.group_norm(image, 2))
        steps = image.flatten(2).transpose(1, 2)
        # As Hugging Face's decoders do it: with indices that the quantizer has to leave alone.
        positions = torch.arange(STEPS) + 0
        steps = steps + self.words(words) + self.words(positions)
        steps = functional.gelu(self.layers[0](steps))
        steps = steps + torch.pow(steps, 3.0)
        heads = steps.view(1, STEPS, HEADS, WIDTH // HEADS).transpose(1, 2)
        # As the heads of keys and values are repeated for several queries.
        repeated = heads[:, :, None].expand(1, HEADS, 2, STEPS, WIDTH // HEADS)
        heads = heads + repeated.reshape(1, 2 * HEADS, STEPS, WIDTH // HEADS)[:, HEADS:]
        heads = functional.scaled_dot_product_attention(heads, heads, heads)
        scores = heads @ heads.transpose(2, 3)
        steps = (scores @ heads).transpose(1, 2).reshape(1, STEPS, WIDTH)
        left, right = self.layers[1](steps).chunk(2, dim=2)
        steps = self.norm(self.part(left) + self.part(right))
        # RMSNorm, as Hugging Face has it.
        wide = steps.to(torch.float32)
        wide = wide * torch.rsqrt(wide.pow(2).mean(-1, keepdim=True) + 1e-6)
        steps = wide.to(image.dtype)
        last: torch.Tensor = self.layers[2](steps)[:, -1]
        slope = torch.arange(WIDTH, dtype=image.dtype) * 0.5
        answer: torch.Tensor = self.layers[3](last) * slope
        return answer


@register_model("splitting", variants=("fp32", "fp16", "int8", "int8_dynamic"))
class SplittingModel:
    def get_eager_model(self) -> nn.Module:
        return Splitting()

    def get_example_inputs(self) -> tuple[torch.Tensor, ...]:
        return torch.randn(1, 4, 2, 2), torch.randint(0, 8, (1, STEPS))
