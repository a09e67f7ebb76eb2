"""Builds random programs. Needs torch; runs in the child process of ``many_exports.py``.

``script.py`` writes the same network down: a test holds one against the other.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from tools.many_exports import serve
from tools.matrix.networks import Layer as BuiltLayer
from tools.matrix.networks import converted, write_program
from tools.sweep.programs import (
    ACTIVATIONS,
    LINEAR,
    PRODUCT,
    TRANSPOSED,
    Layer,
    RandomProgram,
    shapes,
)


def main() -> None:
    import torch

    def answer(request: Mapping[str, Any], folder: Path) -> dict[str, Any]:
        programs = [_program(fields) for fields in request["programs"]]
        return export(programs, folder, torch)

    serve(answer)


def _program(fields: Mapping[str, Any]) -> RandomProgram:
    layers = (
        Layer(**{**layer, "kernel": tuple(layer["kernel"])})  # JSON knows no tuples
        for layer in fields["layers"]
    )
    return RandomProgram(fields["seed"], fields["data_type"], tuple(fields["shape"]), tuple(layers))


def export(programs: list[RandomProgram], folder: Path, torch: Any) -> dict[str, Any]:
    """All of them side by side: one input and one output each."""
    built = []
    for program in programs:
        torch.manual_seed(program.seed)
        network, value = build(program, torch)
        with torch.no_grad():
            reference = network(value).float()
        network, values = converted(program.data_type, network, (value,), torch)
        built.append(BuiltLayer(network, values, reference))
    return write_program(built, programs[0].data_type, folder, torch)


def build(program: RandomProgram, torch: Any) -> tuple[Any, Any]:
    known = shapes(program)
    if known is None:
        raise ValueError(f"{program} cannot be built")
    layers = [
        _layer(layer, shape, torch) for layer, shape in zip(program.layers, known, strict=False)
    ]
    return torch.nn.Sequential(*layers).eval(), torch.randn(program.shape)


def _layer(layer: Layer, shape: tuple[int, ...], torch: Any) -> Any:
    if layer.kind in ACTIVATIONS:
        return getattr(torch.nn, layer.kind)()
    if layer.kind == PRODUCT:
        return _product(torch)
    if layer.kind == LINEAR:
        return torch.nn.Linear(shape[-1], layer.outputs, bias=layer.bias)
    kind = torch.nn.ConvTranspose2d if layer.kind == TRANSPOSED else torch.nn.Conv2d
    return kind(
        shape[1],
        layer.outputs,
        layer.kernel,
        stride=layer.stride,
        padding=layer.padding,
        dilation=layer.dilation,
        groups=layer.groups,
        bias=layer.bias,
    )


def _product(torch: Any) -> Any:
    class Product(torch.nn.Module):  # type: ignore[misc]
        def forward(self, value: Any) -> Any:
            return torch.bmm(value, value.transpose(1, 2))

    return Product()
