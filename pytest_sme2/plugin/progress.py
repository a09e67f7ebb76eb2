"""What is being done right now, beside pytest's own output and never in it.

On a terminal it is one line below pytest's, which is taken away before pytest writes again. In a
log it is a line of its own every 30 seconds. A worker of pytest-xdist has no terminal: it writes
such lines to the standard error that it shares with the process that started it.
"""

from __future__ import annotations

import io
import os
import statistics
import sys
import threading
import time
from collections import Counter
from collections.abc import Callable, Generator, Iterable, Mapping
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from typing import TextIO

import pytest

from pytest_sme2.errors import plain
from pytest_sme2.plugin.scheduling import scope_of
from pytest_sme2.system.wording import count

EVERY_SECONDS = 30.0
_WAKE_SECONDS = 1.0
# An estimate from less than this part of the work, or this long, is off by a multiple.
ENOUGH_SHARE, ENOUGH_SECONDS = 0.1, 120.0


class HowFar:
    """How many cases of a run are done, and about how long the others take."""

    def __init__(
        self,
        tests: Iterable[str],
        weights: Mapping[str, int],
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """``weights`` compares how long the cases take.

        Where most tests are of no case, as in a project's own, all of them count instead, and
        nothing is known of how long they take.
        """
        all_tests = {test: scope_of(test, weights) for test in tests}
        of_cases = {test: case for test, case in all_tests.items() if case in weights}
        known = [weight for weight in weights.values() if weight]
        usual = statistics.median(known) if known else 1.0
        self._by_case = len(of_cases) * 2 > len(all_tests)
        self._noun = "case" if self._by_case else "test"
        self._case_of = of_cases if self._by_case else {test: test for test in all_tests}
        self._left = Counter(self._case_of.values())
        self._weights = {case: weights.get(case) or usual for case in self._left}
        self._whole = sum(self._weights.values())
        self._done, self._done_weight = 0, 0.0
        self._clock = clock
        self._begun = clock()

    def finished(self, test: str) -> None:
        case = self._case_of.get(test)
        if case is None:
            return
        self._left[case] -= 1
        # A test that is run again ends more than once.
        if self._left[case] == 0:
            self._done += 1
            self._done_weight += self._weights[case]

    def __str__(self) -> str:
        said = f"{self._done} of {count(len(self._left), self._noun)} done"
        if not self._by_case or self._done in (0, len(self._left)):
            return said
        elapsed = self._clock() - self._begun
        if self._done_weight < ENOUGH_SHARE * self._whole and elapsed < ENOUGH_SECONDS:
            return said
        seconds = elapsed * (self._whole - self._done_weight) / self._done_weight
        about = f"{seconds:.0f} s" if seconds < 60 else f"{seconds / 60:.0f} min"
        return f"{said}, about {about} left"


class Progress:
    """Prints nothing, for --quiet."""

    def say(self, line: str) -> None:
        """What is being done from now on."""

    def clear(self) -> None:
        """Make room: pytest is about to write."""

    def rest(self) -> None:
        """What was said is done, and nothing else has begun."""
        self.clear()

    def stop(self) -> None:
        """The run is over."""
        self.clear()


@dataclass(eq=False)
class TerminalProgress(Progress):
    """One line below pytest's, which stays as it is: the cursor goes back to where it was."""

    stream: TextIO
    column: Callable[[], int]
    """Where pytest's cursor is."""
    width: int
    done: Callable[[], str]
    uncaptured: Callable[[], AbstractContextManager[None]] = nullcontext
    shown: bool = False

    def say(self, line: str) -> None:
        start = "\r\x1b[K" if self.shown or not self.column() else "\n\x1b[K"
        with self.uncaptured():
            said = f"{self.done()}: {plain(line)}".replace("\n", " ")
            self.stream.write(start + said[: self.width - 1])
            self.stream.flush()
        self.shown = True

    def clear(self) -> None:
        if not self.shown:
            return
        column = self.column()
        back = f"\x1b[1A\x1b[{column}C" if column else ""
        self.stream.write(f"\r\x1b[K{back}")
        self.stream.flush()
        self.shown = False


@dataclass(eq=False)
class LogProgress(Progress):
    """A line now and then: what is being done, for how long, and how far the run is."""

    stream: TextIO
    """Its own: it closes it."""
    column: Callable[[], int]
    done: Callable[[], str]
    clock: Callable[[], float] = time.monotonic
    line: str = ""
    ours: bool = False
    """Whether the last thing written was ours: then pytest's line is broken already."""
    thread: threading.Thread | None = None

    def __post_init__(self) -> None:
        self.lock, self.over = threading.Lock(), threading.Event()
        self.since = self.told = self.clock()

    def say(self, line: str) -> None:
        with self.lock:
            self.line, self.since = plain(line).replace("\n", " "), self.clock()
        self.tick()
        if self.thread is None:
            # What takes long says nothing meanwhile, so somebody has to look at the clock.
            self.thread = threading.Thread(target=self._watch, daemon=True)
            self.thread.start()

    def clear(self) -> None:
        with self.lock:
            self.ours = False

    def rest(self) -> None:
        with self.lock:
            self.ours, self.line = False, ""

    def stop(self) -> None:
        self.over.set()
        with self.lock:
            self.line = ""
            self.stream.close()

    def tick(self) -> None:
        """Say it if it is time to."""
        with self.lock:
            now = self.clock()
            if not self.line or now - self.told < EVERY_SECONDS:
                return
            self.told = now
            apart = "" if self.ours or not self.column() else "\n"
            # Some say themselves how long they have been at it.
            told = now - self.since < 1 or self.line.endswith(" s)")
            took = "" if told else f" ({now - self.since:.0f} s)"
            self.stream.write(f"{apart}sme2: {self.done()}: {self.line}{took}\n")
            self.stream.flush()
            self.ours = True

    def _watch(self) -> None:
        while not self.over.wait(_WAKE_SECONDS):
            self.tick()


class Hooks:
    """Keeps the progress and pytest's own output apart, and counts what is done."""

    def __init__(self, config: pytest.Config, weights: Callable[[], Mapping[str, int]]) -> None:
        self._weights = weights
        self._far: HowFar | None = None
        self._workers = ""
        """What the process says that only deals out tests to others."""
        self._progress = _progress(config, lambda: str(self._far or "collecting tests"))

    def say(self, line: str) -> None:
        self._progress.say(line)

    @pytest.hookimpl(tryfirst=True)
    def pytest_collection_finish(self, session: pytest.Session) -> None:
        self._progress.clear()
        self._far = HowFar((item.nodeid for item in session.items), self._weights())

    @pytest.hookimpl(optionalhook=True)
    def pytest_xdist_node_collection_finished(self, ids: list[str]) -> None:
        if self._far is None:
            self._far = HowFar(ids, self._weights())
            self._workers = "the workers run them"

    @pytest.hookimpl(tryfirst=True)
    def pytest_runtest_logstart(self) -> None:
        self._progress.clear()

    @pytest.hookimpl(wrapper=True, tryfirst=True)
    def pytest_runtest_logreport(
        self, report: pytest.TestReport
    ) -> Generator[None, object, object]:
        self._progress.clear()
        result = yield
        if report.when == "teardown" and self._far is not None:
            self._far.finished(report.nodeid)
            if self._workers:
                self._progress.say(self._workers)
        return result

    @pytest.hookimpl(tryfirst=True)
    def pytest_runtest_logfinish(self) -> None:
        if not self._workers:
            self._progress.rest()

    @pytest.hookimpl(tryfirst=True)
    def pytest_sessionfinish(self) -> None:
        self._progress.rest()

    def pytest_unconfigure(self) -> None:
        self._progress.stop()


def progress_of(
    config: pytest.Config, weights: Callable[[], Mapping[str, int]]
) -> Callable[[str], None]:
    """Where the run says what it is doing; nowhere with ``-q``."""
    hooks = Hooks(config, weights)
    config.pluginmanager.register(hooks, "sme2-progress")
    return hooks.say


def _progress(config: pytest.Config, how_far: Callable[[], str]) -> Progress:
    reporter = config.pluginmanager.getplugin("terminalreporter")
    capture = config.pluginmanager.getplugin("capturemanager")
    if capture is None or config.get_verbosity() < 0:
        return Progress()
    if hasattr(config, "workerinput"):
        worker = str(config.workerinput["workerid"])
        with capture.global_and_fixture_disabled():
            # The other workers' dots may stand before it on the line.
            return LogProgress(_past_capture(2), lambda: 1, lambda: worker)
    if reporter is None:
        return Progress()
    writer = config.get_terminal_writer()

    def column() -> int:
        return int(writer.width_of_current_line)

    uncaptured: Callable[[], AbstractContextManager[None]] = capture.global_and_fixture_disabled
    with uncaptured():
        stream = sys.stdout
        if stream is not None and stream.isatty():
            return TerminalProgress(stream, column, writer.fullwidth, how_far, uncaptured)
        return LogProgress(_past_capture(1), column, how_far)


def _past_capture(stream_number: int) -> TextIO:
    """A copy of a standard stream, which pytest redirects while a test runs."""
    try:
        descriptor = os.dup(stream_number)
    except OSError:
        return io.StringIO()
    return os.fdopen(descriptor, "w", encoding="utf-8", errors="backslashreplace")
