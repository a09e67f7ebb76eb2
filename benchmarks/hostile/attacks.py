"""Somebody means harm: links, planted programs, escape sequences, archives that swell.

Clean: what lies outside is as it was, nothing planted was executed, nothing raw reaches the
terminal, and the command either works or says in plain words why it does not.
"""

from __future__ import annotations

import contextlib
import gzip
import io
import json
import os
import re
import shlex
import shutil
import tarfile
from pathlib import Path
from random import Random

from benchmarks.hostile.stage import ROOT, NotPossibleError, Stage, Subject, expect, make_stage

PRECIOUS = "keep me\n"
MEMORY_BYTES = 3 << 30
"""Of address space; the libraries of a command take one of them."""


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
    precious.write_text(PRECIOUS)
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
    expect(precious.read_text() == PRECIOUS, f"{precious} was overwritten")


def backup(chance: Random, folder: Path) -> None:
    """Every file of a run directory has a second name: nothing is changed under that one."""
    stage = make_stage(folder)
    commands = _readers(stage)
    stage.run(stage.measure()).expect_success("a measurement")
    stage.run(commands[0]).expect_success("a report")
    kept = folder / "kept"
    kept.mkdir()
    for number, path in enumerate(sorted(stage.out.rglob("*"))):
        if path.is_file():
            (kept / f"{number}-{path.name}").hardlink_to(path)
    before = {path: path.read_bytes() for path in kept.iterdir()}
    for words in chance.sample(commands, len(commands)):
        stage.run(words).expect_plain()
    # The lock of the run directory is refused as it is.
    (stage.out / ".run.lock").unlink(missing_ok=True)
    stage.run(stage.measure()).expect_success("a measurement without the old lock")
    changed = [path.name for path, content in before.items() if path.read_bytes() != content]
    expect(not changed, f"changed under their second names: {', '.join(changed)}")


def paths(chance: Random, folder: Path) -> None:
    """A run directory that names files outside of it: nothing is read from or written there."""
    stage = make_stage(folder)
    stage.run(stage.measure()).expect_success("a measurement")
    outside = folder / "outside"
    outside.mkdir()
    evil = chance.choice(("../../outside/x", str(outside / "x"), "a/../../../outside/x"))
    for path in stage.out.rglob("*.json"):
        with contextlib.suppress(ValueError):
            text = json.dumps(_with_paths(json.loads(path.read_text()), evil, chance))
            path.write_text(text)
    for words in _readers(stage)[:3]:
        stage.run(words).expect_plain()
    expect(not list(outside.iterdir()), "something was written outside")


def _with_paths(value: object, evil: str, chance: Random) -> object:
    """The document with half of its names of files replaced."""
    if isinstance(value, dict):
        return {key: _with_paths(each, evil, chance) for key, each in value.items()}
    if isinstance(value, list):
        return [_with_paths(each, evil, chance) for each in value]
    is_name = isinstance(value, str) and ("/" in value or value.endswith((".etdump", ".json")))
    return evil if is_name and chance.random() < 0.5 else value


def planted(chance: Random, folder: Path) -> None:
    """Somebody else could write to the cache: what they put there is never executed."""
    stage = make_stage(folder)
    assert stage.cache is not None
    runners = [path for path in (stage.cache / "runners").glob("*/sme2_runner") if path.is_file()]
    mark = folder / "executed"
    way = chance.choice(("changed file", "everybody writes", "another user"))
    for runner in runners:
        runner.chmod(0o755)
        runner.write_text(f"#!/bin/sh\ntouch {shlex.quote(str(mark))}\n")
    if way == "everybody writes":
        chance.choice((stage.cache, runners[0].parent, runners[0])).chmod(0o777)
    elif way == "another user":
        if os.geteuid() != 0:
            raise NotPossibleError("only root can give files away")
        for runner in runners:
            os.chown(runner, 4242, 4242)
    ending = stage.run(stage.measure())
    expect(not mark.exists(), f"a planted program was executed ({way}):\n{ending.said[-2000:]}")
    # A file that was only changed, or that this device does not need, is built again.
    if ending.code != 0:
        ending.expect_refusal("SME2_CACHE_DIR")
        expect(way != "changed file", f"it was not built again:\n{ending.said[-2000:]}")


SEQUENCES = ("\x1b[2J", "\x1b]0;title\x07", "\x9b31m", "\r", "\x08" * 5, "\x1b[1A")


