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

CHANNELS = 8
"""Few, so that the weights of a hundred layers fit into any second-level cache."""
SIDE = 16
SELFCHECK_LAYERS, SELFCHECK_SIDE = 10, 64


def export_layers(layers: int, side: int, channels: int = CHANNELS, seed: int = 0) -> bytes:
    """A chain of equal 3x3 convolutions, each with its ReLU, lowered to XNNPACK."""
    import torch
    from executorch.backends.xnnpack.partition.xnnpack_partitioner import XnnpackPartitioner
    from executorch.exir import to_edge_transform_and_lower

    torch.manual_seed(seed)
    blocks = []
    for _ in range(layers):
        blocks += [torch.nn.Conv2d(channels, channels, 3, padding=1), torch.nn.ReLU()]
    model = torch.nn.Sequential(*blocks).eval()
    example = (torch.randn(1, channels, side, side),)
    lowered = to_edge_transform_and_lower(
        torch.export.export(model, example), partitioner=[XnnpackPartitioner()]
    )
    return bytes(lowered.to_executorch().buffer)


def layers_artifact(
    layers: int, side: int = SIDE, channels: int = CHANNELS, seed: int = 0
) -> Artifact:
    """The program with that many layers, exported once and then kept.

    Another seed gives another program of the same work: other weights, so other bytes.
    """
    version = importlib.metadata.version("executorch")
    folder = cache_folder() / "benchmarks" / f"executorch-{version}"
    other = f"_{seed}" if seed else ""
    path = folder / f"layers_{layers}_{channels}x{side}x{side}{other}.pte"
    if not path.is_file():
        folder.mkdir(parents=True, exist_ok=True)
        unfinished = path.with_suffix(".part")
        unfinished.write_bytes(export_layers(layers, side, channels, seed))
        unfinished.replace(path)
    spec = TensorSpec("float32", (1, channels, side, side))
    return Artifact(
        model=f"layers_{layers}",
        variant="fp32",
        folder=folder,
        pte=path,
        sha256=hashlib.sha256(path.read_bytes()).hexdigest(),
        inputs=(spec,),
        outputs=(spec,),
        weights=f"random (seed {seed})",
        versions={"executorch": version},
    )


if __name__ == "__main__":
    Path(sys.argv[1]).write_bytes(export_layers(SELFCHECK_LAYERS, SELFCHECK_SIDE))
