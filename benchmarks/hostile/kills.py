"""kill -9 at random moments, of any process of a command; then the same command again.

Clean: no process is left, no lock held, old or new files and no halves of them, and the command
works the next time as if nothing had happened.
"""

from __future__ import annotations

import contextlib
import functools
import os
import shutil
import signal
import tempfile
import time
from pathlib import Path
from random import Random

from benchmarks.hostile.stage import (
    DEVICE,
    Stage,
    Subject,
    descendants,
    expect,
    finish,
    make_stage,
    merging,
    usual_seconds,
)


def _strike(chance: Random, stage: Stage, command: list[str], seconds: float) -> None:
    """Start the command, and kill one of its processes at some moment."""
    moment, whom = chance.random(), chance.random()
    process = stage.start(command)
    with contextlib.suppress(TimeoutError):
        _sleep(moment * seconds, process.pid)
    below = descendants(process.pid)
    # The main one half of the time: it is the one whose death nobody is left to handle.
    victim = process.pid if whom < 0.5 or not below else below[int(whom * 1e6) % len(below)]
    with contextlib.suppress(ProcessLookupError):
        os.kill(victim, signal.SIGKILL)
    ending = finish(process)
    if victim != process.pid:
        ending.expect_plain()
        expect(ending.code in (0, 1, 2, 3), f"ended with {ending.code}:\n{ending.said[-2000:]}")


def _sleep(seconds: float, pid: int) -> None:
    """Until then, or until the process has ended."""
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline:
        if not Path(f"/proc/{pid}").exists():
            raise TimeoutError
        time.sleep(0.01)


def _again(stage: Stage, command: list[str]) -> None:
    stage.check_whole()
    stage.run(command).expect_success("the same command afterwards")
    stage.check_whole()
    stage.check_no_leftovers()


def export(chance: Random, folder: Path) -> None:
    stage = make_stage(folder, exports=False)
    _strike(chance, stage, stage.export(), usual_seconds("export"))
    _again(stage, stage.export())


def build(chance: Random, folder: Path) -> None:
    stage = make_stage(folder, runners=False)
    _strike(chance, stage, stage.measure(), usual_seconds("build"))
    _again(stage, stage.measure())


def measure(chance: Random, folder: Path) -> None:
    stage = make_stage(folder)
    command = stage.measure("emulated" if DEVICE == "linux" else DEVICE)
    _strike(chance, stage, command, usual_seconds("measure"))
    _again(stage, command)


def update(chance: Random, folder: Path) -> None:
    """An update over an old baseline, which must still be there, or the new one."""
    stage = make_stage(folder)
    started = time.monotonic()
    stage.run(stage.update()).expect_success("the first update")
    seconds = time.monotonic() - started
    (path,) = (stage.checkout / "baselines").glob("*/*.json")
    # Something that the next update changes, so that old and new differ.
    old = path.read_text().replace('"weights": "random', '"weights": "once random')
    path.write_text(old)
    _strike(chance, stage, stage.update(), seconds)
    whole = path.read_text() == old or '"weights": "random' in path.read_text()
    expect(whole, "the baseline is neither the old nor the new one")
    _again(stage, stage.update())
    expect('"weights": "random' in path.read_text(), "the baseline was not updated")


def merge(chance: Random, folder: Path) -> None:
    """Two parts of a run; the merged folder is there as a whole, or not at all."""
    stage, command = merging(folder)
    seconds, whole = _whole_merge()
    _strike(chance, stage, command, seconds)
    found = _names(stage.out) if stage.out.exists() else whole
    expect(found == whole, f"the merged folder is not whole: {sorted(whole - found)[:3]}")
    shutil.rmtree(stage.out, ignore_errors=True)
    _again(stage, command)


def history(chance: Random, folder: Path) -> None:
    """A run is added to a history, which can be read whenever that ends."""
    stage, command = merging(folder)
    kept = folder / "history"
    command += ["--history", str(kept)]
    _strike(chance, stage, command, _whole_merge()[0])
    if (kept / "history.sqlite").exists():
        stage.run(stage.sme2("history", kept)).expect_plain()
    shutil.rmtree(stage.out, ignore_errors=True)
    _again(stage, command)
    stage.run(stage.sme2("history", kept)).expect_success("a history that was added to again")


@functools.cache
def _whole_merge() -> tuple[float, frozenset[str]]:
    """How long one takes, and the files that it leaves."""
    with tempfile.TemporaryDirectory(prefix="hostile-") as folder:
        stage, command = merging(Path(folder))
        started = time.monotonic()
        stage.run(command).expect_success("a merge")
        return time.monotonic() - started, frozenset(_names(stage.out))


def _names(folder: Path) -> set[str]:
    return {str(path.relative_to(folder)) for path in folder.rglob("*")}


SUBJECTS = (
    Subject("kill-export", "kill -9 during an export", 200, 1, export),
    Subject("kill-build", "kill -9 while the runner is built", 8, 1, build),
    Subject("kill-measure", "kill -9 during a measurement on the emulator", 200, 1, measure),
    Subject("kill-update", "kill -9 during --update-baselines", 200, 1, update),
    Subject("kill-merge", "kill -9 during a merge", 200, 1, merge),
    Subject("kill-history", "kill -9 while a run is added to a history", 200, 1, history),
)
