"""A disk that is full, at whatever point of each stage: a plain error, and no harm done.

Clean: one message that names the folder and the remedy, nothing half written, what was there
before is unchanged, and the same command works once there is room.
"""

from __future__ import annotations

import os
import re
import shutil
from collections.abc import Callable, Sequence
from pathlib import Path
from random import Random

from benchmarks.hostile.stage import (
    Stage,
    fill_cache,
    make_stage,
    merging,
    resize_disk,
    small_disk,
)
from benchmarks.trials import Attempt, Subject, expect

PLENTY = 1 << 30
_REMEDY = re.compile(r"make room|free space|disk is not full", re.IGNORECASE)
_FULL = "No space left on device"


def _leave(folder: Path, free: int) -> None:
    """Shrink a disk until only this many bytes are free."""
    facts = os.statvfs(folder)
    used = (facts.f_blocks - facts.f_bfree) * facts.f_frsize
    resize_disk(folder, max(used + free, 4096))


def _try_and_heal(stage: Stage, disk: Path, command: Sequence[str], free: int) -> None:
    _leave(disk, free)
    ending = stage.run(command)
    # With luck it was enough.
    if ending.code != 0:
        ending.expect_refusal(_FULL, str(disk))
        said = " ".join(ending.said.split())
        expect(_REMEDY.search(said), f"the message does not say what to do:\n{ending.said[-2000:]}")
    stage.check_whole()
    stage.check_no_leftovers()
    resize_disk(disk, PLENTY)
    stage.run(command).expect(0)
    stage.check_whole()


def on_a_disk(attempt: Callable[[Random, Stage, Path], None]) -> Attempt:
    """A stage, and beside it a disk whose size can be changed."""

    def prepared(chance: Random, folder: Path) -> None:
        with small_disk(folder / "disk", PLENTY):
            attempt(chance, make_stage(folder), folder / "disk")

    return prepared


@on_a_disk
def export(chance: Random, stage: Stage, disk: Path) -> None:
    stage.cache = disk / "cache"
    fill_cache(stage.cache, exports=False, runners=False)
    _try_and_heal(stage, disk, stage.export(), chance.randrange(1_500_000))


@on_a_disk
def measure(chance: Random, stage: Stage, disk: Path) -> None:
    """The run directory fills up, the folder for temporary files, or the cache of a new runner."""
    most = 150_000
    place, commands = chance.random(), [stage.measure(), stage.measure("emulated")]
    if place < 0.3:
        stage.extra, most = {"TMPDIR": str(disk)}, 8_000_000
        # The other one downloads, and pip tells of a full folder as of a network that fails.
        commands.pop()
    elif place < 0.6:
        stage.cache, most = disk / "cache", 20_000_000
        fill_cache(stage.cache, exports=True, runners=False)
    else:
        stage.out = disk / "out"
    _try_and_heal(stage, disk, chance.choice(commands), chance.randrange(most))


@on_a_disk
def conclusion(chance: Random, stage: Stage, disk: Path) -> None:
    """Where a test run ends, and its reports are made."""
    stage.out = disk / "out"
    command = stage.pytest(f"--sme2-report={disk / 'report.html'}")
    _try_and_heal(stage, disk, command, chance.randrange(400_000))


@on_a_disk
def update(chance: Random, stage: Stage, disk: Path) -> None:
    command = [*stage.update(), f"--sme2-baseline-dir={disk}"]
    stage.run(command).expect(0)
    (path,) = disk.glob("*/*.json")
    path.write_text(path.read_text().replace('"random', '"once random'))
    _try_and_heal(stage, disk, command, chance.randrange(8_192))
    expect('"weights": "random' in path.read_text(), "the baseline was not updated")


@on_a_disk
def merge(chance: Random, stage: Stage, disk: Path) -> None:
    """Of a run that is merged, and added to a history: the disk of either fills up."""
    if chance.random() < 0.5:
        stage.out = disk / "out"
    else:
        stage.history = disk / "history"
    command = merging(stage)
    _leave(disk, chance.randrange(200_000))
    ending = stage.run(command)
    if ending.code != 0:
        ending.expect_plain()
        expect(str(disk) in ending.said, f"the folder is not named:\n{ending.said[-2000:]}")
    resize_disk(disk, PLENTY)
    shutil.rmtree(stage.out, ignore_errors=True)
    stage.run(command).expect(0)
    stage.check_whole()


SUBJECTS = (
    Subject("full-export", "disk full during an export", 4, export),
    Subject("full-measure", "disk full during a measurement", 13, measure),
    Subject("full-update", "disk full during --update-baselines", 3, update),
    Subject("full-merge", "disk full during a merge into a history", 20, merge),
    Subject("full-conclusion", "disk full at some point of a test run", 10, conclusion),
)
