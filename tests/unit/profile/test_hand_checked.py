"""Advice on recorded runs of real architectures, held against what is really wrong with each.

What is wrong was found by hand: in the operators outside of the delegate, their share of the
executed instructions, and the sources of the models and of XNNPACK. ``docs/advice.md`` shows it.
"""

from __future__ import annotations

from dataclasses import dataclass

import pytest

from pytest_sme2.profile.findings import case_findings
from pytest_sme2.report.findings import Advice, advice, advice_text
from pytest_sme2.results import Executor
from tests.support import recorded_runs

PAGE = (recorded_runs.ROOT / "docs" / "advice.md").read_text("utf-8")
DEPTHWISE = "not matrix work: depthwise convolutions with more than 25 weights a channel"

SINGLE_ROW = "measure it: matrix operators on SME2 with a single row"


@dataclass(frozen=True)
class Checked:
    """What advice on one run has to come to."""

    wrong: tuple[tuple[str, float], ...]
    """What is wrong, the most expensive first, and the part of the instructions, in percent."""
    outside: int
    sme2: str
    silent: tuple[str, ...] = ()
    """Words that would be wrong here."""


def outside(what: str) -> str:
    return f"outside of the delegate: {what}"


CHECKED = {
    "lstm-fp16": Checked(
        wrong=(
            (SINGLE_ROW, 22.1),
            (outside("an LSTM or GRU"), 15.7),
            (outside("an index such as `x[:, 0]`"), 0.8),
            (outside("work that does not depend on the input"), 0.7),
        ),
        outside=23,
        sme2="10 of 10",
        silent=("channels_last", "attention", "not on SME2"),
    ),
    "whisper_encoder-fp16": Checked(
        wrong=(
            (outside("scaled_dot_product_attention"), 57.7),
            (outside("GELU"), 20.7),
            (outside("LayerNorm"), 11.0),
        ),
        outside=45,
        sme2="18 of 18",
        silent=("channels_last", "not on SME2", "depthwise"),
    ),
    "convnext-fp16": Checked(
        wrong=((DEPTHWISE, 68.6), (outside("GELU"), 16.2), (outside("LayerNorm"), 9.8)),
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
    assert [entry.what for entry in found[: len(checked.wrong)]] == [
        what for what, _ in checked.wrong
    ]
    for entry, (_, share) in zip(found, checked.wrong, strict=False):
        assert entry.share * 100 == pytest.approx(share, abs=0.05)
        assert entry.remedy
        assert "express them with operators" not in entry.remedy, "a way out of its own is known"
    text = "\n".join(map(advice_text, found))
    assert not [word for word in checked.silent if word in text]


@pytest.mark.parametrize("name", CHECKED)
def test_the_page_shows_the_same(name: str) -> None:
    checked, measured = CHECKED[name], recorded_runs.measured(name)
    profile = measured.profiles[measured.arm]
    coverage = profile.coverage
    assert f"{coverage.sme2_operators} of {coverage.matrix_operators}" == checked.sme2
    assert profile.executor_counts[Executor.PORTABLE] == checked.outside
    table = PAGE.partition("## Architectures that people deploy")[2]
    (row,) = (line for line in table.splitlines() if line.startswith(f"| `{measured.model}` |"))
    assert f"| {checked.sme2} | {checked.outside} |" in row
    for _, share in checked.wrong:
        assert f"{share:.1f} %" in row
