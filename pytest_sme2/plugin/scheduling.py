"""How pytest-xdist deals out tests: all tests of one case go to one worker, whatever ``--dist`` is.

Its runs are then made once, and never compete with each other for a folder or for the machine.
"""

from __future__ import annotations

import functools
import re
from collections.abc import Callable, Iterable, Mapping
from typing import Any

from xdist.scheduler import LoadScopeScheduling

# The ways to deal out tests that keep some of them together; each says which.
_SCOPES: Mapping[str, Callable[[str], str]] = {
    "loadscope": lambda nodeid: nodeid.rsplit("::", 1)[0],
    "loadfile": lambda nodeid: nodeid.split("::", 1)[0],
    "loadgroup": lambda nodeid: _group(nodeid) or nodeid,
}
MODES = ("load", "worksteal", *_SCOPES)


def _group(nodeid: str) -> str:
    """What ``@pytest.mark.xdist_group`` put after the last bracket, if anything."""
    return nodeid.rpartition("@")[2] if nodeid.rfind("@") > nodeid.rfind("]") else ""


def scope_of(nodeid: str, cases: Iterable[str]) -> str:
    """The case a test is about, by the id in its brackets; a test of no case stands alone."""
    _, bracket, parameters = nodeid.partition("[")
    if bracket:
        found = _pattern(tuple(cases)).search(parameters[: parameters.rfind("]") + 1])
        if found is not None:
            return found[1]
    return nodeid


@functools.lru_cache(maxsize=1)
def _pattern(cases: tuple[str, ...]) -> re.Pattern[str]:
    # The longest first: toy-fp16-t2 is not toy-fp16.
    names = "|".join(map(re.escape, sorted(cases, key=len, reverse=True)))
    return re.compile(rf"(?:^|-)({names})(?:-|\]$)")


def scopes(nodeids: Iterable[str], cases: Iterable[str], mode: str) -> Mapping[str, str]:
    """For each test the name of those that it stays with: its case's and its mode's, joined."""
    parent: dict[tuple[str, str], tuple[str, str]] = {}

    def root(member: tuple[str, str]) -> tuple[str, str]:
        while parent.setdefault(member, member) != member:
            parent[member] = member = parent[parent[member]]
        return member

    of_mode = _SCOPES.get(mode, str)
    known = tuple(cases)
    of_case = {nodeid: ("case", scope_of(nodeid, known)) for nodeid in nodeids}
    for nodeid, case in of_case.items():
        parent[root(("mode", of_mode(nodeid)))] = root(case)
    return {nodeid: root(case)[1] for nodeid, case in of_case.items()}


class CaseScheduling(LoadScopeScheduling):  # type: ignore[misc]
    """One unit of work for each case, or for several that the chosen mode keeps together."""

    def __init__(self, config: Any, log: Any, cases: Iterable[str]) -> None:
        super().__init__(config, log)
        self._cases = tuple(cases)
        self._mode = str(config.getvalue("dist"))
        self._scopes: Mapping[str, str] | None = None

    def _split_scope(self, nodeid: str) -> str:
        if self._scopes is None:
            self._scopes = scopes(self.collection, self._cases, self._mode)
        return self._scopes[nodeid]
