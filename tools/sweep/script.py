"""Writes a difference down as a script that anyone with ExecuTorch can run. Pure.

It exports the program, and writes its input and eager's answer beside it, as ``sme2 run`` reads
them.
"""

from __future__ import annotations

import re

from pytest_sme2.results import Arm
from tools.matrix.cells import QUANTIZED
from tools.sweep.programs import ACTIVATIONS, GROUP, LINEAR, PRODUCT, TRANSPOSED, Layer, shapes
from tools.sweep.running import Difference

_SCRIPT = '''\
"""{title}

{program}.
{text}.
Seen with ExecuTorch {executorch} on the emulated CPU {cpu}, SME2 {arm}.

python {name}.py writes {name}.pte, its input and what eager PyTorch answers. Then
  sme2 run {name}.pte --device emulated --cpu {cpu}
runs it with SME2 on and off, and compares. On a machine with SME2 this script alone shows it.
"""

from pathlib import Path

import torch
from executorch.backends.xnnpack.partition.xnnpack_partitioner import XnnpackPartitioner
from executorch.exir import to_edge_transform_and_lower
from executorch.runtime import Runtime
{imports}
{classes}
torch.manual_seed({seed})
network = torch.nn.Sequential(
{layers}
).eval()
value = torch.randn({shape})
with torch.no_grad():
    expected = network(value).float()
{convert}
program = torch.export.export(network, (value,))
{quantize}
lowered = to_edge_transform_and_lower(program, partitioner=[XnnpackPartitioner()])
Path("{name}.pte").write_bytes(lowered.to_executorch().buffer)
value.numpy().tofile("{name}.input_0.bin")
expected.{reference}.numpy().tofile("{name}.reference_0.bin")

method = Runtime.get().load_program("{name}.pte").load_method("forward")
answer = method.execute((value,))[0].float()
error = (answer - expected).abs().max()
print(f"largest error on this machine: {{error:.4g}}, largest value: {{expected.abs().max():.4g}}")
'''

_PRODUCT = """

class Product(torch.nn.Module):
    def forward(self, value):
        return torch.bmm(value, value.transpose(1, 2))

"""

_QUANTIZER_IMPORTS = """\
from executorch.backends.xnnpack.quantizer.xnnpack_quantizer import (
    XNNPACKQuantizer,
    get_symmetric_quantization_config,
)
from torchao.quantization.pt2e.quantize_pt2e import convert_pt2e, prepare_pt2e
"""
_GROUP_IMPORTS = """\
from torchao.quantization import Int8DynamicActivationIntxWeightConfig, quantize_
from torchao.quantization.granularity import PerGroup
"""
_QUANTIZE = """\
quantizer = XNNPACKQuantizer().set_global(
    get_symmetric_quantization_config({options})
)
prepared = prepare_pt2e(program.module(), quantizer)
with torch.no_grad():
    prepared(value)
program = torch.export.export(convert_pt2e(prepared), (value,))
"""
_QUANTIZE_GROUPS = f"""\
configuration = Int8DynamicActivationIntxWeightConfig(
    weight_dtype=torch.int4, weight_granularity=PerGroup({GROUP})
)
quantize_(network, configuration)
"""


def script(found: Difference, name: str, executorch: str) -> str:
    """A whole Python file; ``name`` is what it is called, without its ending."""
    program = found.program
    known = shapes(program)
    if known is None:
        raise ValueError(f"{program} cannot be built")
    half, groups = program.data_type == "fp16", program.data_type == "int4 per group"
    chosen = QUANTIZED.get(program.data_type, {})
    options = ", ".join(f"{option}={value}" for option, value in chosen.items())
    lines = [
        f"    {_expression(layer, shape)},"
        for layer, shape in zip(program.layers, known, strict=False)
    ]
    convert = "network, value = network.half(), value.half()\n" if half else ""
    text = _SCRIPT.format(
        title=f"XNNPACK with SME2 {found.arm}: {found.kind}.",
        program=str(program)[0].upper() + str(program)[1:],
        text=found.text[0].upper() + found.text[1:].rstrip("."),
        executorch=executorch,
        cpu=found.cpu,
        arm="on" if found.arm is Arm.ON else "off",
        name=name,
        imports=(_QUANTIZER_IMPORTS if options else "") + (_GROUP_IMPORTS if groups else ""),
        classes=_PRODUCT if any(layer.kind == PRODUCT for layer in program.layers) else "",
        seed=program.seed,
        layers="\n".join(lines),
        shape=", ".join(map(str, program.shape)),
        convert=convert + (_QUANTIZE_GROUPS if groups else ""),
        quantize=_QUANTIZE.format(options=options) if options else "",
        reference="half()" if half else "float()",
    )
    return re.sub(r"\n{3,}", "\n\n", text)


def _expression(layer: Layer, shape: tuple[int, ...]) -> str:
    if layer.kind in ACTIVATIONS:
        return f"torch.nn.{layer.kind}()"
    if layer.kind == PRODUCT:
        return "Product()"
    if layer.kind == LINEAR:
        return f"torch.nn.Linear({shape[-1]}, {layer.outputs}, bias={layer.bias})"
    kind = "ConvTranspose2d" if layer.kind == TRANSPOSED else "Conv2d"
    usual = Layer(layer.kind)
    given = "".join(
        f", {name}={getattr(layer, name)}"
        for name in ("stride", "padding", "dilation", "groups", "bias")
        if getattr(layer, name) != getattr(usual, name)
    )
    return f"torch.nn.{kind}({shape[1]}, {layer.outputs}, {layer.kernel}{given})"
