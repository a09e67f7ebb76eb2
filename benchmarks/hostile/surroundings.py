"""Places nobody likes to work in: read-only, crowded, oddly named."""

from __future__ import annotations

import os
import shutil
from pathlib import Path
from random import Random

from benchmarks.hostile.stage import Stage, Subject, expect, finish, make_stage, read_only
from pytest_sme2.export.artifacts import is_utf8
from pytest_sme2.report.validation import validate_run
from pytest_sme2.verdict.baselines import read


def _expect_valid(out: Path) -> None:
    wrong = [f"{found.path}: {found.problem}" for found in validate_run(out) if found.problem]
    expect(not wrong, f"the run directory is not whole: {wrong[:3]}")


# --- a read-only checkout -------------------------------------------------------------------------


def read_only_checkout(chance: Random, folder: Path) -> None:
    """Measuring needs no room in the checkout; what does says so."""
    stage = make_stage(folder)
    with read_only(stage.checkout):
        way = chance.choice(("elsewhere", "update", "out"))
        if way == "elsewhere":
            stage.run(stage.pytest()).expect_success("a run that writes elsewhere")
            _expect_valid(stage.out)
            stage.run(stage.export()).expect_success("an export")
        elif way == "update":
            baselines = str(stage.checkout / "baselines")
            stage.run(stage.update()).expect_refusal("Read-only file system", baselines)
        else:
            stage.out = stage.checkout / "sme2-out"
            command = stage.pytest() if chance.random() < 0.5 else stage.measure()
            stage.run(command).expect_refusal("Read-only file system", str(stage.out), "--sme2-out")
    stage.check_whole()
    stage.run(stage.update()).expect_success("an update once it can be written")


# --- two at once ----------------------------------------------------------------------------------


def two_runs(chance: Random, folder: Path) -> None:
    """The same command twice at once in one checkout: both work, or one says why it does not."""
    way = chance.choice(("export", "build", "update", "update", "update"))
    stage = make_stage(folder, exports=way != "export", runners=way != "build")
    commands = {"export": stage.export(), "build": stage.measure(), "update": stage.update()}
    stages = [stage, Stage(**vars(stage))]
    if way == "build":
        # Only the runner is shared here: the run directories are apart.
        stages[1].out = folder / "other"
        other = stages[1].measure()
    else:
        other = commands[way]
    processes = [stage.start(commands[way]), stages[1].start(other)]
    endings = [finish(process) for process in processes]
    refused = [ending for ending in endings if ending.code != 0]
    expect(
        len(refused) < 2, f"neither worked:\n{endings[0].said[-1500:]}\n{endings[1].said[-1500:]}"
    )
    for ending in refused:
        ending.expect_refusal("another run", str(stage.out), "--sme2-out")
    expect(way == "update" or not refused, f"{way}: one did not work:\n{endings}")
    stage.check_whole()
    if way == "update":
        _expect_valid(stage.out)
        (path,) = (stage.checkout / "baselines").glob("*/*.json")
        expect(read(path) is not None, "the baseline cannot be read")
        stage.run(stage.pytest()).expect_success("a run against the baseline")
    stage.check_no_leftovers()


# --- names ----------------------------------------------------------------------------------------

_ODD_NAMES = (b"caf\xe9", b"\xff\xfe", b"two\nlines", b"a b", b"100%d", b"it's;", b"<b>&", b"-x")


def odd_names(chance: Random, folder: Path) -> None:
    """Folders whose names are not UTF-8, or that a shell, HTML or QEMU might misread."""
    names = [os.fsdecode(chance.choice(_ODD_NAMES) + b"%d" % index) for index in range(4)]
    stage = make_stage(folder, home=names[0], checkout=names[1])
    stage.out = folder / names[2]
    cache = folder / names[3]
    (folder / "cache").rename(cache)
    stage.cache = cache
    way = chance.choice(("emulated", "pytest", "export", "report"))
    if way == "emulated":
        stage.run(stage.measure("emulated")).expect_success("a measurement")
    elif way == "pytest":
        report = f"--sme2-report={stage.out / 'report.html'}"
        stage.run([*stage.update(), report]).expect_success("an update")
        stage.run(stage.pytest("-v")).expect_success("a run against it")
    elif way == "export":
        shutil.rmtree(cache / "exports")
        ending = stage.run(stage.export())
        if not is_utf8(stage.checkout):
            ending.expect_refusal("is not UTF-8")
        else:
            ending.expect_success("an export")
            stage.run(stage.export()).expect_success("an export from the cache")
    else:
        stage.run(stage.measure()).expect_success("a measurement")
        command = stage.sme2("report", stage.out, "--html", stage.out / "r.html")
        stage.run(command).expect_success("a report")
        for part in ("validate", "analyze", "trace"):
            stage.run(stage.sme2("report", part, stage.out)).expect_success(part)
    stage.check_whole()
    stage.check_no_leftovers()


SUBJECTS = (
    Subject("read-only", "a read-only checkout", 5, 1, read_only_checkout),
    Subject("two-runs", "two runs at once in one checkout", 6, 1, two_runs),
    Subject("names", "folders with names that are not UTF-8, or odd", 8, 1, odd_names),
)
