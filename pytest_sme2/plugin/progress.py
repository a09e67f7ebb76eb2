"""What is being done right now, beside pytest's own output and never in it.

On a terminal it is one line below pytest's, which is taken away before pytest writes again. In a
log it is a line of its own now and then. A worker of pytest-xdist has no terminal: it writes such
lines to the standard error that it shares with the process that started it.

How pytest-xdist deals out tests: all tests of one case are one group, whatever ``--dist`` is.

Its runs are then made once, and never compete with each other for a folder or for the machine.
"""

from __future__ import annotations

import functools
import os
import re
import sys
import threading
import time
from collections import Counter
from collections.abc import Callable, Generator, Iterable
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field
from typing import Any, TextIO

import pytest
from xdist.scheduler import LoadGroupScheduling, LoadScopeScheduling

from pytest_sme2.errors import plain
from pytest_sme2.session.session import Session
from pytest_sme2.system.wording import count


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


def useful_workers(session: Session, most: int) -> int:
    """How many workers end sooner than one process; 0 for none.

    Each starts for itself, so that they pay for exports, and else only for several cases on a
    machine that has nothing else to do.
    """
    if session.bench.chosen.capabilities().timing:
        return 0
    cases = [case for case in session.cases() if case.problem is None]
    missing = {case.id for case in cases if not session.is_exported(case)}
    if not missing and os.getloadavg()[0] >= (os.cpu_count() or 1):
        return 0
    workers = min(most, len(missing or cases))
    return workers if workers > 1 else 0


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
"""How often a log is told."""
# An estimate from less than this part of the work, or this long, is off by a multiple.
_ENOUGH_SHARE, _ENOUGH_SECONDS = 0.1, 120.0


class Remaining:
    """How many cases of a run are done, and about how long the others take.

    Where most tests are of no case, as in a project's own, all of them count instead, and nothing
    is known of how long they take.
    """

    def __init__(
        self,
        tests: Iterable[str],
        cases: Iterable[str],
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        known = tuple(cases)
        of_cases = {test: case_in(test, known) for test in tests}
        self._by_case = sum(case is not None for case in of_cases.values()) * 2 > len(of_cases)
        self._case_of = of_cases if self._by_case else {test: test for test in of_cases}
        self._left = Counter(case for case in self._case_of.values() if case is not None)
        self._done, self._total = 0, len(self._left)
        self._clock, self._begun = clock, clock()

    def finished(self, test: str) -> None:
        case = self._case_of.get(test)
        if case is not None:
            self._left[case] -= 1
            # A test that is run again ends more than once.
            self._done += self._left[case] == 0

    def __str__(self) -> str:
        done, elapsed = self._done, self._clock() - self._begun
        said = f"{done} of {count(self._total, 'case' if self._by_case else 'test')} done"
        soon = done < _ENOUGH_SHARE * self._total and elapsed < _ENOUGH_SECONDS
        if not self._by_case or soon or done in (0, self._total):
            return said
        seconds = elapsed * (self._total - done) / done
        about = f"{seconds:.0f} s" if seconds < 60 else f"{seconds / 60:.0f} min"
        return f"{said}, about {about} left"


@dataclass(eq=False)
class Progress:
    """Where it is told: on a terminal at once, in a log now and then."""

    stream: TextIO
    column: Callable[[], int]
    """Where pytest's cursor is."""
    width: int | None
    """Of the terminal; None for a log."""
    uncaptured: Callable[[], AbstractContextManager[None]] = nullcontext
    clock: Callable[[], float] = time.monotonic
    shown: bool = False
    """Whether the last line is ours."""
    lock: threading.RLock = field(default_factory=threading.RLock)

    def __post_init__(self) -> None:
        self.told = self.clock()

    def say(self, line: str) -> None:
        with self.lock:
            now, said = self.clock(), plain(line).replace("\n", " ")
            apart = "" if self.shown or not self.column() else "\n"
            if self.width is not None:
                self._write(f"{apart or chr(13)}\x1b[K{said[: self.width - 1]}")
            elif now - self.told >= EVERY_SECONDS:
                self.told = now
                self._write(f"{apart}sme2: {said}\n")

    def _write(self, text: str) -> None:
        with self.uncaptured():
            self.stream.write(text)
            self.stream.flush()
        self.shown = True

    def clear(self) -> None:
        """Make room: pytest is about to write."""
        with self.lock:
            if self.shown and self.width is not None:
                # pytest's line stays as it is: the cursor goes back to where it was.
                column = self.column()
                self.stream.write("\r\x1b[K" + (f"\x1b[1A\x1b[{column}C" if column else ""))
                self.stream.flush()
            self.shown = False


class Hooks:
    """Keeps the progress and pytest's own output apart, and counts what is done."""

    def __init__(self, progress: Progress, worker: str, cases: Callable[[], list[str]]) -> None:
        self._progress, self._worker, self._cases = progress, worker, cases
        self._far: Remaining | None = None
        self._deals = False
        """Whether workers run the tests, and this process only deals them out."""

    def say(self, line: str) -> None:
        self._progress.say(f"{self._worker or self._far or 'collecting tests'}: {line}")

    @pytest.hookimpl(tryfirst=True)
    def pytest_collection_finish(self, session: pytest.Session) -> None:
        self._progress.clear()
        self._far = Remaining((item.nodeid for item in session.items), self._cases())

    @pytest.hookimpl(optionalhook=True)
    def pytest_xdist_node_collection_finished(self, ids: list[str]) -> None:
        if not self._deals:
            self._far, self._deals = Remaining(ids, self._cases()), True

    @pytest.hookimpl(wrapper=True, tryfirst=True)
    def pytest_runtest_logreport(
        self, report: pytest.TestReport
    ) -> Generator[None, object, object]:
        self._progress.clear()
        result = yield
        if report.when == "teardown" and self._far is not None:
            self._far.finished(report.nodeid)
            if self._deals:
                self.say("the workers run them")
        return result

    @pytest.hookimpl(tryfirst=True)
    def pytest_runtest_logstart(self) -> None:
        self._progress.clear()

    @pytest.hookimpl(tryfirst=True)
    def pytest_runtest_logfinish(self) -> None:
        if not self._deals:
            self._progress.clear()

    @pytest.hookimpl(tryfirst=True)
    def pytest_sessionfinish(self) -> None:
        self._progress.clear()

    def pytest_unconfigure(self) -> None:
        self._progress.clear()


def progress_of(config: pytest.Config, cases: Callable[[], list[str]]) -> Callable[[str], None]:
    """Where the run says what it is doing; nowhere with ``-q``."""
    reporter = config.pluginmanager.getplugin("terminalreporter")
    capture = config.pluginmanager.getplugin("capturemanager")
    worker = str(getattr(config, "workerinput", {}).get("workerid", ""))
    if capture is None or config.get_verbosity() < 0 or not (reporter or worker):
        return lambda line: None
    uncaptured = capture.global_and_fixture_disabled
    writer = config.get_terminal_writer() if reporter else None
    with uncaptured():
        stream = sys.stderr if worker else sys.stdout
        if stream is None:
            return lambda line: None
        width = writer.fullwidth if writer is not None and stream.isatty() else None
    # Before the line of a worker the dots of all may stand.
    progress = Progress(
        stream, lambda: writer.width_of_current_line if writer else 1, width, uncaptured
    )
    hooks = Hooks(progress, worker, cases)
    config.pluginmanager.register(hooks, "sme2-progress")
    return hooks.say
