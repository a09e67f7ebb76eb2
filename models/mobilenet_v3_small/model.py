"""mobilenet_v3_small: torchvision's, with random weights unless a state dict is given."""

from __future__ import annotations

import torch
from torch import nn

from pytest_sme2 import import_torchvision, register_model, settle_batch_norms


@register_model("mobilenet_v3_small", variants=("fp32", "fp16", "int8"))
class MobileNetV3SmallModel:
    """One image of 224x224, the size it was trained for, unless another is asked for."""

    def __init__(self, size: int = 224) -> None:
        self.size = size

    def get_eager_model(self) -> nn.Module:
        models = import_torchvision().models
        network: nn.Module = models.mobilenet_v3_small(weights=None)
        settle_batch_norms(network, *self.get_example_inputs())
        return network

    def get_example_inputs(self) -> tuple[torch.Tensor, ...]:
        return (torch.randn(1, 3, self.size, self.size),)
