"""XNNPACK with SME2 on: on is not off.

Fp16, input 1x4x4x4: convolution 3x3 to 4 padding 1.
Signal over noise 0.1 dB in place of 67.3 dB with 256 or 512 bits.
Seen with ExecuTorch 1.5.1 on the emulated CPU strict:128, SME2 on.

python reproduce.py writes reproduce.pte, its input and what eager PyTorch answers. Then
  sme2 run reproduce.pte --device emulated --cpu strict:128
runs it with SME2 on and off, and compares. On a machine with SME2 this script alone shows it.
"""

from pathlib import Path

import torch
from executorch.backends.xnnpack.partition.xnnpack_partitioner import XnnpackPartitioner
from executorch.exir import to_edge_transform_and_lower
from executorch.runtime import Runtime

torch.manual_seed(1)
network = torch.nn.Sequential(
    torch.nn.Conv2d(4, 4, (3, 3), padding=1),
).eval()
value = torch.randn(1, 4, 4, 4)
with torch.no_grad():
    expected = network(value).float()
network, value = network.half(), value.half()

program = torch.export.export(network, (value,))

lowered = to_edge_transform_and_lower(program, partitioner=[XnnpackPartitioner()])
Path("reproduce.pte").write_bytes(lowered.to_executorch().buffer)
value.numpy().tofile("reproduce.input_0.bin")
expected.half().numpy().tofile("reproduce.reference_0.bin")

method = Runtime.get().load_program("reproduce.pte").load_method("forward")
answer = method.execute((value,))[0].float()
error = (answer - expected).abs().max()
print(f"largest error on this machine: {error:.4g}, largest value: {expected.abs().max():.4g}")
