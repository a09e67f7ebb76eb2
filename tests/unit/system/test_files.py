"""Values as JSON and back: what is wrong is told with its place."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import pytest

from pytest_sme2.errors import Sme2Error
from pytest_sme2.results.run import Arm, Frame
from pytest_sme2.system.files import decode, encode


@dataclass(frozen=True)
class Run:
    threads: int
    ratio: float = 1.0
    by_arm: Mapping[Arm, tuple[int, ...]] = field(default_factory=dict)
    at: Mapping[int, Mapping[str, Frame]] = field(default_factory=dict)


def test_values_survive() -> None:
    run = Run(1 << 70, 0.5, {Arm.ON: (1, 2)}, {4: {"a.b[0]": Frame("m.py", 3, "forward")}})
    document = encode(run)
    assert document["by_arm"] == {"on": (1, 2)}
    assert decode(document, Run, "run.json") == run
    assert decode({"threads": 1, "ratio": 2, "gone": 7}, Run, "run.json") == Run(1, 2.0)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"threads": "4"}, "threads: Expected `int`, got `str`"),
        ({"threads": True}, "threads: Expected `int`, got `bool`"),
        ({"threads": 1.5}, "threads: Expected `int`, got `float`"),
        ({"ratio": "1"}, "ratio: Expected `float`, got `str`"),
        ({"by_arm": []}, "by_arm: Expected `object`, got `array`"),
        ({"by_arm": {"on": [1], "off": [2, "x"]}}, "by_arm.off[1]: Expected `int`, got `str`"),
        ({"by_arm": {"on": [], "of": []}}, "by_arm.of: Invalid enum value 'of'"),
        ({"at": {"2": {}, "two": {}}}, "at.two: Expected `int`, got `str`"),
        ({"at": {"1": {}, "2": {"a.b[0]": ["m.py", 3, ""], "c": ["m.py", "3", ""]}}},
         "at.2.c[1]: Expected `int`, got `str`"),
        ({"at": {"1": {"": ["m.py"]}}}, "at.1.: Expected `array` of length 3, got 1"),
        ({"by_arm": {"on": [[]] * 100_000}}, "by_arm.on[0]: Expected `int`, got `array`"),
        ({"at": {"1": {str(each): [] for each in range(100_000)}}},
         "at.1.0: Expected `array` of length 3, got 0"),
        ({"by_arm": {"\ud800": []}}, "'utf-8' codec can't encode character '\\ud800'"),
    ],
)  # fmt: skip
def test_an_error_names_the_place(changes: dict[str, Any], message: str) -> None:
    document = {"threads": 1, **changes}
    before = repr(document)
    with pytest.raises(Sme2Error) as caught:
        decode(document, Run, "run.json")
    assert str(caught.value).startswith(f"run.json is damaged: {message}")
    assert str(caught.value).endswith("Run the case again.")
    assert repr(document) == before


def test_a_word_of_any_length_makes_a_short_message() -> None:
    documents: tuple[Any, ...] = ({"threads": 1, "by_arm": {"x" * 10_000: []}}, {"by_arm": {}})
    for document in documents:
        with pytest.raises(Sme2Error, match=r"^run\.json is damaged: ") as caught:
            decode(document, Run, "run.json")
        assert len(str(caught.value)) < 400


@pytest.mark.parametrize("document", [["x"] * 100_000, "x" * 100_000, None, 7, []])
def test_what_is_no_table_is_told_once(document: Any) -> None:
    with pytest.raises(Sme2Error, match=r"^run\.json is damaged: Expected `object`, got `"):
        decode(document, Run, "run.json")
