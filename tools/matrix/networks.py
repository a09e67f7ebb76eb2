"""The programs of the sheets. Needs torch; runs in the child process of ``many_exports.py``."""

from __future__ import annotations

import traceback
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from pytest_sme2.export.lowering import INT4_GROUP, partitioners, quantize_with
from pytest_sme2.export.sequences import raw_values, tensor_spec
from pytest_sme2.results.evidence import Cell
from tools.many_exports import problem, serve
from tools.matrix.cells import HEADS, KEYS, QUANTIZED, Sheet, Sizes, sizes

SEED = 0


def main() -> None:
    import torch

    def answer(request: Mapping[str, Any], folder: Path) -> dict[str, Any]:
        return export(Sheet(tuple(Cell(**fields) for fields in request["cells"])), folder, torch)

    serve(answer)


def export(sheet: Sheet, folder: Path, torch: Any) -> dict[str, Any]:
    """Write the program, its inputs and what eager fp32 answers; describe them.

    A cell that cannot be made in its data type is left out, with the reason.
    """
    layers: list[Layer] = []
    cells: list[str] = []
    problems: dict[str, str] = {}
    for cell in sheet.cells:
        torch.manual_seed(SEED)
        network, values = build(cell, sizes(cell), torch)
        with torch.no_grad():
            reference = network(*values).float()
        try:
            network, values = converted(cell.data_type, network, values, torch)
        except Exception as error:
            traceback.print_exc()
            problems[cell.id] = problem(error)
            continue
        cells.append(cell.id)
        layers.append(Layer(network, values, reference))
    if not layers:
        return {"problems": problems}
    described = write_program(layers, sheet.cells[0].data_type, folder, torch)
    return {**described, "cells": cells, "problems": problems}


class Layer(NamedTuple):
    """A network in its data type, its inputs, and what eager fp32 answers."""

    network: Any
    inputs: tuple[Any, ...]
    reference: Any


def write_program(
    layers: Sequence[Layer], data_type: str, folder: Path, torch: Any
) -> dict[str, Any]:
    """One program of all these layers, with its inputs and references; describe them."""
    from executorch.exir import to_edge_transform_and_lower

    arguments = tuple(value for layer in layers for value in layer.inputs)
    references = [layer.reference for layer in layers]
    program = torch.export.export(_side_by_side(layers, torch), arguments)
    quantizer = _quantizer(data_type)
    if quantizer is not None:
        program = quantize_with(quantizer, program, arguments, {}, torch)
    executable = to_edge_transform_and_lower(
        program, partitioner=partitioners(data_type)
    ).to_executorch()
    with (folder / "program.pte").open("wb") as file:
        executable.write_to_file(file)
    for index, tensor in enumerate(arguments):
        (folder / f"input_{index}.bin").write_bytes(raw_values(tensor, torch))
    for index, tensor in enumerate(references):
        (folder / f"reference_{index}.bin").write_bytes(raw_values(tensor, torch))
    return {
        "inputs": [tensor_spec(tensor) for tensor in arguments],
        "outputs": [tensor_spec(tensor) for tensor in references],
    }


def _side_by_side(layers: Sequence[Layer], torch: Any) -> Any:
    """All layers in one network: each takes its own inputs and gives one output."""

    class SideBySide(torch.nn.Module):  # type: ignore[misc]
        def __init__(self) -> None:
            super().__init__()
            self.layers = torch.nn.ModuleList([layer.network for layer in layers])

        def forward(self, *values: Any) -> Any:
            outputs, place = [], 0
            for network, layer in zip(self.layers, layers, strict=True):
                count = len(layer.inputs)
                outputs.append(network(*values[place : place + count]))
                place += count
            return tuple(outputs)

    return SideBySide().eval()


def build(cell: Cell, size: Sizes, torch: Any) -> tuple[Any, tuple[Any, ...]]:
    if cell.operator == "linear":
        network = torch.nn.Linear(size.inputs, size.outputs)
        return network.eval(), (torch.randn(cell.rows, size.inputs),)
    if cell.operator == "batch matrix product":
        left = torch.randn(HEADS, cell.rows, size.inputs)
        return _product(torch), (left, torch.randn(HEADS, size.inputs, size.outputs))
    if cell.operator == "attention":
        query = torch.randn(1, HEADS, cell.rows, size.inputs)
        key = torch.randn(1, HEADS, KEYS, size.inputs)
        return _attention(torch), (query, key, torch.randn(1, HEADS, KEYS, size.outputs))
    network = _convolution(cell.operator, size, torch).eval()
    return network, (torch.randn(1, size.inputs, size.height, size.width),)


def _convolution(operator: str, size: Sizes, torch: Any) -> Any:
    if operator == "transposed convolution":
        return torch.nn.ConvTranspose2d(size.inputs, size.outputs, 3, stride=2, padding=1)
    side = 1 if operator == "convolution 1x1" else 3
    return torch.nn.Conv2d(size.inputs, size.outputs, side, padding=side // 2, groups=size.groups)


def _product(torch: Any) -> Any:
    class Product(torch.nn.Module):  # type: ignore[misc]
        def forward(self, left: Any, right: Any) -> Any:
            return torch.bmm(left, right)

    return Product()


def _attention(torch: Any) -> Any:
    class Attention(torch.nn.Module):  # type: ignore[misc]
        def forward(self, query: Any, key: Any, value: Any) -> Any:
            return torch.nn.functional.scaled_dot_product_attention(query, key, value)

    return Attention()


def converted(
    data_type: str, network: Any, inputs: tuple[Any, ...], torch: Any
) -> tuple[Any, tuple[Any, ...]]:
    if data_type == "fp16 with fp32 weights":
        return _casting(network, torch), tuple(tensor.half() for tensor in inputs)
    floats = {"fp16": torch.float16, "bf16": torch.bfloat16}
    if data_type in floats:
        kind = floats[data_type]
        return network.to(kind), tuple(tensor.to(kind) for tensor in inputs)
    if data_type == "int4 per group":
        from torchao.quantization import Int8DynamicActivationIntxWeightConfig, quantize_
        from torchao.quantization.granularity import PerGroup

        configuration = Int8DynamicActivationIntxWeightConfig(
            weight_dtype=torch.int4, weight_granularity=PerGroup(INT4_GROUP)
        )
        quantize_(network, configuration)
    return network, inputs


def _casting(network: Any, torch: Any) -> Any:
    """The weights stay in fp32; they are cast to the type of the input when they are used."""

    class Casting(torch.nn.Module):  # type: ignore[misc]
        def __init__(self) -> None:
            super().__init__()
            self.inner = network

        def forward(self, value: Any) -> Any:
            weights = {
                name: parameter.to(value.dtype) for name, parameter in self.inner.named_parameters()
            }
            return torch.func.functional_call(self.inner, weights, (value,))

    return Casting().eval()


def _quantizer(data_type: str) -> Any:
    """The quantizer of XNNPACK for a data type; None where nothing is quantized in the graph."""
    if data_type not in QUANTIZED:
        return None
    from executorch.backends.xnnpack.quantizer.xnnpack_quantizer import (
        XNNPACKQuantizer,
        get_symmetric_quantization_config,
    )

    return XNNPACKQuantizer().set_global(get_symmetric_quantization_config(**QUANTIZED[data_type]))