def terminal(chance: Random, folder: Path) -> None:
    """Escape sequences in names and values: none reaches the terminal as it is."""
    stage = make_stage(folder)
    evil = f"a{chance.choice(SEQUENCES)}b"
    places = ("missing file", "etdump", "option", "experiment", "baseline", "model", "serial")
    place = chance.choice(places)
    if place == "missing file":
        words = stage.sme2("report", *chance.choice((["analyze"], [], ["--check"])), folder / evil)
    elif place == "etdump":
        (folder / f"{evil}.etdump").write_bytes(b"not one")
        words = stage.sme2("report", "analyze", folder / f"{evil}.etdump")
    elif place == "option":
        words = stage.pytest(f"--sme2-variants={evil}")
    elif place == "experiment":
        path = folder / f"{evil}.json"
        path.write_text(json.dumps({"experiments": [{evil: evil}], evil: [evil]}))
        words = stage.sme2("run", "--config", path)
    elif place == "baseline":
        stage.run(stage.update()).expect_success("an update")
        (path,) = (stage.checkout / "baselines").glob("*/*.json")
        document = json.loads(path.read_text())
        document[chance.choice(("model", "variant", evil))] = evil
        document["structure"]["off"]["operators"]["delegated"][evil] = 1
        path.write_text(json.dumps(document))
        words = stage.pytest()
    elif place == "model":
        (stage.checkout / "models" / "toy_cnn").rename(stage.checkout / "models" / evil)
        words = stage.sme2("models", "--models-folder", "models")
    else:
        words = stage.sme2("run", "toy_cnn", "--device", "android", "--serial", evil)
    ending = stage.run(words)
    ending.expect_plain()
    # A carriage return in front of a line feed is how some tools end their lines.
    raw = {letter for letter in ending.said.replace("\r\n", "\n") if letter in "\x1b\x07\x08\x9b\r"}
    expect(not raw, f"raw letters {raw} were printed ({place}):\n{ending.said[-2000:]!r}")


def bombs(chance: Random, folder: Path) -> None:
    """Small archives that unpack to gigabytes, as what a run is held against."""
    stage = make_stage(folder)
    if shutil.which("prlimit") is None:
        raise NotPossibleError("no prlimit to bound the memory with")
    stage.prefix = ("prlimit", f"--as={MEMORY_BYTES}")
    bomb = folder / "bomb.tar.gz"
    way = chance.choice(("one long member", "many members", "a long name", "zeros"))
    with gzip.open(bomb, "wb", compresslevel=1) as packed:
        if way == "zeros":
            for _ in range(1024):
                packed.write(bytes(1 << 20))
        else:
            _write_bomb(packed, way)
    test = "def test_it(sme2_gate):\n    sme2_gate.check_against()\n"
    (stage.checkout / "test_suite.py").write_text(test)
    before = _size(stage.root)
    stage.run(stage.pytest(f"--against={bomb}")).expect_refusal("bomb.tar.gz")
    grown = _size(stage.root) - before
    expect(grown < 256 << 20, f"{grown >> 20} MiB were left on the disk ({way})")


def _write_bomb(packed: gzip.GzipFile, way: str) -> None:
    with tarfile.open(fileobj=packed, mode="w|", format=tarfile.PAX_FORMAT) as archive:
        if way == "many members":
            for index in range(100_000):
                archive.addfile(tarfile.TarInfo(f"m{index}"))
            return
        member = tarfile.TarInfo("manifest.json" if way == "one long member" else "x" * (1 << 26))
        member.size = 1 << 30 if way == "one long member" else 0
        archive.addfile(member, _Zeros(member.size))


class _Zeros(io.RawIOBase):
    """A file of this many zeros that takes no memory."""

    def __init__(self, left: int) -> None:
        self._left = left

    def read(self, size: int = -1) -> bytes:
        size = min(self._left, 1 << 20 if size < 0 else size)
        self._left -= size
        return bytes(size)


def _size(folder: Path) -> int:
    return sum(path.lstat().st_size for path in folder.rglob("*") if path.is_file())


def workers(chance: Random, folder: Path) -> None:
    """Every way of spreading tests over workers: a case is made by one process at a time."""
    stage = make_stage(folder)
    mode = chance.choice(("load", "loadscope", "loadfile", "loadgroup", "worksteal", "each"))
    ending = stage.run(stage.pytest("-n", "2", "--dist", mode))
    if mode == "each":  # all workers would do the same
        ending.expect_refusal("--dist=each would measure a case in two workers at once")
    else:
        ending.expect_success(f"a run with --dist {mode}")
    stage.check_whole()
    for path in stage.out.rglob("metrics.json"):
        json.loads(path.read_text())


def repository(chance: Random, folder: Path) -> None:
    """A run directory that is also a repository, whose configuration names programs."""
    stage = make_stage(folder)
    commands = _readers(stage)[:3]
    stage.run(stage.measure()).expect_success("a measurement")
    mark = folder / "executed"
    way = chance.choice(("fsmonitor", "filter", "hook"))
    filters = f'[filter "x"]\n\tclean = "touch {mark}"\n' if way == "filter" else ""
    (stage.out / "config").write_text(
        "[core]\n\trepositoryformatversion = 0\n\tbare = false\n\tworktree = .\n"
        + (f'\tfsmonitor = "touch {mark}"\n' if way == "fsmonitor" else "")
        + (f"\thooksPath = {stage.out / 'hooks'}\n{filters}")
    )
    for name in ("objects", "refs/heads", "hooks"):
        (stage.out / name).mkdir(parents=True)
    (stage.out / "HEAD").write_text("ref: refs/heads/main\n")
    (stage.out / ".gitattributes").write_text("* filter=x\n")
    for name in ("post-checkout", "fsmonitor-watchman", "post-index-change"):
        hook = stage.out / "hooks" / name
        hook.write_text(f"#!/bin/sh\ntouch {shlex.quote(str(mark))}\n")
        hook.chmod(0o755)
    stage.checkout = stage.out
    for words in commands:
        stage.run(words).expect_plain()
    expect(not mark.exists(), f"a program that the run directory names was executed ({way})")


