"""What is being done right now, in a line of its own now and then beside pytest's own output; and
how pytest-xdist deals out tests: all tests of one case are one group, whatever ``--dist`` is.

Its runs are then made once, and never compete with each other for a folder or for the machine.
"""

from __future__ import annotations

import functools
import re
import sys
import time
from collections.abc import Callable, Iterable
from typing import Any

import pytest
from xdist.scheduler import LoadGroupScheduling, LoadScopeScheduling

from pytest_sme2.errors import plain


def case_in(nodeid: str, cases: Iterable[str]) -> str | None:
    """The case a test is about, by the id in its brackets; None if it is of no case."""
    _, bracket, parameters = nodeid.partition("[")
    found = bracket and _pattern(tuple(cases)).search(parameters[: parameters.rfind("]") + 1])
    return found[1] if found else None


@functools.lru_cache(maxsize=1)
def _pattern(cases: tuple[str, ...]) -> re.Pattern[str]:
    # The longest first: toy-fp16-t2 is not toy-fp16.
    names = "|".join(map(re.escape, sorted(cases, key=len, reverse=True)))
    return re.compile(rf"(?:^|-)({names})(?:-|\]$)")


class CaseScheduling(LoadGroupScheduling):  # type: ignore[misc]
    """``--dist loadgroup`` with a group for each case; other tests stay as the mode says."""

    def __init__(self, config: Any, log: Any, cases: Iterable[str], other: object) -> None:
        """``other`` deals out tests where this plugin is not."""
        super().__init__(config, log)
        self._cases = tuple(cases)
        self._others: Any = other if isinstance(other, LoadScopeScheduling) else super()

    def _split_scope(self, nodeid: str) -> str:
        return case_in(nodeid, self._cases) or str(self._others._split_scope(nodeid))

    def remove_node(self, node: Any) -> str | None:
        """A test that ended its worker is not run again: it would end the next one, too."""
        units = self.assigned_work[node]
        left = (nodeid for unit in units.values() for nodeid, done in unit.items() if not done)
        crashed: str | None = next(left, None)
        for name, unit in list(units.items()):
            if crashed in unit:
                unit[crashed] = True
            # Whoever were given what is done would wait for ever for its next test.
            if all(unit.values()):
                del units[name]
        super().remove_node(node)
        return crashed

    def _reschedule(self, node: Any) -> None:
        # One that replaces a lost worker has not collected yet; it asks again when it has.
        if node in self.registered_collections:
            super()._reschedule(node)


EVERY_SECONDS = 15.0
"""How often a line is written."""


def progress_of(config: pytest.Config) -> Callable[[str], None]:
    """Where the run says what it is doing, in lines of their own; nowhere with ``-q``.

    A worker of pytest-xdist writes to the standard error that it shares with who started it.
    """
    reporter = config.pluginmanager.getplugin("terminalreporter")
    capture = config.pluginmanager.getplugin("capturemanager")
    worker = str(getattr(config, "workerinput", {}).get("workerid", ""))
    if capture is None or config.get_verbosity() < 0 or not (reporter or worker):
        return lambda line: None
    writer = config.get_terminal_writer() if reporter else None
    told = time.monotonic()

    def say(line: str) -> None:
        nonlocal told
        if (now := time.monotonic()) - told < EVERY_SECONDS:
            return
        told = now
        text = ": ".join(filter(None, ("sme2", worker, plain(line).replace("\n", " "))))
        with capture.global_and_fixture_disabled():
            stream = sys.stderr if worker else sys.stdout
            if stream is not None:
                # Before the line of a worker the dots of all may stand.
                apart = "\n" if writer is None or writer.width_of_current_line else ""
                stream.write(f"{apart}{text}\n")
                stream.flush()

    return say
