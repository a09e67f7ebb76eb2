"""squeeze_sam: a U-Net with a light transformer at its bottom, after SqueezeSAM's paper.

Written here from the description in arXiv 2312.06736; the widths are the published ones. The
user's clicks and box are drawn into two more channels of the image (early fusion), which is done
before the network and is not part of it.
"""

from __future__ import annotations

import itertools

import torch
from torch import nn
from torch.nn import functional

from pytest_sme2 import register_model, settle_batch_norms

PATCH = 2
EMBEDDING = 64
WIDTHS = (64, 128, 128, 128, 128, 164, 256, 256)
MASKS = 4
HEADS = 8
TRANSFORMER_LAYERS = 2
HIDDEN = 256
SMALLEST_SIDE = 2
EPSILON = 1e-5


class DoubleConvolution(nn.Sequential):
    """Twice 3x3, each with its activation before its normalization."""

    def __init__(self, inputs: int, outputs: int) -> None:
        super().__init__(
            nn.Conv2d(inputs, outputs, 3, padding=1),
            nn.ReLU(),
            nn.BatchNorm2d(outputs),
            nn.Conv2d(outputs, outputs, 3, padding=1),
            nn.ReLU(),
            nn.BatchNorm2d(outputs),
        )


class Attention(nn.Module):
    """Multi-head attention of some tokens to others."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.query = nn.Linear(width, width)
        self.key = nn.Linear(width, width)
        self.value = nn.Linear(width, width)
        self.output = nn.Linear(width, width)

    def forward(self, tokens: torch.Tensor, others: torch.Tensor) -> torch.Tensor:
        def by_head(values: torch.Tensor) -> torch.Tensor:
            return values.unflatten(-1, (HEADS, -1)).transpose(1, 2)

        found = functional.scaled_dot_product_attention(
            by_head(self.query(tokens)), by_head(self.key(others)), by_head(self.value(others))
        )
        answer: torch.Tensor = self.output(found.transpose(1, 2).flatten(2))
        return answer


class LayerNorm(nn.Module):
    """Layer norm in its parts: ExecuTorch 1.5's own is wrong in fp16 from a width of 256 on."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.ones(width))
        self.bias = nn.Parameter(torch.zeros(width))

    def forward(self, values: torch.Tensor) -> torch.Tensor:
        centred = values - values.mean(-1, keepdim=True)
        variance = (centred * centred).mean(-1, keepdim=True)
        return centred * torch.rsqrt(variance + EPSILON) * self.weight + self.bias


class TwoWayLayer(nn.Module):
    """Tokens attend to themselves and to the image, then the image to the tokens."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.to_self, self.to_image, self.to_tokens = (Attention(width) for _ in range(3))
        self.norms = nn.ModuleList(LayerNorm(width) for _ in range(4))
        self.mix = nn.Sequential(nn.Linear(width, HIDDEN), nn.ReLU(), nn.Linear(HIDDEN, width))

    def forward(
        self, tokens: torch.Tensor, image: torch.Tensor
    ) -> tuple[torch.Tensor, torch.Tensor]:
        tokens = self.norms[0](tokens + self.to_self(tokens, tokens))
        tokens = self.norms[1](tokens + self.to_image(tokens, image))
        tokens = self.norms[2](tokens + self.mix(tokens))
        image = self.norms[3](image + self.to_tokens(image, tokens))
        return tokens, image


class Bottleneck(nn.Module):
    """Learned tokens, one for each mask and one for their quality, meet the coarsest features."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.tokens = nn.Parameter(torch.randn(1, MASKS + 1, width))
        self.layers = nn.ModuleList(TwoWayLayer(width) for _ in range(TRANSFORMER_LAYERS))

    def forward(self, features: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        tokens, image = self.tokens, features.flatten(2).transpose(1, 2)
        for layer in self.layers:
            tokens, image = layer(tokens, image)
        return tokens, image.transpose(1, 2).reshape(features.shape)


class SqueezeSam(nn.Module):
    """Mask logits at half the image's size, and the predicted quality of each mask."""

    def __init__(self) -> None:
        super().__init__()
        self.embed = nn.Sequential(
            nn.Conv2d(5, EMBEDDING, PATCH, stride=PATCH), nn.GroupNorm(1, EMBEDDING)
        )
        pairs = list(itertools.pairwise((EMBEDDING, *WIDTHS)))
        self.down = nn.ModuleList(DoubleConvolution(*pair) for pair in pairs)
        self.bottleneck = Bottleneck(WIDTHS[-1])
        self.up = nn.ModuleList(
            DoubleConvolution(coarse + fine, fine)
            for fine, coarse in reversed(list(itertools.pairwise(WIDTHS)))
        )
        self.to_mask = nn.Sequential(
            nn.Linear(WIDTHS[-1], HIDDEN), nn.ReLU(), nn.Linear(HIDDEN, WIDTHS[0])
        )
        self.to_quality = nn.Sequential(
            nn.Linear(WIDTHS[-1], HIDDEN), nn.ReLU(), nn.Linear(HIDDEN, MASKS)
        )

    def forward(
        self, image: torch.Tensor, prompts: torch.Tensor
    ) -> tuple[torch.Tensor, torch.Tensor]:
        features = self.embed(torch.cat((image, prompts), dim=1))
        levels = []
        for index, level in enumerate(self.down):
            # A small image keeps all levels: the coarsest ones share a side.
            if index and features.shape[-1] > SMALLEST_SIDE:
                features = functional.max_pool2d(features, 2)
            features = level(features)
            levels.append(features)
        tokens, features = self.bottleneck(levels.pop())
        for level in self.up:
            finer = levels.pop()
            if features.shape[-1] != finer.shape[-1]:
                features = functional.interpolate(
                    features, size=finer.shape[-2:], mode="bilinear", align_corners=False
                )
            features = level(torch.cat((features, finer), dim=1))
        masks = self.to_mask(tokens[:, :MASKS]) @ features.flatten(2)
        quality = self.to_quality(tokens[:, MASKS])
        return masks.unflatten(-1, features.shape[-2:]), quality


@register_model(
    "squeeze_sam",
    variants=("fp32", "fp16", "int8"),
    emulated=("fp32@16", "fp16@16"),
)
class SqueezeSamModel:
    """One image of 512x512, as in the paper, unless another size (a power of two) is asked for."""

    def __init__(self, size: int = 512) -> None:
        # The batch norms are settled on the very inputs they will see: see get_eager_model.
        self.inputs = (torch.randn(1, 3, size, size), torch.zeros(1, 2, size, size))

    def get_eager_model(self) -> nn.Module:
        network = SqueezeSam().eval()
        return settle_batch_norms(network, *self.inputs)

    def get_example_inputs(self) -> tuple[torch.Tensor, ...]:
        return self.inputs
