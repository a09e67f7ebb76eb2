"""tiny_qwen3 and tiny_gemma: decoders of transformers in small, with a static cache.

As ExecuTorch's recipe for language models exports them: one method for prompts and for single
tokens, and a cache of fixed length in the program's state. Their weights are random.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import nn

from pytest_sme2 import Generation, register_model

LAYERS = 2
WIDTH = 64
HEADS = 4
KEY_VALUE_HEADS = 2
WORDS = 128
CACHE = 64
LONGEST_PROMPT = 32
PROMPT = 16
NEW = 4


class Decoder(nn.Module):
    def __init__(self, kind: str) -> None:
        super().__init__()
        import transformers
        from transformers.integrations.executorch import TorchExportableModuleWithStaticCache

        config = getattr(transformers, f"{kind}Config")(
            vocab_size=WORDS,
            hidden_size=WIDTH,
            intermediate_size=3 * WIDTH,
            num_hidden_layers=LAYERS,
            num_attention_heads=HEADS,
            num_key_value_heads=KEY_VALUE_HEADS,
            head_dim=WIDTH // HEADS,
            max_position_embeddings=CACHE,
            attn_implementation="eager",
        )
        model = getattr(transformers, f"{kind}ForCausalLM")(config).eval()
        model.generation_config = transformers.GenerationConfig(
            use_cache=True, cache_implementation="static"
        )
        self.model = TorchExportableModuleWithStaticCache(model, batch_size=1, max_cache_len=CACHE)

    def forward(self, tokens: torch.Tensor, places: torch.Tensor) -> torch.Tensor:
        # The cache of a run is what the program keeps, not what the wrapper was made with.
        for index, layer in enumerate(self.model.static_cache.layers):
            layer.keys = getattr(self.model, f"key_cache_{index}")
            layer.values = getattr(self.model, f"value_cache_{index}")
            layer.cumulative_length = getattr(self.model, f"cumulative_length_{index}")
        # Only the last token's answer is of use.
        answer: torch.Tensor = self.model(input_ids=tokens, cache_position=places)[:, -1:]
        return answer


class DecoderModel:
    """A prompt of 16 tokens and 4 new ones; the traced inference is one of those."""

    kind = ""
    tokens = 1

    def get_eager_model(self) -> nn.Module:
        return Decoder(self.kind)

    def get_example_inputs(self) -> tuple[torch.Tensor, ...]:
        return _words(1), torch.arange(PROMPT, PROMPT + 1)

    def get_dynamic_shapes(self) -> tuple[Any, ...]:
        tokens = torch.export.Dim("tokens", min=1, max=LONGEST_PROMPT)
        return {1: tokens}, {0: tokens}

    def get_generation(self) -> Generation:
        steps = [(_words(1), torch.tensor([place])) for place in range(PROMPT, PROMPT + NEW)]
        return Generation((_words(PROMPT), torch.arange(PROMPT)), steps, cache=CACHE)


@register_model("tiny_qwen3", variants=("fp32", "int8_dynamic", "int4"), emulated=("int8_dynamic",))
class Qwen3Model(DecoderModel):
    kind = "Qwen3"


@register_model("tiny_gemma", variants=("fp32", "int8_dynamic", "int4"), emulated=("int4",))
class GemmaModel(DecoderModel):
    kind = "Gemma"


def _words(count: int) -> torch.Tensor:
    return torch.randint(WORDS, (1, count))
