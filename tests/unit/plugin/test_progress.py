"""What a run says of itself while it goes on, and how its tests are dealt out."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest
from xdist.scheduler import LoadFileScheduling, LoadScheduling, LoadScopeScheduling

from pytest_sme2.plugin.progress import CaseScheduling, case_in

NAMES = ["toy-fp16", "toy-fp16-t2", "a[b]-fp32@256", "toy"]


@pytest.mark.parametrize(
    ("nodeid", "case"),
    [
        ("t.py::test[toy-fp16]", "toy-fp16"),
        ("t.py::test[toy-fp16-t2]", "toy-fp16-t2"),
        ("t.py::test[toy-fp16-3]", "toy-fp16"),
        ("t.py::test[3-toy-fp16]", "toy-fp16"),
        ("t.py::test[a[b]-fp32@256]", "a[b]-fp32@256"),
        ("t.py::test[toy-fp16]@g", "toy-fp16"),
        ("t.py::test[nottoy-fp16]", None),
        ("t.py::test", None),
    ],
)
def test_a_test_belongs_to_the_case_in_its_brackets(nodeid: str, case: str | None) -> None:
    assert case_in(nodeid, NAMES) == case


class Worker:
    """What the scheduler sees of a worker: what it was told to run."""

    shutting_down = False

    def __init__(self) -> None:
        self.gateway = SimpleNamespace(id="gw")
        self.told: list[int] = []

    def send_runtest_some(self, indices: list[int]) -> None:
        self.told += indices

    def shutdown(self) -> None:
        self.shutting_down = True


class Config:
    option = SimpleNamespace(loadscopereorder=True)

    def getvalue(self, name: str) -> Any:
        return {"tx": ["2*popen"], "px": []}.get(name)

    getoption = getvalue


def scheduling(kind: type = LoadScheduling) -> CaseScheduling:
    config = Config()
    return CaseScheduling(config, None, ["toy-fp16", "toy-fp32"], kind(config))


TESTS = (
    "one.py::test_a[toy-fp16]",
    "one.py::test_a[toy-fp32]",
    "two.py::TestX::test_b[toy-fp16]@g",
    "two.py::TestX::test_c@g",
    "two.py::test_d",
    "three.py::test_e",
)


@pytest.mark.parametrize(
    ("kind", "groups"),
    [
        (LoadScheduling, [{0, 2}, {1}, {3}, {4}, {5}]),
        (LoadFileScheduling, [{0, 2}, {1}, {3, 4}, {5}]),
        (LoadScopeScheduling, [{0, 2}, {1}, {3}, {4}, {5}]),
    ],
)
def test_a_case_stays_together_and_other_tests_as_their_mode_says(
    kind: type, groups: list[set[int]]
) -> None:
    found: dict[str, set[int]] = {}
    dealt = scheduling(kind)
    for number, test in enumerate(TESTS):
        found.setdefault(dealt._split_scope(test), set()).add(number)
    assert sorted(found.values(), key=min) == groups


def test_a_test_that_ends_its_worker_is_not_run_again_and_a_new_worker_collects_first() -> None:
    dealt, workers = scheduling(), [Worker(), Worker()]
    tests = [f"t.py::test_{name}[toy-{case}]" for case in ("fp16", "fp32") for name in "abc"]
    for worker in workers:
        dealt.add_node(worker)
        dealt.add_node_collection(worker, tests)
    dealt.schedule()
    assert [worker.told for worker in workers] == [[0, 1, 2], [3, 4, 5]]
    dealt.mark_test_complete(workers[0], 0)
    dealt.mark_test_complete(workers[1], 3)
    new = Worker()
    dealt.add_node(new)
    # The second is lost while the first's replacement still collects.
    assert dealt.remove_node(workers[0]) == tests[1]
    assert dealt.remove_node(workers[1]) == tests[4]
    assert new.told == []
    dealt.add_node_collection(new, tests)
    dealt.schedule()
    dealt.schedule()
    assert sorted(new.told) == [2, 5]
