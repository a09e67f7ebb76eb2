from typing import Any

import pytest

from pytest_sme2.plugin.scheduling import in_order, scope_of, scopes

CASES = ["toy-fp16", "toy-fp16-t2", "a[b]-fp32@256", "toy"]


@pytest.mark.parametrize(
    ("nodeid", "scope"),
    [
        ("t.py::test[toy-fp16]", "toy-fp16"),
        ("t.py::test[toy-fp16-t2]", "toy-fp16-t2"),
        ("t.py::test[toy-fp16-3]", "toy-fp16"),
        ("t.py::test[3-toy-fp16]", "toy-fp16"),
        ("t.py::test[a[b]-fp32@256]", "a[b]-fp32@256"),
        ("t.py::test[nottoy-fp16]", "t.py::test[nottoy-fp16]"),
        ("t.py::test", "t.py::test"),
    ],
)
def test_a_test_belongs_to_the_case_in_its_brackets(nodeid: str, scope: str) -> None:
    assert scope_of(nodeid, CASES) == scope


A, B = "toy-fp16", "toy-fp32"
TESTS = (
    f"one.py::test_a[{A}]",
    f"one.py::test_a[{B}]",
    f"two.py::TestX::test_b[{A}]@g",
    "two.py::TestX::test_c@g",
    "two.py::test_d",
    "three.py::test_e",
)


@pytest.mark.parametrize(
    ("mode", "groups"),
    [
        ("load", [{0, 2}, {1}, {3}, {4}, {5}]),
        ("worksteal", [{0, 2}, {1}, {3}, {4}, {5}]),
        ("loadgroup", [{0, 2}, {1}, {3}, {4}, {5}]),
        ("loadfile", [{0, 2}, {1}, {3, 4}, {5}]),
        ("loadscope", [{0, 2}, {1}, {3}, {4}, {5}]),
    ],
)
def test_a_case_stays_together_and_other_tests_as_their_mode_says(
    mode: str, groups: list[set[int]]
) -> None:
    found: dict[str, set[int]] = {}
    for number, scope in enumerate(scopes(TESTS, [A, B], mode).values()):
        found.setdefault(scope, set()).add(number)
    assert sorted(found.values(), key=min) == groups


def test_ten_thousand_tests_are_dealt_out_at_once() -> None:
    tests = [f"t{number % 100}.py::test_{number}[toy-{number % 200}]" for number in range(10_000)]
    cases = [f"toy-{number}" for number in range(200)]
    assert set(scopes(tests, cases, "load").values()) == set(cases)


def test_each_worker_begins_with_a_short_case_and_goes_on_with_the_longest() -> None:
    weights = {"a": 5, "b": 900, "c": 40, "d": 7, "e": 300}
    units: dict[str, Any] = {name: {} for name in (*weights, "no case")}
    assert [name for name, _ in in_order(units, weights, 2)] == ["no case", "a", "b", "e", "c", "d"]
