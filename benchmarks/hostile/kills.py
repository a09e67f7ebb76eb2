"""kill -9 at random moments, of any process of a command, some in a row; then the command again.

Clean: no process is left, no lock held, old or new files and no halves of them, and the command
works the next time as if nothing had happened.
"""

from __future__ import annotations

import contextlib
import functools
import os
import shutil
import signal
import subprocess
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from random import Random

from benchmarks.hostile.stage import Stage, make_stage, merging
from benchmarks.trials import Attempt, Subject, ending_of, expect
from pytest_sme2.system.processes import descendants

KILLS = 5
"""Of each trial, in a row, so that one also meets what the one before it left."""


def _strike(
    chance: Random, stage: Stage, command: list[str], seconds: float, check: Callable[[], None]
) -> None:
    """Start the command again and again, and kill one of its processes at some moment."""
    struck = 0
    while struck < KILLS:
        moment, whom = chance.random(), chance.random()
        process = stage.start(command)
        with contextlib.suppress(subprocess.TimeoutExpired):
            process.wait(moment * seconds)
        below = descendants(process.pid)
        # The main one half of the time: it is the one whose death nobody is left to handle.
        victim = process.pid if whom < 0.5 or not below else below[int(whom * 1e6) % len(below)]
        # A command that was quicker than usual is over by now, and does not count.
        struck += process.poll() is None
        with contextlib.suppress(ProcessLookupError):
            os.kill(victim, signal.SIGKILL)
        ending = ending_of(process)
        if victim != process.pid:
            ending.expect_plain()
            expect(ending.code in (0, 1, 2, 3), f"ended with {ending.code}:\n{ending.said[-2000:]}")
        stage.check_whole()
        check()


def killed(words: Callable[[Stage], list[str]], missing: str = "") -> Attempt:
    """A command; what it makes itself, a part of the cache or what it merges, is ``missing``."""

    def make(folder: Path) -> Stage:
        return make_stage(folder, exports=missing != "exports", runners=missing != "runners")

    @functools.cache
    def seconds() -> float:
        with tempfile.TemporaryDirectory(prefix="hostile-") as folder:
            stage = make(Path(folder))
            return _seconds(stage, words(stage))

    def attempt(chance: Random, folder: Path) -> None:
        stage = make(folder)

        command = words(stage)

        def forget() -> None:
            if missing:
                shutil.rmtree(folder / "cache" / missing, ignore_errors=True)
                shutil.rmtree(folder / missing, ignore_errors=True)

        _strike(chance, stage, command, seconds(), forget)
        stage.run(command).expect(0)
        stage.check_whole()
        stage.check_no_leftovers()

    return attempt


def _seconds(stage: Stage, command: list[str]) -> float:
    """How long a command takes when nothing disturbs it, to place a kill inside of it."""
    started = time.monotonic()
    stage.run(command).expect(0)
    return time.monotonic() - started


export = killed(Stage.export, missing="exports")
build = killed(Stage.measure, missing="runners")
measure = killed(lambda stage: stage.measure("emulated"))
update = killed(Stage.update)
merge = killed(merging, missing="out")

SUBJECTS = (
    Subject("kill-export", f"{KILLS} times kill -9 during an export", 40, export),
    Subject("kill-build", f"{KILLS} times kill -9 while the runner is built", 2, build),
    Subject("kill-measure", f"{KILLS} times kill -9 on the emulator", 40, measure),
    Subject("kill-update", f"{KILLS} times kill -9 during --update-baselines", 40, update),
    Subject("kill-merge", f"{KILLS} times kill -9 during a merge into a history", 40, merge),
)
