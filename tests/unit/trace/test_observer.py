"""What ExecuTorch's runner of language models prints, read and compared."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from pytest_sme2.errors import UsageError
from pytest_sme2.runners.stock import UNTOLD, read_observed
from tests.support import Command


def line(prefill: int = 164, decode: int = 1025, **changes: Any) -> str:
    start = 1760077802998
    facts = {
        "prompt_tokens": 14, "generated_tokens": 54,
        "model_load_start_ms": start - 2277, "model_load_end_ms": start,
        "inference_start_ms": start, "inference_end_ms": start + prefill + decode,
        "prompt_eval_end_ms": start + prefill, "first_token_ms": start + prefill,
        "aggregate_sampling_time_ms": 19, "SCALING_FACTOR_UNITS_PER_SECOND": 1000,
        **changes,
    }  # fmt: skip
    return f"enjoy it!<|eot_id|>PyTorchObserver {json.dumps(facts)}\n\tPrompt Tokens: 14\n"


def written(path: Path, *lines: str) -> Path:
    path.write_text("Once upon a time\n" + "".join(lines))
    return path


def test_a_generation_is_read_from_its_line(tmp_path: Path) -> None:
    (found,) = read_observed(written(tmp_path / "a.log", line()))
    assert (found.prompt_tokens, found.new_tokens) == (14, 54)
    assert (found.load_ms, found.first_token_ms) == (2277, 164)
    assert found.token_ms == {"prefill": 164 / 14, "decode": 1025 / 54}


def test_what_has_no_such_line_has_no_generation(tmp_path: Path) -> None:
    assert read_observed(written(tmp_path / "a.log", "PyTorchObserver is not here\n")) == []
    (tmp_path / "run.etdump").write_bytes(bytes(range(256)))
    assert read_observed(tmp_path / "run.etdump") == []


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"first_token_ms": None}, "has no number 'first_token_ms'"),
        ({"inference_end_ms": 1}, "ends .inference_end_ms. before it begins"),
        ({"generated_tokens": 0}, "a generation without tokens"),
        ({"SCALING_FACTOR_UNITS_PER_SECOND": True}, "has no number 'SCALING"),
    ],
)
def test_a_line_that_cannot_be_is_refused(
    changes: dict[str, Any], said: str, tmp_path: Path
) -> None:
    with pytest.raises(UsageError, match=said):
        read_observed(written(tmp_path / "a.log", line(**changes)))


def test_two_logs_are_compared_phase_by_phase(tmp_path: Path, sme2: Command) -> None:
    off = written(tmp_path / "off.log", *(line(400, 1000 + at) for at in range(10)))
    on = written(tmp_path / "on.log", *(line(100, 1100 + at) for at in range(10)))
    printed = sme2("report", "compare", off, on, "--names", "off", "on").out
    assert "off: 10 generations, load 2277 ms, first token 400 ms, prefill 35.0 tokens/s" in printed
    assert "prefill: on is 4.00x [4.00, 4.00] as fast" in printed
    assert "decode: on is 0.91x [0.91, 0.91] as fast" in printed
    assert UNTOLD in printed
    found = json.loads(sme2("report", "compare", off, on, "--json").out)
    assert found["speedups"]["prefill"]["pairs"] == 10
