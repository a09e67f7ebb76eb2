"""Who believes whom: caches that others wrote, and run directories that are more than that."""

from __future__ import annotations

import functools
import json
import os
import shutil
import tempfile
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

from benchmarks.attacks.programs import ONE, SLOWER
from benchmarks.attacks.stage import (
    Attack,
    Change,
    Project,
    nothing,
    of,
)
from benchmarks.hostile.stage import fill_cache
from benchmarks.trials import Ending
from pytest_sme2.system.cache import mark_cache

NOBODY = 65534
_LOCK = threading.Lock()
_KEPT = tempfile.TemporaryDirectory(prefix="attacks-cache-")


class Poisoned:
    """A cache of one's own that holds the slower program of a branch, and one of the accepted."""

    def __init__(self, project: Project) -> None:
        self.accepted, slower = _caches()
        self.folder = project.path.parent / f"{project.path.name}-cache"
        shutil.copytree(slower, self.folder, symlinks=True)
        self.mark = project.path / "executed"
        project.variables["SME2_CACHE_DIR"] = str(self.folder)

    def pairs(self, kind: str) -> list[tuple[Path, Path]]:
        """The accepted entries, and those of the slower program that stand for the same."""
        found = [
            {_arm(entry): entry for entry in (cache / kind).iterdir() if any(entry.glob("*.json"))}
            for cache in (self.accepted, self.folder)
        ]
        return [(found[0][arm], found[1][arm]) for arm in sorted(found[0])]


def _arm(folder: Path) -> str:
    record = folder / "remembered.json"
    return str(json.loads(record.read_text("utf-8"))["census"]["arm"]) if record.exists() else ""


def _caches() -> list[Path]:
    """After an update of the accepted program, and of the slower one."""
    with _LOCK:
        return [_made("accepted", nothing), _made("slower", SLOWER)]


@functools.cache
def _made(name: str, change: Change) -> Path:
    root = Path(_KEPT.name).resolve() / name
    project = Project(root / "project", (), {"SME2_CACHE_DIR": str(root / "cache")})
    project.path.mkdir(parents=True)
    fill_cache(root / "cache", exports=False, runners=True)
    ONE.make(project)
    change(project)
    project.pytest("--update-baselines").expect(0)
    return root / "cache"


def poison(what: str, change: Callable[[Poisoned], object], **given: Any) -> Attack:
    """The branch's program is slower, and somebody wrote to the cache before the run."""

    def prepared(project: Project) -> None:
        SLOWER(project)
        change(Poisoned(project))

    def judged(project: Project) -> Ending:
        shutil.rmtree(f"{project.path}-cache")
        if (project.path / "executed").exists():
            return Ending(0, "Something that was planted was executed.")
        assert project.last is not None
        return project.last

    return Attack(what, "REGRESSED", prepared, stage=ONE, then=judged, **given)


def _counts(cache: Poisoned) -> None:
    for accepted, slower in cache.pairs("emulated"):
        records = [each / "remembered.json" for each in (accepted, slower)]
        good, bad = (json.loads(each.read_text("utf-8")) for each in records)
        bad.update(census=good["census"], counted=good["counted"])
        (slower / "remembered.json").write_text(json.dumps(bad), "utf-8")


def _exchanged(kind: str) -> Callable[[Poisoned], None]:
    def change(cache: Poisoned) -> None:
        for accepted, slower in cache.pairs(kind):
            shutil.rmtree(slower)
            shutil.copytree(accepted, slower)

    return change


def _old_export(cache: Poisoned) -> None:
    """The accepted export under the new key, and its own record says so."""
    ((accepted, slower),) = cache.pairs("exports")
    key = json.loads((slower / "export_meta.json").read_text())["key"]
    shutil.rmtree(slower)
    shutil.copytree(accepted, slower)
    meta = json.loads((slower / "export_meta.json").read_text())
    (slower / "export_meta.json").write_text(json.dumps({**meta, "key": key}), "utf-8")


