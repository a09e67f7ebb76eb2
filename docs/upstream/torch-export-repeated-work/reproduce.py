"""Work that an export repeats: counted, for networks of different depths."""

from __future__ import annotations

from typing import Any

import torch
from executorch.backends.xnnpack.partition.xnnpack_partitioner import XnnpackPartitioner
from executorch.exir import to_edge_transform_and_lower
from torch._export import utils
from torch.export import ExportedProgram
from torch.export.graph_signature import ExportGraphSignature


def observed() -> dict[str, dict[str, int]]:
    """By depth: inputs that were put into maps, how often all operators were listed, and traces."""
    # The first lowering of a process makes tables that the later ones share.
    _counted(1)
    return {str(depth): _counted(depth) for depth in (10, 20)}


def _counted(depth: int) -> dict[str, int]:
    counts = {"inputs": 0, "lists": 0, "traces": 0}
    make, look = ExportGraphSignature.inputs_to_parameters, utils._materialize_cpp_cia_ops
    trace = ExportedProgram.run_decompositions

    def count_inputs(self: Any) -> Any:
        counts["inputs"] += len(self.input_specs)
        return make.fget(self)

    def count_lists() -> None:
        counts["lists"] += 1
        look()

    def count_traces(self: Any, table: Any) -> Any:
        counts["traces"] += 1
        return trace(self, table)

    ExportedProgram.run_decompositions = count_traces
    ExportGraphSignature.inputs_to_parameters = property(count_inputs)
    utils._materialize_cpp_cia_ops = count_lists
    try:
        layers = [torch.nn.Linear(8, 8) for _ in range(depth)]
        program = torch.export.export(torch.nn.Sequential(*layers), (torch.randn(1, 8),))
        to_edge_transform_and_lower(program, partitioner=[XnnpackPartitioner()])
    finally:
        ExportedProgram.run_decompositions = trace
        ExportGraphSignature.inputs_to_parameters = make
        utils._materialize_cpp_cia_ops = look
    return counts


if __name__ == "__main__":
    for name, found in observed().items():
        inputs, lists, traces = found.values()
        print(f"{name} layers: {inputs} inputs in maps, {lists} lists, {traces} traces")
