import pytest

from pytest_sme2.plugin.scheduling import scope_of

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
