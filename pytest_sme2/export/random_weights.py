"""Useful random weights, for models without trained weights. Models call these functions.

In a deep network with random weights and default batch statistics, the signal vanishes layer by
layer. In fp16 and int8 only zeros are left, and comparing outputs means nothing.
"""

from __future__ import annotations

from typing import Any

# So few values per channel (8 by 8 pixels) do not give its mean and variance.
FEW_VALUES = 64
# As a share of the channels' mean.
LEAST_VARIANCE = 0.1
# The least normal number of fp16: what is smaller has lost its digits there.
LEAST_PEAK = 2.0**-14
# Of the largest value. Any constant comes closer than that to an output that varies less.
LEAST_SPREAD = 0.01


def lifeless(least: float, greatest: float, values: int) -> str:
    """Why an output between these two says nothing about its model; empty where it does."""
    peak = max(abs(least), abs(greatest))
    if peak < LEAST_PEAK:
        return f"nearly zero (its largest value is {peak:.2g})"
    if values > 1 and greatest - least < LEAST_SPREAD * peak:
        return f"nearly constant (all values lie between {least:.4g} and {greatest:.4g})"
    return ""


def fill_zero_weights(network: Any) -> Any:
    """Give layers that start at zero, as heads often do, random weights; returns network.

    Otherwise every output would be zero, and hide any error before them.
    """
    import torch

    for layer in network.modules():
        if isinstance(layer, torch.nn.Linear | torch.nn.Conv2d) and not layer.weight.any():
            torch.nn.init.trunc_normal_(layer.weight, std=0.02)
    return network


def settle_batch_norms(network: Any, *inputs: Any, **keyword_inputs: Any) -> Any:
    """Give every batch norm the statistics of one forward pass over ``inputs``; returns network.

    Only for random weights: trained ones have their own statistics.
    """
    import torch

    def measure(layer: Any, arguments: tuple[Any, ...]) -> None:
        values = arguments[0].transpose(0, 1).flatten(1)
        # One value per channel has no variance.
        if not layer.track_running_stats or values.shape[1] < 2:
            return
        if values.shape[1] <= FEW_VALUES:
            # Centred on so few values, each layer would amplify small differences. After some
            # layers the last digit of the input would decide the output.
            layer.running_mean.zero_()
            layer.running_var.fill_(float(values.square().mean()))
            return
        variance = values.var(1)
        layer.running_mean.copy_(values.mean(1))
        # A channel with little variance here would be amplified for other inputs.
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
