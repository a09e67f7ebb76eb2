"""Exports ``tests/data/coverage``: ``python -m tests.support.coverage_programs DIR``.

Each asks one question of XNNPACK: which operators reach SME2 kernels, in which data types?
"""

from __future__ import annotations

import sys
from pathlib import Path

import torch

from tests.support.etdump_programs import lowered, quantized


class Mixed(torch.nn.Module):
    """Plain, grouped, transposed and pointwise convolutions, matrix products and a linear."""

    def __init__(self) -> None:
        super().__init__()
        self.convolutions = torch.nn.Sequential(
            torch.nn.Conv2d(4, 16, 3, padding=1),
            torch.nn.ReLU(),
            torch.nn.Conv2d(16, 16, 3, padding=1, groups=4),
            torch.nn.ConvTranspose2d(16, 8, 2, stride=2),
            torch.nn.Conv2d(8, 16, 1),
        )
        self.normalize = torch.nn.LayerNorm(16)
        self.linear = torch.nn.Linear(16, 16)

    def forward(self, values: torch.Tensor) -> torch.Tensor:
        rows = self.normalize(self.convolutions(values).flatten(2).transpose(1, 2))
        attended = torch.softmax(rows @ rows.transpose(1, 2), -1) @ rows
        return self.linear(torch.nn.functional.gelu(attended))


class Quantized(torch.nn.Module):
    """Two linears; a convolution with one input channel and a pointwise one."""

    def __init__(self) -> None:
        super().__init__()
        self.linears = torch.nn.Sequential(
            torch.nn.Linear(32, 64), torch.nn.ReLU(), torch.nn.Linear(64, 32)
        )
        self.convolutions = torch.nn.Sequential(
            torch.nn.Conv2d(1, 8, 3), torch.nn.ReLU(), torch.nn.Conv2d(8, 8, 1)
        )

    def forward(self, values: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        return self.linears(values), self.convolutions(values.reshape(1, 1, 16, 32))


class OneChannel(torch.nn.Module):
    """Convolutions with one input channel (the first and the fourth) and with more."""

    def __init__(self) -> None:
        super().__init__()
        self.convolutions = torch.nn.Sequential(
            torch.nn.Conv2d(1, 2, 3),
            torch.nn.Conv2d(2, 3, 3),
            torch.nn.Conv2d(3, 1, 3),
            torch.nn.Conv2d(1, 4, 3),
            torch.nn.Conv2d(4, 8, 3, stride=2),
            torch.nn.Conv2d(8, 8, 3, dilation=2),
            torch.nn.Conv2d(8, 8, 1, stride=2),
        )

    def forward(self, values: torch.Tensor) -> torch.Tensor:
        return self.convolutions(values)


def save(path: Path, module: torch.nn.Module, inputs: tuple[torch.Tensor, ...]) -> None:
    path.write_bytes(lowered(torch.export.export(module, inputs)))


def write(folder: Path) -> None:
    for word, dtype in (("fp32", torch.float32), ("fp16", torch.float16)):
        inputs = (torch.randn(1, 4, 8, 8, dtype=dtype),)
        save(folder / f"mixed_{word}.pte", Mixed().eval().to(dtype), inputs)
    one = (torch.randn(1, 1, 32, 32, dtype=torch.float16),)
    save(folder / "one_channel_fp16.pte", OneChannel().eval().to(torch.float16), one)
    rows = (torch.randn(16, 32),)
    exported = torch.export.export(Quantized().eval(), rows)
    for word, config in (
        ("dynamic", {"is_per_channel": True, "is_dynamic": True}),
        ("per_channel", {"is_per_channel": True}),
        ("per_tensor", {"is_per_channel": False}),
    ):
        save(folder / f"int8_{word}.pte", quantized(exported, rows, **config), rows)


if __name__ == "__main__":
    write(Path(sys.argv[1]))
