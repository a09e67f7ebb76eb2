"""A 1x1 convolution and a linear layer in fp16: how large their XNNPACK programs are."""

from __future__ import annotations

import torch
from executorch.backends.xnnpack.partition.xnnpack_partitioner import XnnpackPartitioner
from executorch.exir import to_edge_transform_and_lower

WIDTH = 256


def observed() -> dict[str, int]:
    """Bytes of the program; the weights alone are 128 KiB in fp16 and 256 KiB in fp32."""
    layers = {
        "convolution": (torch.nn.Conv2d(WIDTH, WIDTH, 1), torch.randn(1, WIDTH, 4, 4)),
        "linear": (torch.nn.Linear(WIDTH, WIDTH), torch.randn(16, WIDTH)),
    }
    sizes = {}
    for name, (layer, value) in layers.items():
        program = torch.export.export(layer.half().eval(), (value.half(),))
        lowered = to_edge_transform_and_lower(program, partitioner=[XnnpackPartitioner()])
        sizes[name] = len(lowered.to_executorch().buffer)
    return sizes


if __name__ == "__main__":
    for name, size in observed().items():
        print(f"{name}: {size / 1024:.0f} KiB")
