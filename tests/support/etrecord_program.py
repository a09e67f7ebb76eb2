"""Writes the ETDump and ETRecord that tests read: ``python -m tests.support.etrecord_program DIR``.

The ETRecord was written by ExecuTorch 1.5.1. It belongs to the ETDump beside it.
"""

from __future__ import annotations

import re
import sys
import zipfile
from pathlib import Path


def write(folder: Path) -> None:
    import torch
    from executorch.backends.xnnpack.partition.xnnpack_partitioner import XnnpackPartitioner
    from executorch.exir import to_edge_transform_and_lower
    from executorch.extension.pybindings import portable_lib

    class Toy(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.first = torch.nn.Conv2d(3, 8, 3, padding=1)
            self.pointwise = torch.nn.Conv2d(8, 8, 1)
            self.last = torch.nn.Linear(8, 4)

        def forward(self, values: torch.Tensor) -> torch.Tensor:
            values = self.pointwise(torch.relu(self.first(values)))
            return self.last(torch.cumsum(values.mean((2, 3)), 1))

    inputs = (torch.ones(1, 3, 8, 8),)
    lowered = to_edge_transform_and_lower(
        torch.export.export(Toy().eval(), inputs),
        partitioner=[XnnpackPartitioner()],
        generate_etrecord=True,
    )
    program = lowered.to_executorch()
    etrecord, etdump = folder / "toy.etrecord", folder / "toy.etdump"
    program.get_etrecord().save(str(etrecord))
    _without_paths(etrecord)
    module = portable_lib._load_for_executorch_from_buffer(program.buffer, enable_etdump=True)
    module.run_method("forward", inputs)
    module.write_etdump_result_to_file(str(etdump))


def _without_paths(etrecord: Path) -> None:
    """Leave the file names of stack traces, but not the folders of whoever wrote the file."""
    with zipfile.ZipFile(etrecord) as archive:
        entries = {name: archive.read(name) for name in archive.namelist()}
    with zipfile.ZipFile(etrecord, "w") as archive:
        for name, content in entries.items():
            archive.writestr(name, re.sub(rb'(File ..)[^"]*/', rb"\1", content))


if __name__ == "__main__":
    write(Path(sys.argv[1]))