def _each(pattern: str, change: Callable[[Poisoned, Path], object]) -> Callable[[Poisoned], None]:
    def changed(cache: Poisoned) -> None:
        for path in cache.folder.glob(pattern):
            change(cache, path)

    return changed


def _program(cache: Poisoned, path: Path) -> None:
    path.unlink()
    path.write_text(f"#!/bin/sh\ntouch {cache.mark}\n", "utf-8")
    path.chmod(0o755)


def _of_nobody(cache: Poisoned, path: Path) -> None:
    if path.is_file():
        _program(cache, path)
    os.chown(path, NOBODY, NOBODY)


CACHES = (
    poison("nobody wrote to the cache", lambda cache: None),
    poison("counts of the accepted run in the record of the new one", _counts),
    poison("the accepted runs under the names of the new ones", _exchanged("emulated")),
    poison("the accepted export under the name of the new one", _exchanged("exports")),
    poison("... and its record says so", _old_export),
    poison("runs that everybody can write to",
           _each("emulated/*/remembered.json", lambda _, path: path.chmod(0o666))),
    poison("another program for the runner", _each("runners/*/sme2_runner", _program)),
    poison("exports that another user made", _each("exports/net*", _of_nobody)),
    poison("another user's program for the counter",
           _each("tools/block_counter-*/block_counter", _of_nobody)),
)  # fmt: skip

FSMONITOR = '[core]\n\trepositoryformatversion = 0\n\tbare = false\n\tfsmonitor = "touch {mark}"\n'


def _repository(project: Project) -> Ending:
    """The run directory is a repository whose configuration names a program."""
    out, mark = project.path / "sme2-out", project.path / "executed"
    (out / "HEAD").write_text("ref: refs/heads/main\n")
    (out / "config").write_text(FSMONITOR.format(mark=mark))
    for name in ("objects", "refs/heads"):
        (out / name).mkdir(parents=True)
    project.path, outer = out, project.path
    endings = [
        project.sme2(words)
        for words in (
            "report .",
            f"merge . --out {outer / 'merged'} --baseline-dir {outer / 'baselines'}",
        )
    ]
    said = "Something was executed." if mark.exists() else "Nothing was executed."
    return Ending(max(ending.code for ending in endings), said)


def _pipe(name: str) -> Change:
    def change(project: Project) -> None:
        path = project.path / name
        path.unlink(missing_ok=True)
        os.mkfifo(path)

    return change


def _merge_with_pipe(project: Project) -> Ending:
    _pipe("sme2-out/toy-fp32/runs/linux/metrics.json")(project)
    return project.sme2("merge sme2-out --out merged")


CI = {"CI": "true"}


def _in_repository(project: Project) -> None:
    (project.path / ".git").mkdir()
    project.variables["SME2_CACHE_DIR"] = str(project.path / ".sme2-cache")


def _open_cache(project: Project) -> None:
    folder = project.path / "cache" / "pytest-sme2"
    mark_cache(folder)
    folder.chmod(0o777)
    project.variables["SME2_CACHE_DIR"] = str(folder)


ATTACKS = of(
    "trust",
    Attack("a cache in the repository", "whoever changes that could write it", _in_repository,
           stage=ONE, words="", variables=CI),
    Attack("a cache that everybody can write to", "every user of this machine can write to it",
           _open_cache, stage=ONE, stored=False),
    Attack("a run directory that is a repository with a program", "Nothing was executed.",
           then=_repository, code=0),
    Attack("limits.toml is a pipe", "limits.toml", _pipe("models/toy/limits.toml")),
    Attack("a record of a run directory is a pipe", "metrics.json", then=_merge_with_pipe, code=3),
    # Only root can give files away.
    *(CACHES if os.geteuid() == 0 else CACHES[:-2]),
)  # fmt: skip
