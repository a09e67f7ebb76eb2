"""Hugging Face's decoders in int8. Their positions are ``arange + 0``: whole numbers."""

from __future__ import annotations

import pytest

from pytest_sme2 import import_torchvision
from pytest_sme2.export.discovery import discover
from pytest_sme2.export.quantize import quantize
from tests.support.recorded_runs import ARCHITECTURES

torch = pytest.importorskip("torch")


@pytest.mark.parametrize("precision", ["int8", "int8_dynamic"])
@pytest.mark.parametrize("name", ["gpt2", pytest.param("qwen2", marks=pytest.mark.nightly)])
# torch and transformers use what they have deprecated themselves.
@pytest.mark.filterwarnings("ignore")
def test_a_decoder_keeps_its_positions_whole_numbers(name: str, precision: str) -> None:
    # transformers imports it, and its compiled operators may not fit the installed torch.
    import_torchvision()
    torch.manual_seed(0)
    model = discover([ARCHITECTURES]).get(name).instantiate(None)
    network, words = model.get_eager_model().eval(), model.get_example_inputs()
    program = quantize(torch.export.export(network, words), precision, words, {}, torch)
    targets = [str(node.target) for node in program.graph.nodes]
    assert any(target.startswith("quantized_decomposed") for target in targets)
    with torch.no_grad():
        wanted, found = network(*words), program.module()(*words)
    noise = (wanted - found).norm() / wanted.norm()
    # Positions that became floats fail before; wrong ones would change every word.
    assert noise < 0.2
