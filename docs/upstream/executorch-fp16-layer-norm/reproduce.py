"""LayerNorm in fp16: the largest error of ExecuTorch's kernel, for a few widths."""

from __future__ import annotations

import torch
from executorch.exir import to_edge
from executorch.runtime import Runtime

WIDTHS = (128, 255, 256, 512)


def observed() -> dict[int, float]:
    """By width, the largest difference from the same layer in eager fp32."""
    errors = {}
    for width in WIDTHS:
        torch.manual_seed(0)
        layer, value = torch.nn.LayerNorm(width).eval(), torch.randn(1, width)
        expected = layer(value.half().float())
        program = to_edge(torch.export.export(layer.half(), (value.half(),))).to_executorch()
        method = Runtime.get().load_program(program.buffer).load_method("forward")
        answer = method.execute((value.half(),))[0]
        errors[width] = float((answer.float() - expected).abs().max())
    return errors


if __name__ == "__main__":
    for width, error in observed().items():
        print(f"width {width}: largest error {error:.4f}")
