"""tiny_llama: a whole Llama-shaped language model in small, with a cache that it keeps itself.

As ExecuTorch's recipe for language models exports them: one method for prompts and for single
tokens, a cache of fixed length in the program's state. Its weights are random.
"""

from __future__ import annotations

import torch
from torch import nn
from torch.nn import functional

from pytest_sme2 import Generation, register_model

LAYERS = 1
WIDTH = 64
HEADS = 4
KEY_VALUE_HEADS = 2
HEAD_WIDTH = WIDTH // HEADS
FEED_FORWARD = 192
WORDS = 128
ROTARY_BASE = 10_000.0
CACHE = 64
LONGEST_PROMPT = 32


class Attention(nn.Module):
    """Grouped-query attention over all places of the cache; those still to come are masked."""

    def __init__(self) -> None:
        super().__init__()
        self.query = nn.Linear(WIDTH, HEADS * HEAD_WIDTH, bias=False)
        self.key = nn.Linear(WIDTH, KEY_VALUE_HEADS * HEAD_WIDTH, bias=False)
        self.value = nn.Linear(WIDTH, KEY_VALUE_HEADS * HEAD_WIDTH, bias=False)
        self.output = nn.Linear(HEADS * HEAD_WIDTH, WIDTH, bias=False)
        cache = torch.zeros(1, KEY_VALUE_HEADS, CACHE, HEAD_WIDTH)
        self.register_buffer("keys", cache.clone(), persistent=False)
        self.register_buffer("values", cache.clone(), persistent=False)

    def forward(
        self,
        hidden: torch.Tensor,
        places: torch.Tensor,
        turn: tuple[torch.Tensor, torch.Tensor],
        mask: torch.Tensor,
    ) -> torch.Tensor:
        tokens = hidden.shape[1]
        query = _rotated(_by_head(self.query(hidden), HEADS), turn)
        self.keys[:, :, places] = _rotated(_by_head(self.key(hidden), KEY_VALUE_HEADS), turn)
        self.values[:, :, places] = _by_head(self.value(hidden), KEY_VALUE_HEADS)
        shared = HEADS // KEY_VALUE_HEADS
        keys = self.keys.repeat_interleave(shared, 1)
        values = self.values.repeat_interleave(shared, 1)
        scores = query @ keys.transpose(-1, -2) * HEAD_WIDTH**-0.5 + mask
        found = (scores.softmax(-1) @ values).transpose(1, 2)
        answer: torch.Tensor = self.output(found.reshape(1, tokens, HEADS * HEAD_WIDTH))
        return answer


class Layer(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.before_attention = nn.RMSNorm(WIDTH)
        self.attention = Attention()
        self.before_feed_forward = nn.RMSNorm(WIDTH)
        self.gate = nn.Linear(WIDTH, FEED_FORWARD, bias=False)
        self.up = nn.Linear(WIDTH, FEED_FORWARD, bias=False)
        self.down = nn.Linear(FEED_FORWARD, WIDTH, bias=False)

    def forward(
        self,
        hidden: torch.Tensor,
        places: torch.Tensor,
        turn: tuple[torch.Tensor, torch.Tensor],
        mask: torch.Tensor,
    ) -> torch.Tensor:
        hidden = hidden + self.attention(self.before_attention(hidden), places, turn, mask)
        normal = self.before_feed_forward(hidden)
        return hidden + self.down(functional.silu(self.gate(normal)) * self.up(normal))


class TinyLlama(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.words = nn.Embedding(WORDS, WIDTH)
        self.layers = nn.ModuleList(Layer() for _ in range(LAYERS))
        self.norm = nn.RMSNorm(WIDTH)
        self.head = nn.Linear(WIDTH, WORDS, bias=False)
        frequencies = ROTARY_BASE ** (-torch.arange(0, HEAD_WIDTH, 2) / HEAD_WIDTH)
        angles = torch.outer(torch.arange(CACHE).float(), frequencies).repeat(1, 2)
        self.register_buffer("cosine", angles.cos(), persistent=False)
        self.register_buffer("sine", angles.sin(), persistent=False)
        # Not minus infinity: fp16 has none to spare.
        mask = torch.full((CACHE, CACHE), -1e4).triu(1)
        self.register_buffer("mask", mask, persistent=False)

    def forward(self, tokens: torch.Tensor, places: torch.Tensor) -> torch.Tensor:
        hidden = self.words(tokens)
        turn = self.cosine[places], self.sine[places]
        for layer in self.layers:
            hidden = layer(hidden, places, turn, self.mask[places])
        # Only the last token's answer is of use.
        answer: torch.Tensor = self.head(self.norm(hidden[:, -1:]))
        return answer


def _by_head(values: torch.Tensor, heads: int) -> torch.Tensor:
    return values.unflatten(-1, (heads, HEAD_WIDTH)).transpose(1, 2)


def _rotated(values: torch.Tensor, turn: tuple[torch.Tensor, torch.Tensor]) -> torch.Tensor:
    first, second = values.chunk(2, dim=-1)
    return values * turn[0] + torch.cat((-second, first), -1) * turn[1]


@register_model("tiny_llama", variants=("fp32", "fp16", "int8_dynamic", "int4"))
class TinyLlamaModel:
    """A prompt of 16 tokens and 4 new ones; the traced inference is one of those."""

    tokens = 1
    prompt = 16
    new = 4

    def get_eager_model(self) -> nn.Module:
        return TinyLlama()

    def get_example_inputs(self) -> tuple[torch.Tensor, ...]:
        return _words(1), torch.arange(self.prompt, self.prompt + 1)

    def get_dynamic_shapes(self) -> tuple[object, ...]:
        tokens = torch.export.Dim("tokens", min=1, max=LONGEST_PROMPT)
        return {1: tokens}, {0: tokens}

    def get_generation(self) -> Generation:
        after = range(self.prompt, self.prompt + self.new)
        return Generation(
            prompt=(_words(self.prompt), torch.arange(self.prompt)),
            steps=[(_words(1), torch.tensor([place])) for place in after],
            cache=CACHE,
        )


def _words(count: int) -> torch.Tensor:
    return torch.randint(WORDS, (1, count))
