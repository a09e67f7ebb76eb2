"""Planted edits can be made, and headlines about them are judged rightly."""

from __future__ import annotations

import pytest

from benchmarks.blame import PLANTED, edits_of, judge
from pytest_sme2.results import Check, Outcome

MODELS = [path.parent.name for path in PLANTED.glob("*/edits.txt")]


@pytest.mark.parametrize("model", MODELS)
def test_each_model_has_an_edit_of_each_kind(model: str) -> None:
    edits = edits_of(model)
    assert [*edits] == [*edits_of("keywords")]
    assert len(edits) == 15
    for edit in edits.values():
        text, guilty = edit.made((PLANTED / model / edit.file).read_text("utf-8"))
        compile(text, edit.file, "exec")
        assert guilty


def test_the_guilty_lines_are_the_edited_ones_and_their_callers() -> None:
    kernel = edits_of("keywords")["kernel"]
    text, guilty = kernel.made((PLANTED / "keywords" / "model.py").read_text("utf-8"))
    lines = text.splitlines()
    assert {lines[row - 1].strip() for _, row in guilty} == {
        "self.mix = nn.Conv2d(width, width, 3, padding=1)",
        "value = torch.relu(self.norm(self.mix(value)))",
    }


@pytest.mark.parametrize(
    ("cause", "where", "everywhere", "right", "innocent"),
    [
        ("Add added", "`x` at a/model.py:7", False, True, False),
        ("Add added", "`x` at a/model.py:8", False, False, True),
        ("Add added", "near `x` at a/model.py:8", False, False, False),
        ("Add added", "changed: model.py:6-7; the cost is `x` at a/model.py:8", False, True, True),
        ("Add added", "changed: model.py:7; the cost is near at model.py:8", False, True, False),
        ("all 5 operators grew: 1x8 → 1x9", "from `x` at a/model.py:8 on", True, True, False),
        ("spread over 5 operators, the largest 39 %", "`x` at a/model.py:8", True, False, False),
        ("", "", False, False, False),
    ],
)  # fmt: skip
def test_a_headline_is_judged(cause, where, everywhere, right, innocent) -> None:
    edit = edits_of("keywords")["width" if everywhere else "permute"]
    lines = ("+5: Add added", "-1,002: 3 other operators")
    check = Check("cost (on)", Outcome.REGRESSED, "", 2000, 1003, "count", details=lines,
                  cause=cause, where=where)  # fmt: skip
    row = judge(edit, {("model.py", 7)}, [check])
    assert (row["right"], row["innocent"], row["exact"]) == (right, innocent, True)
