"""Exports many small networks in one child process: importing torch takes longer than most of them.

Models of users are exported one by one (artifacts.py), since their code may do anything. These
networks are our own. The parent writes a line for each, and gets one when it is done.
"""

from __future__ import annotations

import contextlib
import json
import os
import subprocess
import sys
import traceback
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from pytest_sme2.export.server import export_environment
from pytest_sme2.results.run import Artifact, TensorSpec
from pytest_sme2.system.files import decode, file_sha256, read_json
from pytest_sme2.system.terminal import Say

RECORD = "export.json"
_DONE = "done"
# The path is set before our first import, so that the child finds the asked-for ExecuTorch.
_BOOTSTRAP = (
    "import importlib, json, sys; sys.path[:] = json.loads(sys.argv[1]); "
    "importlib.import_module(sys.argv[2]).main()"
)


@dataclass
class ManyExports:
    """The child, started with the first request."""

    module: str
    """It has a ``main`` that calls ``serve``."""
    log: Path
    say: Say
    child: subprocess.Popen[str] | None = None

    def export(self, request: Mapping[str, Any], folder: Path) -> None:
        """Fill ``folder``. What ends the child is recorded there, and the next gets another one."""
        if self.child is None:
            self.child = self._started()
        asking, answering = self.child.stdin, self.child.stdout
        if asking is None or answering is None:
            raise RuntimeError("the child has no pipes")
        answer = ""
        with contextlib.suppress(BrokenPipeError):
            asking.write(json.dumps({**request, "folder": str(folder)}) + "\n")
            asking.flush()
            answer = answering.readline()
        if answer.strip() != _DONE:
            self.close()
            folder.mkdir(parents=True, exist_ok=True)
            text = json.dumps({"problem": "the export ended the process"})
            (folder / RECORD).write_text(text, "utf-8")

    def _started(self) -> subprocess.Popen[str]:
        self.say("starting to export")
        self.log.parent.mkdir(parents=True, exist_ok=True)
        paths = [str(Path(name).absolute()) for name in sys.path]
        with self.log.open("ab") as log:
            return subprocess.Popen(
                [sys.executable, "-c", _BOOTSTRAP, json.dumps(paths), self.module],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=log,
                env=export_environment(),
                text=True,
            )

    def close(self) -> None:
        if self.child is not None:
            with self.child as child, contextlib.suppress(BrokenPipeError):
                child.kill()
            self.child = None


@dataclass(frozen=True)
class Record:
    """What the child wrote beside a program."""

    inputs: tuple[TensorSpec, ...] = ()
    outputs: tuple[TensorSpec, ...] = ()
    problem: str = ""
    """Why there is no program at all."""
    cells: tuple[str, ...] = ()
    """Of a sheet of the matrix: those of its outputs, by id."""
    problems: Mapping[str, str] = field(default_factory=dict)
    """Of the cells that are not in it."""

    def artifact(
        self, folder: Path, model: str, variant: str, versions: Mapping[str, str]
    ) -> Artifact:
        """The program that the child left in ``folder``."""
        pte = folder / "program.pte"
        return Artifact(
            model=model,
            variant=variant,
            folder=folder,
            pte=pte,
            sha256=file_sha256(pte),
            inputs=self.inputs,
            outputs=self.outputs,
            input_files=tuple(folder / f"input_{i}.bin" for i in range(len(self.inputs))),
            reference_files=tuple(folder / f"reference_{i}.bin" for i in range(len(self.outputs))),
            weights="random (seed 0)",
            versions=versions,
        )


def read_record(folder: Path) -> Record:
    remedy = "Remove its folder, and run the same command again."
    document = read_json(folder / RECORD, remedy=remedy)
    record: Record = decode(document, Record, folder / RECORD, remedy=remedy)
    return record


def serve(export: Callable[[Mapping[str, Any], Path], Mapping[str, Any]]) -> None:
    """In the child: export all that is asked for, each into a folder of its own."""
    # Libraries print as they like; the parent reads nothing but our lines.
    parent = os.fdopen(os.dup(1), "w", encoding="utf-8", buffering=1)
    os.dup2(2, 1)
    for line in sys.stdin:
        request = json.loads(line)
        folder = Path(request["folder"])
        folder.mkdir(parents=True, exist_ok=True)
        try:
            answer = export(request, folder)
        except Exception as error:
            traceback.print_exc()
            answer = {"problem": problem(error)}
        (folder / RECORD).write_text(json.dumps(answer), "utf-8")
        print(_DONE, file=parent)


def problem(error: Exception) -> str:
    lines = str(error).strip().splitlines()
    return f"{type(error).__name__}: {lines[0][:200] if lines else 'no message'}"
