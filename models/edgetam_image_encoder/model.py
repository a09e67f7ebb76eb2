"""edgetam_image_encoder: transformers' EdgeTAM vision encoder over timm's RepViT-M1."""

from __future__ import annotations

import torch
from torch import nn

from pytest_sme2 import import_torchvision, register_model, settle_batch_norms


class ImageEncoder(nn.Module):
    """The encoder's feature maps alone, the finest first: a program's outputs must be tensors."""

    def __init__(self, encoder: nn.Module) -> None:
        super().__init__()
        self.encoder = encoder

    def forward(self, image: torch.Tensor) -> tuple[torch.Tensor, ...]:
        return tuple(self.encoder(image).fpn_hidden_states)


@register_model(
    "edgetam_image_encoder",
    variants=("fp32", "fp16", "int8"),
    emulated=("fp32@64", "fp16@64"),
)
class EdgeTamImageEncoderModel:
    """One image of 1024x1024, as EdgeTAM takes it, unless another size is asked for."""

    def __init__(self, size: int = 1024) -> None:
        # The batch norms are settled on the very inputs they will see: see get_eager_model.
        self.inputs = (torch.randn(1, 3, size, size),)

    def get_eager_model(self) -> nn.Module:
        # timm and transformers both import torchvision as they find it.
        import_torchvision()
        from transformers import EdgeTamVisionConfig, EdgeTamVisionModel, TimmWrapperConfig

        backbone = TimmWrapperConfig(
            architecture="repvit_m1",
            model_args={"features_only": True, "out_indices": [0, 1, 2, 3], "in_chans": 3},
        )
        encoder = EdgeTamVisionModel(EdgeTamVisionConfig(backbone_config=backbone))
        network = ImageEncoder(encoder).eval()
        return settle_batch_norms(network, *self.inputs)

    def get_example_inputs(self) -> tuple[torch.Tensor, ...]:
        return self.inputs
