"""Decoders of transformers in small, with random weights, as whole generations."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from pytest_sme2.export.artifacts import export_model
from pytest_sme2.export.discovery import discover
from pytest_sme2.export.variant import parse_variant
from pytest_sme2.results import Arm, RunRequest
from pytest_sme2.runners.sme2 import wheel_runner
from pytest_sme2.system.platforms import host_platform
from pytest_sme2.targets.local import LocalTarget

MODEL = """
import torch
import transformers
from transformers.integrations.executorch import TorchExportableModuleWithStaticCache

from pytest_sme2 import Generation, register_model

WORDS, CACHE, PROMPT, NEW = 128, 32, 8, 4


class Decoder(torch.nn.Module):
    def __init__(self):
        super().__init__()
        config = transformers.{kind}Config(
            vocab_size=WORDS, hidden_size=64, intermediate_size=128, num_hidden_layers=2,
            num_attention_heads=4, num_key_value_heads=2, head_dim=16,
            max_position_embeddings=CACHE, attn_implementation="eager",
        )
        model = transformers.{kind}ForCausalLM(config).eval()
        model.generation_config = transformers.GenerationConfig(
            use_cache=True, cache_implementation="static"
        )
        self.model = TorchExportableModuleWithStaticCache(model, batch_size=1, max_cache_len=CACHE)

    def forward(self, words, places):
        for index, layer in enumerate(self.model.static_cache.layers):
            layer.keys = getattr(self.model, f"key_cache_{{index}}")
            layer.values = getattr(self.model, f"value_cache_{{index}}")
            layer.cumulative_length = getattr(self.model, f"cumulative_length_{{index}}")
        return self.model(input_ids=words, cache_position=places)[:, -1:]


@register_model("decoder", variants=("fp32", "int8_dynamic", "int4"))
class DecoderModel:
    tokens = 1

    def get_eager_model(self):
        return Decoder()

    def get_example_inputs(self):
        return torch.randint(WORDS, (1, 1)), torch.tensor([0])

    def get_dynamic_shapes(self):
        tokens = torch.export.Dim("tokens", min=1, max=CACHE // 2)
        return {{1: tokens}}, {{0: tokens}}

    def get_generation(self):
        steps = [(torch.randint(WORDS, (1, 1)), torch.tensor([PROMPT + n])) for n in range(NEW)]
        prompt = torch.randint(WORDS, (1, PROMPT)), torch.arange(PROMPT)
        return Generation(prompt, steps, cache=CACHE)
"""


@pytest.mark.nightly
@pytest.mark.parametrize("variant", ["fp32", "int8_dynamic", "int4"])
@pytest.mark.parametrize("kind", ["Llama", "Qwen3", "Gemma"])
def test_a_decoder_of_transformers_generates(kind: str, variant: str, tmp_path: Path) -> None:
    pytest.importorskip("transformers")
    (tmp_path / "decoder").mkdir()
    (tmp_path / "decoder" / "model.py").write_text(MODEL.format(kind=kind))
    artifact = export_model(discover([tmp_path]).get("decoder"), parse_variant(variant))
    request = RunRequest(artifact, Arm.OFF, warmup=0, runs=1, keep_outputs=True, generate=True)
    run = LocalTarget().run(wheel_runner(host_platform()), request, tmp_path / "run")
    found = np.fromfile(run.outputs[0].file, "float32")
    expected = np.fromfile(artifact.folder / "generated_0.bin", "float32")
    # Without the cache, the last answer would have nothing of what is expected.
    noise = np.square(found - expected).sum() / np.square(expected).sum()
    assert noise < {"fp32": 1e-8, "int8_dynamic": 0.01, "int4": 0.1}[variant]
    assert len(run.step_wall_ns) == 5
