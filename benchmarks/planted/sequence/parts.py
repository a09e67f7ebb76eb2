"""What the model imports."""

from __future__ import annotations

import torch
from torch import nn


class Gate(nn.Module):
    """Lets as much of each channel through as all of them say."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.narrow = nn.Conv1d(width, width, 1)

    def forward(self, value: torch.Tensor) -> torch.Tensor:
        open_by = torch.sigmoid(self.narrow(value))
        return value * open_by
