"""The changes that mutation testing makes, and that each of them is really made."""

from __future__ import annotations

import ast

import pytest

from benchmarks.mutants import Mutant, mutants, mutate
from benchmarks.mutation import NAMES_ARE_DATA, ROOT, TARGETS, explanations


def changes(source: str, *, wording: bool = False) -> list[str]:
    """The module after each of its changes."""
    return [
        ast.unparse(mutate(source, mutant, wording=wording))
        for mutant in mutants("m.py", source, wording=wording)
    ]


@pytest.mark.parametrize(
    ("source", "expected"),
    [
        ("x = a < b", ["x = a <= b"]),
        ("x = a is None", ["x = a is not None"]),
        ("x = a in b", ["x = a not in b"]),
        ("x = a and b", ["x = a or b"]),
        ("x = a + b", ["x = a - b"]),
        ("x += a", ["x -= a"]),
        ("x = not a", ["x = a"]),
        ("x = min(a)", ["x = max(a)"]),
        ("x = 1", ["x = 2"]),
        ("x = 0.5", ["x = 1.0"]),
        ("x = 0.0", ["x = 1.0"]),
        ("x = True", ["x = False"]),
        ("x = 'a'", ["x = 'XXa'"]),
        ("x = b'a'", ["x = b'XXa'"]),
        ("x = [a for a in b if c]", ["x = [a for a in b]"]),
        ("x = a if b else c", ["x = a if False else c"]),
        ("if a:\n    b", ["if False:\n    b"]),
        ("act(a)", ["pass"]),
        ("raise a", ["pass"]),
        ("for a in b:\n    break", ["for a in b:\n    continue"]),
        ("def f():\n    return a", ["def f():\n    return None"]),
        ("x = a[1:]", ["x = a[2:]"]),
    ],
)
def test_one_change_at_a_time(source: str, expected: list[str]) -> None:
    assert changes(source) == expected


@pytest.mark.parametrize(
    "source",
    [
        '"""A docstring."""',
        "x: int",
        "def f(a: 'b') -> 'c':\n    return None",
        "x = 'a message'",
        "x = f'{a:.1f} of it'",
        "__all__ = ['a']",
        "from a import b",
        "@cache(1)\ndef f():\n    return None",
        "x = a < b < c",
    ],
)
def test_what_is_left_alone(source: str) -> None:
    assert changes(source) == []


def test_text_is_data_where_it_is_said_to_be() -> None:
    assert changes("x = 'Fully Connected'", wording=True) == ["x = 'XXFully Connected'"]


def test_where_a_change_is() -> None:
    source = (
        "class A:\n    def f(self):\n        if (a\n                < b):\n            return 1\n"
    )
    found = {mutant.rule: mutant for mutant in mutants("m.py", source, wording=False)}
    assert found["comparison"].function == "A.f"
    assert (found["comparison"].line, found["comparison"].text) == (3, "if (a")
    # The head of the statement, without the lines of its body.
    assert found["comparison"].statement == (3, 4)
    assert found["constant"].statement == (5, 5)
    assert found["nothing returned"].before == "return 1"


@pytest.mark.parametrize("module", TARGETS)
def test_every_mutant_of_the_real_modules_differs_and_compiles(module: str) -> None:
    source = (ROOT / module).read_text(encoding="utf-8")
    wording = module in NAMES_ARE_DATA
    found = mutants(module, source, wording=wording)
    assert len(found) > 20
    unchanged = ast.unparse(ast.parse(source))
    for mutant in found[:: max(1, len(found) // 5)]:
        changed = mutate(source, mutant, wording=wording)
        assert ast.unparse(changed) != unchanged
        compile(changed, module, "exec")
    for path in TARGETS[module]:
        assert (ROOT / path).is_file()


def test_every_explanation_is_of_a_mutant_that_there_is() -> None:
    known: set[tuple[str, ...]] = set()
    for module in TARGETS:
        source = (ROOT / module).read_text(encoding="utf-8")
        found: list[Mutant] = mutants(module, source, wording=module in NAMES_ARE_DATA)
        known |= {mutant.key for mutant in found}
    for key, reason in explanations().items():
        assert key in known, key
        assert len(reason) > 20
