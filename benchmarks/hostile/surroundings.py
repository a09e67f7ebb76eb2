"""Places nobody likes to work in: read-only, oddly named, full of links."""

from __future__ import annotations

import os
from pathlib import Path
from random import Random

from benchmarks.hostile.stage import make_stage, read_only
from benchmarks.trials import Subject, expect


def read_only_checkout(chance: Random, folder: Path) -> None:
    """Measuring needs no room in the checkout; what does says so."""
    stage = make_stage(folder)
    with read_only(stage.checkout):
        way = chance.choice(("elsewhere", "update", "out"))
        if way == "elsewhere":
            stage.run(stage.pytest()).expect(0)
            stage.run(stage.sme2("report", "--check", stage.out)).expect(0)
            stage.run(stage.export()).expect(0)
        elif way == "update":
            baselines = str(stage.checkout / "baselines")
            stage.run(stage.update()).expect_refusal("Read-only file system", baselines)
        else:
            stage.out = stage.checkout / "sme2-out"
            command = stage.pytest() if chance.random() < 0.5 else stage.measure()
            stage.run(command).expect_refusal("Read-only file system", str(stage.out), "--sme2-out")
    stage.check_whole()
    stage.run(stage.update()).expect(0)


_ODD_NAMES = (b"a  b's (home)", b"caf\xe9", b"\xff\xfe", b"two\nlines", b"100%d;", b"<b>&", b"-x")


def odd_names(chance: Random, folder: Path) -> None:
    """Folders whose names are not UTF-8, or that a shell, HTML or QEMU might misread."""
    names = [os.fsdecode(chance.choice(_ODD_NAMES) + b"%d" % index) for index in range(4)]
    stage = make_stage(folder, home=names[0], checkout=names[1])
    stage.out = folder / names[2]
    cache = folder / names[3]
    (folder / "cache").rename(cache)
    stage.cache = cache
    if chance.random() < 0.5:
        stage.run(stage.measure("emulated")).expect(0)
    else:
        report = f"--sme2-report={stage.out / 'report.html'}"
        stage.run([*stage.update(), report]).expect(0)
        stage.run(stage.pytest("-v")).expect(0)
    stage.check_whole()
    stage.check_no_leftovers()


def links(chance: Random, folder: Path) -> None:
    """A file of a run directory becomes a link to something precious; then all commands run."""
    stage = make_stage(folder)
    stage.run(stage.measure()).expect(0)
    precious = folder / "precious"
    precious.write_text("keep me\n")
    files = sorted(path for path in stage.out.rglob("*") if path.is_file())
    names = [*files, stage.out / ".run.lock", stage.out / "report.md", stage.out / "report.html"]
    for path in chance.sample(names, 3):
        path.unlink(missing_ok=True)
        if chance.random() < 0.8:
            path.symlink_to(precious)
        else:
            path.hardlink_to(precious)
    for words in (("--html", stage.out / "report.html"), ("--check",), ("analyze",)):
        stage.run(stage.sme2("report", *words, stage.out)).expect_plain()
    stage.run(stage.measure()).expect_plain()
    expect(precious.read_text() == "keep me\n", f"{precious} was overwritten")


SUBJECTS = (
    Subject("read-only", "a read-only checkout", 5, read_only_checkout),
    Subject("names", "folders with names that are not UTF-8, or odd", 8, odd_names),
    Subject("attack-links", "links in a run directory", 10, links),
)
