"""Small programs for the runner, exported once and kept in the cache by the content of this file.

Not a test module. It goes straight to ExecuTorch's own API, so that the tests of the runner do not
depend on the package's export stage.
"""

from __future__ import annotations

import hashlib
import subprocess
import sys
from pathlib import Path

from filelock import FileLock

NAMES = ("toy_fp32", "toy_fp16", "kinds", "channels_last", "large")


def program_files(cache: Path) -> dict[str, Path]:
    """The programs by name; exported in a process of its own where they are not yet there."""
    content = Path(__file__).read_bytes() + "".join(map(str, sys.version_info[:2])).encode()
    folder = cache / "test-programs" / hashlib.sha256(content).hexdigest()[:12]
    folder.mkdir(parents=True, exist_ok=True)
    files = {name: folder / f"{name}.pte" for name in NAMES}
    with FileLock(folder / ".lock"):
        if not all(path.exists() for path in files.values()):
            subprocess.run(
                [sys.executable, "-W", "ignore", __file__, str(folder)],
                check=True,
                capture_output=True,
                timeout=3600,
            )
    return files


def export_all(folder: Path) -> None:
    import torch
    from executorch.backends.xnnpack.partition.xnnpack_partitioner import XnnpackPartitioner
    from executorch.exir import to_edge_transform_and_lower

    class Toy(torch.nn.Module):
        """A convolution and a linear layer for XNNPACK, and a mean that stays portable."""

        def __init__(self) -> None:
            super().__init__()
            self.convolution = torch.nn.Conv2d(3, 8, 3, padding=1)
            self.linear = torch.nn.Linear(12, 10)

        def forward(self, image: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
            features = torch.relu(self.convolution(image))
            return self.linear(features.mean((1, 2))), features

    class Kinds(torch.nn.Module):
        """Gives its inputs back as they are, one of every kind."""

        def forward(
            self, index: torch.Tensor, small: torch.Tensor, flag: torch.Tensor, real: torch.Tensor
        ) -> tuple[torch.Tensor, ...]:
            return index + 0, small + 0, torch.logical_or(flag, flag), real + 0

    class Doubled(torch.nn.Module):
        def forward(self, image: torch.Tensor) -> torch.Tensor:
            return image + image

    class Chain(torch.nn.Module):
        """Small as a file, and in need of memory when it runs."""

        def forward(self, values: torch.Tensor) -> torch.Tensor:
            return torch.sigmoid(values + values) * values

    def write(
        name: str, model: torch.nn.Module, inputs: tuple[torch.Tensor, ...], xnnpack: bool
    ) -> None:
        program = to_edge_transform_and_lower(
            torch.export.export(model.eval(), inputs),
            partitioner=[XnnpackPartitioner()] if xnnpack else [],
        ).to_executorch()
        temporary = folder / f".{name}"
        temporary.write_bytes(program.buffer)
        temporary.rename(folder / f"{name}.pte")

    torch.manual_seed(0)
    image = torch.rand(1, 3, 12, 12)
    write("toy_fp32", Toy(), (image,), xnnpack=True)
    write("toy_fp16", Toy().half(), (image.half(),), xnnpack=True)
    kinds = (
        torch.zeros(64, dtype=torch.int64),
        torch.zeros(64, dtype=torch.int8),
        torch.zeros(64, dtype=torch.bool),
        torch.zeros(64, dtype=torch.float64),
    )
    write("kinds", Kinds(), kinds, xnnpack=False)
    channels_last = torch.rand(1, 3, 4, 5).to(memory_format=torch.channels_last)
    write("channels_last", Doubled(), (channels_last,), xnnpack=False)
    write("large", Chain(), (torch.rand(1, 2_000_000),), xnnpack=True)


if __name__ == "__main__":
    export_all(Path(sys.argv[1]))
