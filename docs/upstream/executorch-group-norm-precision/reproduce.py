"""GroupNorm in fp32 over many values: the signal over noise of ExecuTorch's kernel."""

from __future__ import annotations

import torch
from executorch.exir import to_edge
from executorch.runtime import Runtime

SIDES = (32, 256)
CHANNELS = 16


def observed() -> dict[int, float]:
    """By values in the group, dB against the same layer in float64."""
    found = {}
    for side in SIDES:
        torch.manual_seed(0)
        layer, value = torch.nn.GroupNorm(1, CHANNELS).eval(), torch.randn(1, CHANNELS, side, side)
        expected = torch.nn.GroupNorm(1, CHANNELS).double().eval()(value.double())
        program = to_edge(torch.export.export(layer, (value,))).to_executorch()
        method = Runtime.get().load_program(program.buffer).load_method("forward")
        noise = method.execute((value,))[0].double() - expected
        ratio = expected.square().sum() / noise.square().sum()
        found[CHANNELS * side * side] = float(10 * ratio.log10())
    return found


if __name__ == "__main__":
    for values, decibels in observed().items():
        print(f"{values} values: {decibels:.0f} dB")
