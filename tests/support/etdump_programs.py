"""A small program and its ETDumps: made here, with torch and ExecuTorch."""

from __future__ import annotations

from pathlib import Path
from typing import Any


def _toy() -> tuple[Any, tuple[Any, ...]]:
    """A convolution, a pointwise one, a mean that XNNPACK leaves to the runtime, a linear."""
    import torch
    from torch import nn

    class Toy(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.wide = nn.Conv2d(3, 8, 3, padding=1)
            self.point = nn.Conv2d(8, 16, 1)
            self.head = nn.Linear(16, 10)

        def forward(self, x: Any) -> Any:
            x = torch.relu(self.point(torch.relu(self.wide(x))))
            return self.head(x.mean((2, 3)).cumsum(1))

    return Toy(), (torch.randn(1, 3, 16, 16),)


def lowered(programs: Any) -> bytes:
    """An exported program, or several by the names of their methods, lowered to XNNPACK."""
    from executorch.backends.xnnpack.partition.xnnpack_partitioner import XnnpackPartitioner
    from executorch.exir import to_edge_transform_and_lower

    found = to_edge_transform_and_lower(programs, partitioner=[XnnpackPartitioner()])
    return bytes(found.to_executorch().buffer)


def export_methods() -> bytes:
    """A program of two methods, ``forward`` and ``scale``."""
    import torch

    class Scale(torch.nn.Module):
        def forward(self, x: Any) -> Any:
            return torch.cumsum(x * 2.0, 3)

    torch.manual_seed(0)
    model, inputs = _toy()
    programs = {
        "forward": torch.export.export(model.eval(), inputs),
        "scale": torch.export.export(Scale(), inputs),
    }
    return lowered(programs)


def trace(program: bytes, calls: list[str]) -> bytes:
    """The ETDump of calling a program's methods in turn, in this process."""
    import tempfile

    import torch
    from executorch.extension.pybindings.portable_lib import _load_for_executorch_from_buffer

    module = _load_for_executorch_from_buffer(program, enable_etdump=True)
    inputs = {}
    for method in set(calls):
        shape = module.method_meta(method).input_tensor_meta(0)
        dtype = {5: torch.float16, 6: torch.float32}[shape.dtype()]
        inputs[method] = [torch.ones(tuple(shape.sizes()), dtype=dtype)]
    for method in calls:
        module.run_method(method, inputs[method])
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "trace.etdump"
        module.write_etdump_result_to_file(str(path))
        return path.read_bytes()
