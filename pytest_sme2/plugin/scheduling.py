"""How pytest-xdist deals out tests: all tests of one case go to one worker, whatever ``--dist`` is.

Its runs are then made once, and never compete with each other for a folder or for the machine.
"""

from __future__ import annotations

import functools
import re
from collections import OrderedDict
from collections.abc import Callable, Iterable, Mapping
from typing import Any, TypeVar

from xdist.scheduler import LoadScopeScheduling

from pytest_sme2.session.cases import Case
from pytest_sme2.session.session import Session
from pytest_sme2.verdict.baselines import file_name

# The ways to deal out tests that keep some of them together; each says which.
_SCOPES: Mapping[str, Callable[[str], str]] = {
    "loadscope": lambda nodeid: nodeid.rsplit("::", 1)[0],
    "loadfile": lambda nodeid: nodeid.split("::", 1)[0],
    "loadgroup": lambda nodeid: _group(nodeid) or nodeid,
}
_Unit = TypeVar("_Unit")
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
    """For each test the name of those that it stays with: its case's, else its mode's."""
    known, of_mode = tuple(cases), _SCOPES.get(mode, str)
    of_case = {nodeid: scope_of(nodeid, known) for nodeid in nodeids}
    return {nodeid: of_mode(nodeid) if case == nodeid else case for nodeid, case in of_case.items()}


def weights_of(session: Session) -> dict[str, int]:
    """About how long each case of the run takes, compared with the others.

    The size of a baseline's file grows with the operators of the program. Without one, a case
    counts as short.
    """
    root = session.settings.baseline_folder

    def weight(case: Case) -> int:
        if case.problem is not None:
            return 0
        found = root.glob(f"*/{file_name(case.model, case.variant_name)}")
        return max((file.stat().st_size for file in found), default=0)

    return {case.id: weight(case) for case in session.cases()}


def in_order(
    units: Mapping[str, _Unit], weights: Mapping[str, int], workers: int
) -> list[tuple[str, _Unit]]:
    """A short one for each worker, so that something is soon to be seen; then the long ones first.

    A long one at the end would keep one worker busy while the others wait.
    """
    by_weight = sorted(units.items(), key=lambda unit: weights.get(unit[0], 0))
    return [*by_weight[:workers], *reversed(by_weight[workers:])]


class CaseScheduling(LoadScopeScheduling):  # type: ignore[misc]
    """One unit of work for each case; other tests are kept together as the chosen mode says."""

    def __init__(self, config: Any, log: Any, weights: Mapping[str, int]) -> None:
        """``weights`` says of each case about how long it takes, compared with the others."""
        super().__init__(config, log)
        self._cases = tuple(weights)
        self._weights = weights
        self._ordered = False
        self.workqueue: OrderedDict[str, dict[str, bool]]
        self._mode = str(config.getvalue("dist"))
        self._scopes: Mapping[str, str] | None = None

    def remove_node(self, node: Any) -> str | None:
        """A test that ended its worker is not run again: it would end the next one, too."""
        units = self.assigned_work[node].values()
        left = (nodeid for unit in units for nodeid, done in unit.items() if not done)
        crashed: str | None = next(left, None)
        for unit in units:
            if crashed in unit:
                unit[crashed] = True
        super().remove_node(node)
        return crashed

    def _assign_work_unit(self, node: Any) -> None:
        if not self._ordered:
            self._ordered = True
            units = in_order(self.workqueue, self._weights, len(self.nodes))
            self.workqueue = OrderedDict(units)
        super()._assign_work_unit(node)

    def _split_scope(self, nodeid: str) -> str:
        if self._scopes is None:
            self._scopes = scopes(self.collection, self._cases, self._mode)
        return self._scopes[nodeid]
