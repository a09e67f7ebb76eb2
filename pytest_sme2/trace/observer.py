"""What ExecuTorch's own runners of language models print about a generation (``llama_main`` and
others): a line ``PyTorchObserver {…}`` per generation, with times in whole milliseconds.

It tells neither single steps nor which kernels ran, so it proves nothing about SME2.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pytest_sme2.errors import UsageError
from pytest_sme2.results import DECODE, PREFILL
from pytest_sme2.system.reading import json_value, read_text_if_there

MARK = "PyTorchObserver "
UNTOLD = (
    "The runner does not tell which kernels ran, so nothing is known of SME2, nor single steps."
)
_LIMIT = 64 * 2**20
_REMEDY = "Give the output of a run of llama_main, or of several."
_LONGEST_MS = 1e9


@dataclass(frozen=True)
class ObservedGeneration:
    """One generation; a time of 0 was too short for the runner's clock, or not taken."""

    prompt_tokens: int
    new_tokens: int
    load_ms: float
    first_token_ms: float
    """From the start of the inference."""
    prefill_ms: float
    decode_ms: float

    @property
    def token_ms(self) -> dict[str, float]:
        """Of each phase, the time of a token."""
        return {
            PREFILL: self.prefill_ms / self.prompt_tokens,
            DECODE: self.decode_ms / self.new_tokens,
        }


def read_observed(path: Path) -> list[ObservedGeneration]:
    """The generations in a log; none where it has no such line, as an ETDump has none."""
    try:
        text = read_text_if_there(path, remedy=_REMEDY, limit=_LIMIT, error=UsageError) or ""
    except UsageError:
        return []  # not text
    lines = (line.partition(MARK) for line in text.splitlines())
    return [_generation(rest, path) for _, mark, rest in lines if mark and rest.startswith("{")]


def _generation(text: str, path: Path) -> ObservedGeneration:
    where = f"{path}: a line of PyTorchObserver"
    document = json_value(text, where, remedy=_REMEDY, error=UsageError, finite=True)

    def number(name: str) -> float:
        value: Any = document.get(name) if isinstance(document, dict) else None
        if isinstance(value, bool) or not isinstance(value, int) or not 0 <= value < 2**62:
            raise UsageError(f"{where} has no number {name!r}. {_REMEDY}")
        return float(value)

    def span(start: str, end: str) -> float:
        length = (number(end) - number(start)) * 1000 / scale
        if not 0 <= length <= _LONGEST_MS:
            raise UsageError(f"{where} ends ({end}) before it begins ({start}). {_REMEDY}")
        return length

    scale = number("SCALING_FACTOR_UNITS_PER_SECOND")
    prompt, new = number("prompt_tokens"), number("generated_tokens")
    if min(scale, prompt, new) < 1:
        raise UsageError(f"{where} is of a generation without tokens. {_REMEDY}")
    return ObservedGeneration(
        int(prompt),
        int(new),
        span("model_load_start_ms", "model_load_end_ms"),
        span("inference_start_ms", "first_token_ms"),
        span("inference_start_ms", "prompt_eval_end_ms"),
        span("prompt_eval_end_ms", "inference_end_ms"),
    )