_ALIVE = (
    *("@you", "&commat;you", "https://x.example", "[a](b)", "<img src=x>", "#12", "`@you`", "|"),
    *("\n/merge\n", "\n~~~\n", "\n```\n@you", "\n\n# T\n\n", "\u2028/merge", "\x1b[31m"),
)
_CODE_SPAN = re.compile("`[^`\n]*`")


def comment(chance: Random, folder: Path) -> None:
    """A comment.json full of live Markdown: the trusted job's comment has none of it."""
    stage = make_stage(folder)
    path = folder / "comment.json"
    stage.run(stage.pytest(f"--sme2-report={path}")).expect_success("a run with a comment")
    path.write_text(json.dumps(_with_words(json.loads(path.read_text()), chance)))
    ending = stage.run([stage.python, str(ROOT / "docs" / "ci" / "post_comment.py"), str(path)])
    ending.expect_plain()
    shown = _CODE_SPAN.sub("", ending.said)
    alive = [word for word in ("@you", "commat", "x.example", "](", "<img", "#12") if word in shown]
    alive += re.findall(r"(?m)^\s*(?:/\w+|~~~|# T)", ending.said)
    expect(not alive, f"alive in the comment: {alive}\n{ending.said[-2000:]}")


def _with_words(value: object, chance: Random) -> object:
    """The document with half of its texts replaced; which fields it has stays."""
    if isinstance(value, dict):
        return {key: _with_words(each, chance) for key, each in value.items()}
    if isinstance(value, list):
        return [_with_words(each, chance) for each in value]
    return f"a {chance.choice(_ALIVE)} b" if isinstance(value, str) else value


_LEFT = """
import os
import subprocess

os.mkdir("left")
os.mkfifo("left/pipe")
os.mkfifo("pipe")
subprocess.Popen(["sleep", "600"], start_new_session={session})
"""


def left(chance: Random, folder: Path) -> None:
    """A model leaves folders, pipes and processes where it is exported: they go with the export."""
    stage = make_stage(folder, exports=False)
    model = stage.checkout / "models" / "toy_cnn" / "model.py"
    text = model.read_text().replace("import torch\n", _LEFT + "import torch\n", 1)
    model.write_text(text.replace("{session}", str(chance.random() < 0.5)))
    stage.run(stage.export()).expect_success("an export")
    assert stage.cache is not None
    found = [path for path in (stage.cache / "exports").glob("*/*") if not path.is_file()]
    expect(not [path for path in found if path.parent.name != "locks"], f"left over: {found}")
    stage.check_whole()


def foreign(chance: Random, folder: Path) -> None:
    """Entries of the cache that somebody else made: each is made again, and none is executed."""
    if os.geteuid() != 0:
        raise NotPossibleError("only root can give files away")
    stage = make_stage(folder)
    stage.run(stage.emulate()).expect_success("a measurement")
    assert stage.cache is not None
    kind = chance.choice(("exports/toy_cnn*", "emulated/*", "tools/block_counter-*", "runners/*-*"))
    entries = [path for path in stage.cache.glob(kind) if path.is_dir()]
    mark = folder / "executed"
    for path in (inner for entry in entries for inner in (entry, *entry.rglob("*"))):
        if path.is_file() and os.access(path, os.X_OK) and kind.startswith("tools"):
            path.write_text(f"#!/bin/sh\ntouch {shlex.quote(str(mark))}\n")
        os.chown(path, 4242, 4242)
    shutil.rmtree(stage.out)
    stage.run(stage.emulate()).expect_success("a measurement beside entries of others")
    expect(not mark.exists(), f"a program of somebody else was executed ({kind})")
    stage.check_whole()


SUBJECTS = (
    Subject("attack-links", "links in a run directory", 10, 2, links),
    Subject("attack-backup", "a backup of a run directory by hard links", 3, 1, backup),
    Subject("attack-paths", "files that a run directory names outside of it", 5, 1, paths),
    Subject("attack-planted", "programs that somebody put into the cache", 10, 2, planted),
    Subject("attack-terminal", "escape sequences in names and values", 40, 6, terminal),
    Subject("attack-repository", "a run directory that is a repository", 9, 1, repository),
    Subject("attack-comment", "live Markdown in comment.json", 20, 1, comment),
    Subject("attack-left", "pipes, folders and processes that a model leaves", 4, 1, left),
    Subject("attack-foreign", "entries of the cache that others made", 8, 1, foreign),
    Subject("attack-bombs", "small archives that unpack to gigabytes", 8, 2, bombs),
    Subject("attack-workers", "every way of spreading tests over workers", 10, 1, workers),
)
