"""How pytest-xdist deals out tests: all tests of one case go to one worker.

Its runs are then made once, and never compete with each other for a folder or for the machine.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Any

from xdist.scheduler import LoadScopeScheduling


def scope_of(nodeid: str, cases: Iterable[str]) -> str:
    """The case a test is about, by the id in its brackets; a test of no case stands alone."""
    _, bracket, parameters = nodeid.partition("[")
    if bracket:
        # The longest first: toy-fp16-t2 is not toy-fp16.
        for case in sorted(cases, key=len, reverse=True):
            if re.search(rf"(?:^|-){re.escape(case)}(?:-|\]$)", parameters):
                return case
    return nodeid


class CaseScheduling(LoadScopeScheduling):  # type: ignore[misc]
    """One unit of work a case."""

    def __init__(self, config: Any, log: Any, cases: Iterable[str]) -> None:
        super().__init__(config, log)
        self._cases = tuple(cases)

    def _split_scope(self, nodeid: str) -> str:
        return scope_of(nodeid, self._cases)
