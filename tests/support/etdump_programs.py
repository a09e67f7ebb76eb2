"""Small programs whose ETDumps the tests read: exported here, with torch and ExecuTorch.

``python -m tests.support.etdump_programs FOLDER`` writes them all as ``.pte`` files.
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

PRECISIONS = ("fp32", "fp16", "int8")


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


def _mobile() -> tuple[Any, tuple[Any, ...]]:
    """A MobileNetV2 in small: inverted residuals with depthwise convolutions."""
    import torch
    from torch import nn

    def layer(inputs: int, outputs: int, kernel: int, stride: int = 1, groups: int = 1) -> Any:
        return nn.Sequential(
            nn.Conv2d(inputs, outputs, kernel, stride, kernel // 2, groups=groups, bias=False),
            nn.BatchNorm2d(outputs),
            nn.ReLU6(),
        )

    class Residual(nn.Module):
        def __init__(self, channels: int, wide: int) -> None:
            super().__init__()
            self.layers = nn.Sequential(
                layer(channels, wide, 1),
                layer(wide, wide, 3, groups=wide),
                layer(wide, channels, 1),
            )

        def forward(self, x: Any) -> Any:
            return x + self.layers(x)

    model = nn.Sequential(
        layer(3, 8, 3, stride=2),
        *(Residual(8, 24) for _ in range(4)),
        layer(8, 32, 1),
        nn.AdaptiveAvgPool2d(1),
        nn.Flatten(),
        nn.Linear(32, 10),
    )
    return model, (torch.randn(1, 3, 32, 32),)


def _one_channel() -> tuple[Any, tuple[Any, ...]]:
    """A dense convolution of one channel, as speech models begin with, and a usual one."""
    import torch
    from torch import nn

    model = nn.Sequential(nn.Conv1d(1, 4, 5), nn.ReLU(), nn.Conv1d(4, 2, 3))
    return model, (torch.randn(1, 1, 24),)


BUILDERS = {"toy": _toy, "mobile": _mobile, "one_channel": _one_channel}


def lowered(programs: Any) -> bytes:
    """An exported program, or several by the names of their methods, lowered to XNNPACK."""
    from executorch.backends.xnnpack.partition.xnnpack_partitioner import XnnpackPartitioner
    from executorch.exir import to_edge_transform_and_lower

    found = to_edge_transform_and_lower(programs, partitioner=[XnnpackPartitioner()])
    return bytes(found.to_executorch().buffer)


def export(name: str, precision: str) -> bytes:
    """One program of ``BUILDERS``, in a precision."""
    import torch

    torch.manual_seed(0)
    model, inputs = BUILDERS[name]()
    model.eval()
    if precision == "fp16":
        model, inputs = model.half(), tuple(value.half() for value in inputs)
    exported = torch.export.export(model, inputs)
    if precision == "int8":
        exported = torch.export.export(quantized(exported, inputs), inputs)
    return lowered(exported)


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


def quantized(program: Any, inputs: tuple[Any, ...], **config: bool) -> Any:
    """The network of an exported program, quantized for XNNPACK."""
    from executorch.backends.xnnpack.quantizer.xnnpack_quantizer import (
        XNNPACKQuantizer,
        get_symmetric_quantization_config,
    )
    from torchao.quantization.pt2e.quantize_pt2e import convert_pt2e, prepare_pt2e

    quantizer = XNNPACKQuantizer().set_global(get_symmetric_quantization_config(**config))
    prepared = prepare_pt2e(program.module(), quantizer)
    prepared(*inputs)
    return convert_pt2e(prepared)


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


def main(folder: Path) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    for name in BUILDERS:
        for precision in PRECISIONS:
            (folder / f"{name}_{precision}.pte").write_bytes(export(name, precision))
    (folder / "methods.pte").write_bytes(export_methods())


if __name__ == "__main__":
    main(Path(sys.argv[1]))
