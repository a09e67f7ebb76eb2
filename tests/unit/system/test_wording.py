"""One thing is named in the singular, any other number in the plural."""

from __future__ import annotations

import pytest

from pytest_sme2.system.wording import count, several


@pytest.mark.parametrize(
    ("number", "noun", "text"),
    [
        (0, "operator", "0 operators"),
        (1, "operator", "1 operator"),
        (2, "operator", "2 operators"),
        (1, "process", "1 process"),
        (3, "process", "3 processes"),
    ],
)
def test_a_noun_agrees_with_its_number(number: int, noun: str, text: str) -> None:
    assert count(number, noun) == text
    assert several(number, noun) == text.partition(" ")[2]
