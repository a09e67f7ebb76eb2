"""efficient_sam: EfficientSAM-Ti's image encoder (ViT-Tiny), from ExecuTorch's own example."""

from __future__ import annotations

import torch
from torch import nn

from pytest_sme2 import register_model


@register_model(
    "efficient_sam",
    variants=("fp32", "fp16", "int8", "int8_dynamic"),
    emulated=("fp32@32", "int8_dynamic@32"),
)
class EfficientSamModel:
    """One image of 1024x1024, as EfficientSAM takes it, unless another size is asked for.

    A size is a multiple of 16, the side of a patch.
    """

    def __init__(self, size: int = 1024) -> None:
        self.size = size

    def get_eager_model(self) -> nn.Module:
        from executorch.examples.models.efficient_sam.efficient_sam_core import (
            efficient_sam_encoder,
        )

        network: nn.Module = efficient_sam_encoder.ImageEncoderViT(
            img_size=self.size,
            patch_size=16,
            in_chans=3,
            patch_embed_dim=192,
            normalization_type="layer_norm",
            depth=12,
            num_heads=3,
            mlp_ratio=4.0,
            neck_dims=[256, 256],
            act_layer=nn.GELU,
        )
        return network

    def get_example_inputs(self) -> tuple[torch.Tensor, ...]:
        return (torch.randn(1, 3, self.size, self.size),)
