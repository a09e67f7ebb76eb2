"""Random weights that behave: for models whose trained weights are not at hand. Used by models.

Speed does not depend on weights, but numbers do: in a deep network with random weights and the
batch statistics of no data at all, the signal dies out layer by layer until fp16 and int8 hold
nothing but zeros, and comparing outputs means nothing.
"""

from __future__ import annotations

from typing import Any

# So few values a channel (8 by 8 pixels) do not tell its mean and variance.
FEW_VALUES = 64
# As a share of the channels' mean.
LEAST_VARIANCE = 0.1


def fill_zero_weights(network: Any) -> Any:
    """Give layers that start at zero, as heads often do, random weights; returns network.

    Left at zero they would make every output zero, whatever went wrong before them.
    """
    import torch

    for layer in network.modules():
        if isinstance(layer, torch.nn.Linear | torch.nn.Conv2d) and not layer.weight.any():
            torch.nn.init.trunc_normal_(layer.weight, std=0.02)
    return network


def settle_batch_norms(network: Any, *inputs: Any, **keyword_inputs: Any) -> Any:
    """Give every batch norm the statistics of one forward pass over ``inputs``; returns network.

    Only for random weights: trained ones bring their own statistics.
    """
    import torch

    def measure(layer: Any, arguments: tuple[Any, ...]) -> None:
        values = arguments[0].transpose(0, 1).flatten(1)
        # One value a channel has no variance to speak of.
        if not layer.track_running_stats or values.shape[1] < 2:
            return
        if values.shape[1] <= FEW_VALUES:
            # Centred on so few values, each layer would blow up their small differences, and
            # after some layers the last digit of the input decides the output.
            layer.running_mean.zero_()
            layer.running_var.fill_(float(values.square().mean()))
            return
        variance = values.var(1)
        layer.running_mean.copy_(values.mean(1))
        # A channel that hardly fired this time would be blown up when it fires the next.
        layer.running_var.copy_(variance.clamp(min=LEAST_VARIANCE * float(variance.mean())))

    kind = torch.nn.modules.batchnorm._BatchNorm
    hooks = [
        layer.register_forward_pre_hook(measure)
        for layer in network.modules()
        if isinstance(layer, kind)
    ]
    was_training = network.training
    try:
        with torch.no_grad():
            network.eval()(*inputs, **keyword_inputs)
    finally:
        network.train(was_training)
        for hook in hooks:
            hook.remove()
    return network
