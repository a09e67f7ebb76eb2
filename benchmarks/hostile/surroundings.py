"""Places nobody likes to work in: read-only, crowded, oddly named, full of links."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from random import Random

from benchmarks.hostile.stage import (
    MOUNTS,
    NotPossibleError,
    Stage,
    Subject,
    expect,
    finish,
    make_stage,
    read_only,
    small_disk,
)
from pytest_sme2.export.artifacts import is_utf8
from pytest_sme2.report.writing import validate_run
from pytest_sme2.verdict.baselines import read


def _expect_valid(out: Path) -> None:
    wrong = [f"{found.path}: {found.problem}" for found in validate_run(out) if found.problem]
    expect(not wrong, f"the run directory is not whole: {wrong[:3]}")


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


def two_runs(chance: Random, folder: Path) -> None:
    """The same command twice at once in one checkout: both work, or one says why it does not."""
    way = chance.choice(("export", "build", "update", "update", "update"))
    stage = make_stage(folder, exports=way != "export", runners=way != "build")
    command = {"export": Stage.export, "build": Stage.measure, "update": Stage.update}[way]
    # Only the runner is shared where it is built: the run directories are apart.
    other = replace(stage, out=folder / "other") if way == "build" else stage
    processes = [one.start(command(one)) for one in (stage, other)]
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


_ODD_NAMES = (
    b"a  b's (home)",
    b"caf\xe9",
    b"\xff\xfe",
    b"two\nlines",
    b"a b",
    b"100%d",
    b"it's;",
    b"<b>&",
    b"-x",
)


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
        for words in (["--check"], ["analyze"], ["--format", "perfetto"]):
            stage.run(stage.sme2("report", *words, stage.out)).expect_success(words[0])
    stage.check_whole()
    stage.check_no_leftovers()


def no_shared_memory(chance: Random, folder: Path) -> None:
    """A container whose /dev/shm has no room."""
    stage = make_stage(folder)
    with small_disk(Path("/dev/shm"), 4096):
        Path("/dev/shm/full").write_bytes(bytes(4096))
        words = chance.choice((stage.export(), stage.measure(), stage.pytest("-n", "2")))
        stage.run(words).expect_success("a command without shared memory")
    stage.check_whole()


def read_only_home(chance: Random, folder: Path) -> None:
    """Nothing is written to a home unless the cache is there, and then it is said."""
    stage = make_stage(folder)
    assert stage.home is not None
    given = chance.random() < 0.5
    stage.cache = stage.cache if given else None
    with read_only(stage.home):
        ending = stage.run(chance.choice((stage.measure(), stage.pytest(), stage.export())))
        if given:
            ending.expect_success("a command with a cache elsewhere")
        else:
            ending.expect_refusal("Read-only file system", "SME2_CACHE_DIR")
    stage.check_whole()


_LOW = ("--nofile=16:16", "--nofile=40:40", "--nproc=3:3", "--as=400000000", "--fsize=20000")


def low_limits(chance: Random, folder: Path) -> None:
    """Few files, processes, memory or bytes: it works, or says in plain words why not."""
    if shutil.which("prlimit") is None:
        raise NotPossibleError("prlimit is not installed")
    stage = make_stage(folder)
    limit = chance.choice(_LOW)
    words = chance.choice((stage.measure(), stage.export(), stage.pytest()))
    ending = stage.run(["prlimit", limit, *words])
    if ending.code != 0 and "pytest_sme2" in ending.said:
        ending.expect_plain()
    stage.check_whole()
    stage.run(words).expect_success(f"the same without {limit}")
    stage.check_whole()


_NOBODY = ("setpriv", "--reuid=54321", "--regid=54321", "--clear-groups")


def _python_for_others() -> str:
    """The system's: this interpreter may lie in somebody's home."""
    if os.environ.get(MOUNTS) != "root" or shutil.which("setpriv") is None:
        raise NotPossibleError("only root can become another user")
    python = f"/usr/bin/python{sys.version_info.major}.{sys.version_info.minor}"
    if not Path(python).exists():
        raise NotPossibleError(f"there is no {python} for another user")
    return python


_RACER = """
import os, sys
folder, victim = sys.argv[1:]
while True:
    for name in os.listdir(folder):
        for other in (name + ".tmp", name + ".lock", "." + name + ".part", name + "0", name):
            try:
                os.symlink(victim, os.path.join(folder, other))
            except OSError:
                pass
"""


def temporary_races(chance: Random, folder: Path) -> None:
    """Somebody lays links beside every file in the folder for temporary files that all share."""
    python = _python_for_others()
    stage = make_stage(folder)
    victim = folder / "victim"
    victim.write_text("mine")
    (folder / "tmp").chmod(0o1777)
    folder.chmod(0o711)
    racer = subprocess.Popen([*_NOBODY, python, "-c", _RACER, str(folder / "tmp"), str(victim)])
    try:
        command = chance.choice((stage.measure("emulated"), stage.pytest(), stage.export()))
        stage.run(command).expect_success("a command beside somebody who lays links")
    finally:
        racer.kill()
        racer.wait()
        for path in (folder / "tmp").iterdir():
            if path.is_symlink():
                path.unlink()
    expect(victim.read_text() == "mine", "a link led a write elsewhere")
    stage.check_whole()


def _readers(stage: Stage) -> list[list[str]]:
    """What reads a run directory and writes to it."""
    return [
        stage.sme2("report", stage.out, "--html", stage.out / "report.html"),
        stage.sme2("report", "--check", stage.out),
        stage.sme2("report", "analyze", stage.out),
        stage.measure(),
    ]


def links(chance: Random, folder: Path) -> None:
    """A file of a run directory becomes a link to something precious; then all commands run."""
    stage = make_stage(folder)
    stage.run(stage.measure()).expect_success("a measurement")
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
    for words in _readers(stage):
        stage.run(words).expect_plain()
    expect(precious.read_text() == "keep me\n", f"{precious} was overwritten")


SUBJECTS = (
    Subject("read-only", "a read-only checkout", 5, 1, read_only_checkout),
    Subject("no-shm", "no shared memory", 3, 1, no_shared_memory),
    Subject("read-only-home", "a home that cannot be written", 6, 1, read_only_home),
    Subject("low-limits", "few files, processes, memory or bytes", 15, 1, low_limits),
    Subject("two-runs", "two runs at once in one checkout", 6, 1, two_runs),
    Subject("names", "folders with names that are not UTF-8, or odd", 8, 1, odd_names),
    Subject("tmp-races", "links laid beside temporary files", 5, 1, temporary_races),
    Subject("attack-links", "links in a run directory", 10, 2, links),
)
