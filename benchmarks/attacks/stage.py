"""Where an attack takes place: a project of a few lines, and whole runs of pytest in it."""

from __future__ import annotations

import contextlib
import functools
import json
import os
import shlex
import shutil
import sys
import tempfile
import threading
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from random import Random
from typing import Any

from benchmarks.harness import ROOT
from benchmarks.trials import Ending, ending_of, start
from pytest_sme2.errors import Sme2Error
from pytest_sme2.export.artifacts import export_model
from pytest_sme2.export.registry import discover
from tests.support.gate_examples import edit_baseline
from tests.support.nested import without_other_plugins
from tests.support.toy_project import gate_project

VARIABLE = "SME2_ATTACKS_DEVICE"
"""What an attack changes about the pretended device, as JSON."""
_SME2 = "import sys; from pytest_sme2.cli.main import main; sys.exit(main())"


@dataclass
class Project:
    """A project in a folder of its own, and how its commands are started."""

    path: Path
    options: tuple[str, ...] = ()
    variables: dict[str, str] = field(default_factory=dict)
    last: Ending | None = None

    def run(self, *words: str) -> Ending:
        environment = {**os.environ, "PYTHONPATH": str(ROOT), **self.variables}
        # What the stage itself runs in says nothing about this run.
        for name in ("PYTHONDONTWRITEBYTECODE", "PYTEST_CURRENT_TEST", "GITHUB_STEP_SUMMARY"):
            environment.pop(name, None)
        if "CI" not in self.variables:
            environment.pop("CI", None)
        return ending_of(start([sys.executable, *words], self.path, environment))

    def pytest(self, words: str = "", **device: Any) -> Ending:
        self.variables[VARIABLE] = json.dumps(device)
        others = shlex.split(without_other_plugins())
        cache = [] if "cacheprovider" in words else ["-p", "no:cacheprovider"]
        self.last = self.run("-m", "pytest", *others, *cache, *self.options, *shlex.split(words))
        return self.last

    def export(self) -> None:
        """What the next run would export: this process imports torch once for all of them."""
        for entry in discover([self.path / "models"]).entries:
            for variant in entry.variants:
                with contextlib.suppress(Sme2Error):
                    export_model(entry, variant)

    def sme2(self, words: str) -> Ending:
        return self.run("-c", _SME2, *shlex.split(words))

    def baselines(self) -> list[Path]:
        return sorted((self.path / "baselines").glob("*/*.json"))


Change = Callable[[Project], object]


@dataclass(frozen=True)
class Stage:
    """A kind of project, before anything is stored; what is stored of it is made once."""

    name: str
    make: Change
    options: tuple[str, ...]


def write(name: str, text: str) -> Change:
    def change(project: Project) -> None:
        path = project.path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, "utf-8")

    return change


def add(name: str, text: str) -> Change:
    def change(project: Project) -> None:
        path = project.path / name
        old = path.read_text("utf-8") if path.exists() else ""
        write(name, f"{old}{text}\n")(project)

    return change


def swap(name: str, old: str, new: str) -> Change:
    def change(project: Project) -> None:
        text = (project.path / name).read_text("utf-8")
        assert old in text, f"{name} has no {old!r}"
        write(name, text.replace(old, new))(project)

    return change


def remove(name: str) -> Change:
    def change(project: Project) -> None:
        path = project.path / name
        shutil.rmtree(path) if path.is_dir() else path.unlink()

    return change


def move(old: str, new: str) -> Change:
    def change(project: Project) -> None:
        (project.path / old).rename(project.path / new)

    return change


def edit(change: Callable[[dict[str, Any]], object]) -> Change:
    """Edit each baseline, and seal it again, as somebody with this package may."""

    def edited(project: Project) -> None:
        for path in project.baselines():
            edit_baseline(path, change)

    return edited


def edit_by_hand(change: Callable[[dict[str, Any]], object]) -> Change:
    def edited(project: Project) -> None:
        for path in project.baselines():
            document = json.loads(path.read_text("utf-8"))
            change(document)
            path.write_text(json.dumps(document), "utf-8")

    return edited


def both(*changes: Change) -> Change:
    def change(project: Project) -> None:
        for each in changes:
            each(project)

    return change


def nothing(_project: Project) -> None:
    pass


PRETENDED = Stage(
    "pretended", lambda project: gate_project(project.path), ("-p", "benchmarks.attacks.device")
)


@dataclass(frozen=True)
class Attack:
    """What is changed in a project with stored baselines, and how the next run has to end."""

    what: str
    said: str
    """Words that the run has to print."""
    change: Change = nothing
    words: str = "--sme2-strict"
    device: Mapping[str, Any] = field(default_factory=dict)
    code: int = 1
    variables: Mapping[str, str] = field(default_factory=dict)
    then: Callable[[Project], Ending] | None = None
    """What is judged instead of the run, after it."""
    stage: Stage = PRETENDED
    stored: bool = True
    group: str = ""

    def attempt(self, _chance: Random, folder: Path) -> None:
        project = Project(folder, self.stage.options)
        self.stage.make(project)
        if self.stored:
            shutil.copytree(stored(self.stage), folder / "baselines")
        self.change(project)
        project.variables.update(self.variables)
        if self.stage is not PRETENDED:
            project.export()
        ending = project.pytest(self.words, **self.device)
        ending = ending if self.then is None else self.then(project)
        ending.expect(self.code, self.said)


def equal(what: str, change: Change = nothing, **given: Any) -> Attack:
    """Code that is equal to what was accepted: it has to be green."""
    return Attack(what, **{"said": "compared: 10 of 10 stored figures", "code": 0, **given},
                  change=change)  # fmt: skip


def of(group: str, *attacks: Attack) -> tuple[Attack, ...]:
    return tuple(replace(attack, group=group) for attack in attacks)


_LOCK = threading.Lock()
_SHELF = tempfile.TemporaryDirectory(prefix="attacks-")


def stored(stage: Stage) -> Path:
    """The baselines of an update, made once."""
    with _LOCK:
        return _update(stage)


@functools.cache
def _update(stage: Stage) -> Path:
    project = Project(Path(_SHELF.name, stage.name), stage.options)
    project.path.mkdir()
    stage.make(project)
    if stage is not PRETENDED:
        project.export()
    ending = project.pytest("--update-baselines")
    if ending.code:
        raise SystemExit(ending.said)
    return project.path / "baselines"
