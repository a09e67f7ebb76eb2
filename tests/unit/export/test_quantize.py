"""Decoders in int8. The positions of Hugging Face's are ``arange + 0``: whole numbers."""

from __future__ import annotations

from typing import Any

import pytest

from pytest_sme2 import import_torchvision
from pytest_sme2.export.lowering import quantize
from pytest_sme2.export.registry import discover
from tests.support.recorded_runs import ARCHITECTURES

torch: Any = pytest.importorskip("torch")


class Decoder(torch.nn.Module):
    """As little of one as has positions."""

    def __init__(self) -> None:
        super().__init__()
        self.word, self.place = torch.nn.Embedding(50, 16), torch.nn.Embedding(8, 16)
        self.linear = torch.nn.Linear(16, 50)

    def get_eager_model(self) -> Decoder:
        return self

    def get_example_inputs(self) -> tuple[Any, ...]:
        return (torch.arange(8)[None] * 5,)

    def forward(self, words: Any) -> Any:
        return self.linear(self.word(words) + self.place(torch.arange(words.shape[1]) + 0))


@pytest.mark.parametrize("precision", ["int8", "int8_dynamic"])
@pytest.mark.parametrize(
    "name", ["", *(pytest.param(name, marks=pytest.mark.nightly) for name in ("gpt2", "qwen2"))]
)
# torch and transformers use what they have deprecated themselves.
@pytest.mark.filterwarnings("ignore")
def test_a_decoder_keeps_its_positions_whole_numbers(name: str, precision: str) -> None:
    torch.manual_seed(0)
    if name:
        # transformers imports it, and its compiled operators may not fit the installed torch.
        import_torchvision()
    model: Any = discover([ARCHITECTURES]).get(name).instantiate() if name else Decoder()
    network, words = model.get_eager_model().eval(), model.get_example_inputs()
    program = quantize(torch.export.export(network, words), precision, words, {}, torch)
    targets = [str(node.target) for node in program.graph.nodes]
    assert any(target.startswith("quantized_decomposed") for target in targets)
    with torch.no_grad():
        wanted, found = network(*words), program.module()(*words)
    noise = (wanted - found).norm() / wanted.norm()
    # Positions that became floats fail before; wrong ones would change every word.
    assert noise < 0.2


def test_patterns_of_norms_are_captured_only_for_a_network_that_has_one(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    from executorch.backends.xnnpack.quantizer import xnnpack_quantizer_utils

    def capture(*_: Any) -> None:
        raise LookupError

    monkeypatch.setattr(xnnpack_quantizer_utils, "_get_aten_graph_module_for_pattern", capture)
    image = (torch.ones(1, 3, 4, 4),)
    folded = torch.nn.Sequential(torch.nn.Conv2d(3, 3, 1), torch.nn.BatchNorm2d(3)).eval()
    assert quantize(torch.export.export(folded, image), "int8", image, {}, torch) is not None
    left = torch.nn.Sequential(torch.nn.BatchNorm2d(3), torch.nn.Conv2d(3, 3, 1)).eval()
    with pytest.raises(LookupError):
        quantize(torch.export.export(left, image), "int8", image, {}, torch)
