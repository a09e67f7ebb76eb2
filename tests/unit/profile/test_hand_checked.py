"""Advice on recorded runs of real architectures, held against what is really wrong with each.

What is wrong was found by hand: in the operators outside of the delegate, their share of the
executed instructions, and the sources of the models and of XNNPACK.
"""

from __future__ import annotations

from dataclasses import dataclass

import pytest

from pytest_sme2.profile.findings import by_data_type, case_findings
from pytest_sme2.report.findings import Advice, advice, advice_text
from pytest_sme2.results.profile import Executor, Topic
from tests.support import recorded_runs

DEPTHWISE = "not matrix work: depthwise convolutions with more than 25 weights a channel"

SINGLE_ROW = "measure it: matrix operators on SME2 with a single row"


@dataclass(frozen=True)
class Checked:
    """What advice on one run has to come to."""

    wrong: dict[str, float]
    """What is wrong, the most expensive first, and the part of the instructions, in percent."""
    outside: int
    sme2: str
    silent: tuple[str, ...] = ()
    """Words that would be wrong here."""


def outside(what: str) -> str:
    return f"outside of the delegate: {what}"


ATTENTION = outside("scaled_dot_product_attention")
CONSTANT = outside("work that does not depend on the input")
SIGMOID = "inside the delegate: Sigmoid"
POINTWISE = "not on SME2: Fully Connected (NC, F16) GEMM"
SILU, GELU, NORM = map(outside, ("SiLU", "GELU", "LayerNorm"))
RECURRENT, INDEX = map(outside, ("an LSTM or GRU", "an index such as `x[:, 0]`"))

CHECKED = {
    "efficientnet-fp16": Checked(
        wrong={SILU: 74.5, SIGMOID: 12.4, POINTWISE: 6.7},
        outside=32,
        sme2="2 of 22",
        silent=("attention", "the model's own permute", "a power"),
    ),
    "detector-fp16": Checked(
        wrong={
            SILU: 64.9,
            SIGMOID: 11.4,
            outside("nearest upsampling"): 4.5,
            POINTWISE: 4.4,
            CONSTANT: 2.5,
        },
        outside=28,
        sme2="6 of 10",
        silent=("attention", "the model's own permute", "depthwise"),
    ),
    "vit-fp16": Checked(
        wrong={ATTENTION: 44.6, GELU: 21.5, NORM: 15.8, CONSTANT: 1.4},
        outside=46,
        sme2="17 of 17",
        silent=("channels_last", "not on SME2", "depthwise"),
    ),
    "bert-fp16": Checked(
        wrong={ATTENTION: 51.6, GELU: 21.1, NORM: 15.4, CONSTANT: 3.3},
        outside=51,
        sme2="16 of 16",
        silent=("channels_last", "not on SME2", "unknown operators"),
    ),
    "gpt2-fp16": Checked(
        wrong={outside("a power"): 50.7, ATTENTION: 29.8, NORM: 7.1, CONSTANT: 3.5},
        outside=86,
        sme2="13 of 13",
        silent=("channels_last", "not on SME2", "GELU:"),
    ),
    "qwen2-fp16": Checked(
        wrong={
            ATTENTION: 35.2,
            SILU: 20.9,
            outside("a conversion between data types"): 19.1,
            CONSTANT: 5.3,
            outside("expand"): 2.6,
            outside("a mean"): 1.5,
        },
        outside=105,
        sme2="19 of 19",
        silent=("channels_last", "not on SME2", "LayerNorm"),
    ),
    "gru-fp16": Checked(
        wrong={RECURRENT: 21.1, SINGLE_ROW: 18.1, INDEX: 0.8},
        outside=28,
        sme2="10 of 10",
        silent=("channels_last", "attention", "not on SME2"),
    ),
    "lstm-fp16": Checked(
        wrong={SINGLE_ROW: 22.1, RECURRENT: 15.7, SIGMOID: 11.9, INDEX: 0.8, CONSTANT: 0.7},
        outside=23,
        sme2="10 of 10",
        silent=("channels_last", "attention", "not on SME2"),
    ),
    "whisper_encoder-fp16": Checked(
        wrong={ATTENTION: 53.4, GELU: 22.8, NORM: 12.1},
        outside=37,
        sme2="18 of 18",
        silent=("channels_last", "not on SME2", "depthwise"),
    ),
    "convnext-fp16": Checked(
        wrong={DEPTHWISE: 68.6, GELU: 16.2, NORM: 9.8},
        outside=14,
        sme2="13 of 13",
        silent=("not on SME2", "attention", "batch norm"),
    ),
}


def advised(name: str) -> list[Advice]:
    measured = recorded_runs.measured(name)
    return advice({measured.variant: case_findings(measured)})


@pytest.mark.parametrize("name", CHECKED)
def test_advice_names_what_is_really_wrong(name: str) -> None:
    checked, found = CHECKED[name], advised(name)
    assert [entry.what for entry in found[: len(checked.wrong)]] == list(checked.wrong)
    for entry, share in zip(found, checked.wrong.values(), strict=False):
        assert entry.cost.share * 100 == pytest.approx(share, abs=0.05)
        assert entry.remedy
        assert "express them with operators" not in entry.remedy, "a way out of its own is known"
    text = "\n".join(map(advice_text, found))
    assert not [word for word in checked.silent if word in text]


def test_every_architecture_was_checked() -> None:
    assert set(CHECKED) == {f"{model}-fp16" for model in recorded_runs.TEN}


@pytest.mark.parametrize("name", CHECKED)
def test_coverage_and_operators_outside_are_those_found_by_hand(name: str) -> None:
    checked, measured = CHECKED[name], recorded_runs.measured(name)
    profile = measured.profiles[measured.arm]
    coverage = profile.coverage
    assert f"{coverage.sme2_operators} of {coverage.matrix_operators}" == checked.sme2
    assert profile.executor_counts[Executor.PORTABLE] == checked.outside


LAYERS, CONV1D = "does not look into recurrent layers", "Hugging Face's Conv1D"


@pytest.mark.parametrize(
    ("name", "ran", "fp32", "share", "reason"),
    [
        ("lstm-int8", "fp32 9 of 9, int8 1 of 1", "9 of 10", 100, LAYERS),
        ("gpt2-int8", "fp32 12 of 12, int8 1 of 1", "12 of 13", 76, CONV1D),
        ("gpt2-int8_dynamic", "fp32 12 of 12, int8_dynamic 1 of 1", "12 of 13", 76, CONV1D),
        ("gpt2-int4", "fp32 12 of 12, int4 0 of 1", "12 of 13", 76, CONV1D),
    ],
)
def test_a_quantized_variant_that_mostly_is_not_says_so(
    name: str, ran: str, fp32: str, share: int, reason: str
) -> None:
    measured = recorded_runs.measured(name)
    assert by_data_type(measured.profiles[measured.arm]).startswith(f"{ran};")
    (found,) = (finding for finding in case_findings(measured) if finding.topic is Topic.DATA_TYPE)
    assert found.what == f"{fp32} matrix operators ran in fp32"
    assert found.detail == f"{share} % of the multiply-accumulates"
    assert reason in found.remedy


@pytest.mark.parametrize("name", ["qwen2-int8", "qwen2-int8_dynamic"])
def test_a_variant_that_is_what_its_name_says_is_not_warned_of(name: str) -> None:
    measured = recorded_runs.measured(name)
    assert not [finding for finding in case_findings(measured) if finding.topic is Topic.DATA_TYPE]
