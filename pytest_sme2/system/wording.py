"""Words: counted nouns, and what a command line or a file says (a choice, or a list)."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from pytest_sme2.errors import UsageError


def several(number: int, noun: str) -> str:
    """``noun`` as it stands after ``number``: ``operator``, ``operators``, ``processes``."""
    if number == 1:
        return noun
    return f"{noun}es" if noun.endswith("s") else f"{noun}s"


def count(number: int, noun: str) -> str:
    """``1 operator``, ``3 operators``."""
    return f"{number} {several(number, noun)}"


def fewer(ratio: float | None) -> str:
    """Of counts, before over after: ``8.38x fewer``, ``as many``, ``1.20x more``."""
    if not ratio:
        return "-"
    change, word = (ratio, "fewer") if ratio > 1 else (1 / ratio, "more")
    text = f"{change:.2f}x"
    return "as many" if text == "1.00x" else f"{text} {word}"


def some_of(names: Sequence[str], most: int) -> str:
    """The first of them, and how many more there are: ``a, b and 3 more``."""
    left = len(names) - most
    return ", ".join(names[:most]) + (f" and {left} more" if left > 0 else "")


def one_of(value: str, choices: Iterable[str], what: str) -> str:
    """``value`` if it is one of ``choices``, else an error that lists them."""
    choices = tuple(choices)
    if value not in choices:
        raise UsageError(f"{value!r} is not {what}. Choose one of: {', '.join(choices)}.")
    return value


def split_list(value: str) -> tuple[str, ...]:
    """The words of a comma-separated list, in order, without empty words and repetitions."""
    words = (part.strip() for part in value.split(","))
    return tuple(dict.fromkeys(word for word in words if word))


def as_given(limit: float) -> str:
    """A limit in percent with all its digits: ``0.01`` must not become ``0.0``."""
    return f"{limit * 100:.12g}"
