"""Counted nouns: the one place that knows singular from plural."""

from __future__ import annotations


def several(number: int, noun: str) -> str:
    """``noun`` as it stands after ``number``: ``operator``, ``operators``, ``processes``."""
    if number == 1:
        return noun
    return f"{noun}es" if noun.endswith("s") else f"{noun}s"


def count(number: int, noun: str) -> str:
    """``1 operator``, ``3 operators``."""
    return f"{number} {several(number, noun)}"
