"""4-bit weights with one scale per channel: which data type XNNPACK gets, by quantizer."""

from __future__ import annotations

from unittest import mock

import torch
from executorch.backends.xnnpack import xnnpack_preprocess
from executorch.backends.xnnpack.partition.xnnpack_partitioner import XnnpackPartitioner
from executorch.backends.xnnpack.quantizer.xnnpack_quantizer import (
    XNNPACKQuantizer,
    get_symmetric_quantization_config,
)
from executorch.backends.xnnpack.serialization.xnnpack_graph_schema import XNNDatatype, XNNGraph
from executorch.exir import to_edge_transform_and_lower
from torchao.quantization import Int8DynamicActivationIntxWeightConfig, quantize_
from torchao.quantization.granularity import PerAxis, PerGroup
from torchao.quantization.pt2e.quantize_pt2e import convert_pt2e, prepare_pt2e

WIDTH = 64


def observed() -> dict[str, str]:
    """The data type of the weights in XNNPACK's graph."""
    return {
        "torchao PerGroup(32)": _data_type(_torchao(PerGroup(32))),
        "torchao PerAxis(0)": _data_type(_torchao(PerAxis(0))),
        "XNNPACKQuantizer, per channel": _data_type(_xnnpack_quantizer()),
    }


def _torchao(granularity: PerAxis | PerGroup) -> torch.export.ExportedProgram:
    layer = torch.nn.Linear(WIDTH, WIDTH).eval()
    quantize_(
        layer,
        Int8DynamicActivationIntxWeightConfig(
            weight_dtype=torch.int4, weight_granularity=granularity
        ),
    )
    return torch.export.export(layer, (torch.randn(1, WIDTH),))


def _xnnpack_quantizer() -> torch.export.ExportedProgram:
    layer, value = torch.nn.Linear(WIDTH, WIDTH).eval(), torch.randn(1, WIDTH)
    quantizer = XNNPACKQuantizer().set_global(
        get_symmetric_quantization_config(
            is_per_channel=True, is_dynamic=True, weight_qmin=-8, weight_qmax=7
        )
    )
    prepared = prepare_pt2e(torch.export.export(layer, (value,)).module(), quantizer)
    prepared(value)
    return torch.export.export(convert_pt2e(prepared), (value,))


def _data_type(program: torch.export.ExportedProgram) -> str:
    graphs: list[XNNGraph] = []
    original = xnnpack_preprocess.serialize_xnnpack_binary

    def keep(graph: XNNGraph, *rest: object) -> bytes:
        graphs.append(graph)
        return original(graph, *rest)

    with mock.patch.object(xnnpack_preprocess, "serialize_xnnpack_binary", keep):
        to_edge_transform_and_lower(program, partitioner=[XnnpackPartitioner()])
    found = set()
    for value in graphs[0].xvalues:
        inner = value.xvalue_union
        kind = getattr(getattr(inner, "tensor_value", inner), "datatype", None)
        if kind in (XNNDatatype.xnn_datatype_qbint4, XNNDatatype.xnn_datatype_qcint4):
            found.add(kind.name)
    return " and ".join(sorted(found))


if __name__ == "__main__":
    for quantizer, data_type in observed().items():
        print(f"{quantizer}: {data_type}")
