"""Planted edits can be made, and headlines about them are judged rightly."""

from __future__ import annotations

import pytest

from benchmarks.blame import PLANTED, edits_of

MODELS = [path.parent.name for path in PLANTED.glob("*/edits.txt")]


@pytest.mark.parametrize("model", MODELS)
def test_each_model_has_an_edit_of_each_kind(model: str) -> None:
    edits = edits_of(model)
    assert [*edits] == [*edits_of("keywords")]
    assert len(edits) == 15
    for edit in edits.values():
        compile(edit.made()[1], edit.file, "exec")
        assert edit.guilty()


def test_the_guilty_lines_are_the_edited_ones_and_their_callers() -> None:
    kernel = edits_of("keywords")["kernel"]
    lines = kernel.made()[1].splitlines()
    assert {lines[row - 1].strip() for _, row in kernel.guilty()} == {
        "self.mix = nn.Conv2d(width, width, 3, padding=1)",
        "value = torch.relu(self.norm(self.mix(value)))",
    }


@pytest.mark.parametrize(
    ("said", "everywhere", "right", "innocent"),
    [
        ("Add added: `x` at a/model.py:33", False, True, False),
        ("Add added: `x` at a/model.py:8", False, False, True),
        ("Add added: near `x` at a/model.py:8", False, False, False),
        ("Add added: changed: model.py:30-33; the cost is `x` at model.py:8", False, True, True),
        ("Add added: changed: model.py:33; the cost is near at model.py:8", False, True, False),
        ("all 5 operators grew: 1x8 → 1x9: from `x` at a/model.py:8 on", True, True, False),
        ("spread over 5 operators, the largest 39 %: `x` at a/model.py:8", True, False, False),
        ("", False, False, False),
    ],
)
def test_a_headline_is_judged(said: str, everywhere: bool, right: bool, innocent: bool) -> None:
    edit = edits_of("keywords")["width" if everywhere else "permute"]
    assert edit.judged(said) == {"right": right, "innocent": innocent}
