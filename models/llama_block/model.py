"""llama_block: one decoder layer of a Llama-shaped language model, with a prompt after a cache.

A prompt multiplies matrices with matrices (GEMM). With one token (``@1``) it is a step of decoding,
which multiplies matrices with vectors (GEMV) on other kernels.
"""

from __future__ import annotations

import torch
from torch import nn
from torch.nn import functional

from pytest_sme2 import register_model

# The layer of SmolLM2-135M, a Llama-shaped model of the size phones run.
WIDTH = 576
HEADS = 9
KEY_VALUE_HEADS = 3
HEAD_WIDTH = WIDTH // HEADS
FEED_FORWARD = 1536
ROTARY_BASE = 100_000.0
EPSILON = 1e-5
CACHED = 128


class DecoderLayer(nn.Module):
    """Grouped-query attention over a key/value cache of fixed length, then a gated feed-forward.

    The cache goes in as it was and the new keys and values come out: where they are kept is the
    caller's business, as in runtimes that manage the cache themselves.
    """

    def __init__(self, cached: int, tokens: int) -> None:
        super().__init__()
        self.query = nn.Linear(WIDTH, HEADS * HEAD_WIDTH, bias=False)
        self.key = nn.Linear(WIDTH, KEY_VALUE_HEADS * HEAD_WIDTH, bias=False)
        self.value = nn.Linear(WIDTH, KEY_VALUE_HEADS * HEAD_WIDTH, bias=False)
        self.output = nn.Linear(HEADS * HEAD_WIDTH, WIDTH, bias=False)
        self.gate = nn.Linear(WIDTH, FEED_FORWARD, bias=False)
        self.up = nn.Linear(WIDTH, FEED_FORWARD, bias=False)
        self.down = nn.Linear(FEED_FORWARD, WIDTH, bias=False)
        self.before_attention = nn.RMSNorm(WIDTH, eps=EPSILON)
        self.before_feed_forward = nn.RMSNorm(WIDTH, eps=EPSILON)
        cosine, sine = _rotation(cached, tokens)
        self.register_buffer("cosine", cosine, persistent=False)
        self.register_buffer("sine", sine, persistent=False)
        self.register_buffer("mask", _causal_mask(cached, tokens), persistent=False)

    def forward(
        self, hidden: torch.Tensor, keys: torch.Tensor, values: torch.Tensor
    ) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
        normal = self.before_attention(hidden)
        query = self._rotated(_by_head(self.query(normal), HEADS))
        key = self._rotated(_by_head(self.key(normal), KEY_VALUE_HEADS))
        value = _by_head(self.value(normal), KEY_VALUE_HEADS)
        found = self._attend(query, torch.cat((keys, key), 2), torch.cat((values, value), 2))
        hidden = hidden + self.output(found.transpose(1, 2).flatten(2))
        normal = self.before_feed_forward(hidden)
        hidden = hidden + self.down(functional.silu(self.gate(normal)) * self.up(normal))
        return hidden, key, value

    def _rotated(self, values: torch.Tensor) -> torch.Tensor:
        first, second = values.chunk(2, dim=-1)
        return values * self.cosine + torch.cat((-second, first), -1) * self.sine

    def _attend(
        self, query: torch.Tensor, keys: torch.Tensor, values: torch.Tensor
    ) -> torch.Tensor:
        # The query heads that share a key/value head stand below one another: no cache is copied.
        grouped = query.reshape(1, KEY_VALUE_HEADS, -1, HEAD_WIDTH)
        scores = grouped @ keys.transpose(-2, -1) * HEAD_WIDTH**-0.5 + self.mask
        found: torch.Tensor = scores.softmax(-1) @ values
        return found.reshape(query.shape)


def _by_head(values: torch.Tensor, heads: int) -> torch.Tensor:
    return values.unflatten(-1, (heads, HEAD_WIDTH)).transpose(1, 2)


def _rotation(cached: int, tokens: int) -> tuple[torch.Tensor, torch.Tensor]:
    frequencies = ROTARY_BASE ** (-torch.arange(0, HEAD_WIDTH, 2) / HEAD_WIDTH)
    angles = torch.outer(torch.arange(cached, cached + tokens), frequencies).repeat(1, 2)
    return angles.cos(), angles.sin()


def _causal_mask(cached: int, tokens: int) -> torch.Tensor:
    """What is added to the scores: a token sees the cache and no token after itself."""
    allowed = torch.ones(tokens, cached + tokens).tril(cached).bool()
    # Not minus infinity: fp16 and int8 have none to spare.
    return (
        torch.zeros(allowed.shape).masked_fill(~allowed, -1e4).repeat(HEADS // KEY_VALUE_HEADS, 1)
    )


@register_model(
    "llama_block_prefill",
    variants=("fp32", "fp16", "int8_dynamic", "int4"),
    emulated=("fp32@32", "fp16@32", "int8_dynamic@32", "int4@32"),
)
class PrefillModel:
    """A prompt of 128 tokens, or of the size asked for, after a cache of 128 positions."""

    def __init__(self, size: int = 128) -> None:
        self.tokens = size

    def get_eager_model(self) -> nn.Module:
        return DecoderLayer(CACHED, self.tokens)

    def get_example_inputs(self) -> tuple[torch.Tensor, ...]:
        cache = (1, KEY_VALUE_HEADS, CACHED, HEAD_WIDTH)
        return torch.randn(1, self.tokens, WIDTH), torch.randn(cache), torch.randn(cache)
