"""Programs whose amount of work is known by construction: so many equal layers.

One layer costs the same as the next, and what is not a layer is below 0.3 % of a hundred of them,
so 103 layers are 3 % more work than 100. Run as a script, it writes the self-check's program anew.
"""

from __future__ import annotations

import hashlib
import importlib.metadata
import sys
from pathlib import Path

from pytest_sme2.results import Artifact, TensorSpec
from pytest_sme2.system.cache import cache_folder
from tests.support.etdump_programs import lowered

CHANNELS = 8
"""Few, so that the weights of a hundred layers fit into any second-level cache."""
SIDE = 16
SELFCHECK_LAYERS, SELFCHECK_SIDE = 10, 64


def export_layers(layers: int, side: int, channels: int = CHANNELS, seed: int = 0) -> bytes:
    """A chain of equal 3x3 convolutions, each with its ReLU."""
    import torch

    torch.manual_seed(seed)
    blocks = []
    for _ in range(layers):
        blocks += [torch.nn.Conv2d(channels, channels, 3, padding=1), torch.nn.ReLU()]
    inputs = (torch.randn(1, channels, side, side),)
    return lowered(torch.export.export(torch.nn.Sequential(*blocks).eval(), inputs))


def layers_artifact(
    layers: int, side: int = SIDE, channels: int = CHANNELS, seed: int = 0
) -> Artifact:
    """That many layers, exported once. Another seed gives other bytes of the same work."""
    version = importlib.metadata.version("executorch")
    folder = cache_folder() / "benchmarks" / f"executorch-{version}"
    other = f"_{seed}" if seed else ""
    path = folder / f"layers_{layers}_{channels}x{side}x{side}{other}.pte"
    if not path.is_file():
        folder.mkdir(parents=True, exist_ok=True)
        unfinished = path.with_suffix(".part")
        unfinished.write_bytes(export_layers(layers, side, channels, seed))
        unfinished.replace(path)
    tensor = TensorSpec("float32", (1, channels, side, side))
    return Artifact(
        model=f"layers_{layers}",
        variant="fp32",
        folder=folder,
        pte=path,
        sha256=hashlib.sha256(path.read_bytes()).hexdigest(),
        inputs=(tensor,),
        outputs=(tensor,),
        versions={"executorch": version},
        weights=f"random (seed {seed})",
    )


if __name__ == "__main__":
    Path(sys.argv[1]).write_bytes(export_layers(SELFCHECK_LAYERS, SELFCHECK_SIDE))
