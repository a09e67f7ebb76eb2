"""Exports the programs of the sheets in a child process, and finds those that are made already."""

from __future__ import annotations

import contextlib
import hashlib
import json
import subprocess
import sys
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path

from pytest_sme2.export.child import export_environment
from pytest_sme2.export.store import package_versions
from pytest_sme2.matrix.cells import Sheet
from pytest_sme2.results import Artifact, Cell, TensorSpec
from pytest_sme2.system.cache import cache_folder
from pytest_sme2.system.files import decode, file_sha256
from pytest_sme2.system.reading import read_json
from pytest_sme2.system.terminal import Say

_CODE = ("cells.py", "networks.py")
_RECORD = "export.json"
_REMEDY = "Remove its folder, and make the matrix again."
# The path is set before our first import, so that the child finds the asked-for ExecuTorch.
_BOOTSTRAP = (
    "import json, sys; sys.path[:] = json.loads(sys.argv[1]); "
    "from pytest_sme2.matrix.networks import main; main()"
)


@dataclass(frozen=True)
class _Record:
    """What the child wrote beside a program."""

    cells: tuple[str, ...] = ()
    """Of its outputs, by id."""
    inputs: tuple[TensorSpec, ...] = ()
    outputs: tuple[TensorSpec, ...] = ()
    problems: Mapping[str, str] = field(default_factory=dict)
    """Of the cells that are not in it."""
    problem: str = ""
    """Why there is no program at all."""


@dataclass(frozen=True)
class SheetProgram:
    """An exported sheet."""

    cells: tuple[Cell, ...]
    """The cells of its outputs, in their order."""
    artifact: Artifact | None
    problems: Mapping[Cell, str]
    """Of the cells that it does not have."""


def versions_of(executorch: str) -> dict[str, str]:
    """The packages that decide what an export is made of."""
    return {**package_versions(), "executorch": executorch}


class Programs:
    """The exported programs of one wheel, kept in the cache."""

    def __init__(self, versions: dict[str, str], python_path: Path | None, say: Say) -> None:
        """``python_path`` has the Python package of a wheel that is not the installed one."""
        self.versions = versions
        self._python_path = python_path
        self._say = say
        self._child: subprocess.Popen[str] | None = None
        digest = hashlib.sha256(json.dumps(versions, sort_keys=True).encode())
        for name in _CODE:
            digest.update((Path(__file__).parent / name).read_bytes())
        self.folder = cache_folder() / "matrix" / digest.hexdigest()[:16]

    def program(self, sheet: Sheet) -> SheetProgram:
        """The program of a sheet, made now if it is missing; and which cells have none, and why."""
        folder = self.folder / sheet.id
        if not (folder / _RECORD).is_file():
            self._export(sheet, folder)
        document = read_json(folder / _RECORD, remedy=_REMEDY)
        record: _Record = decode(document, _Record, folder / _RECORD, remedy=_REMEDY)
        if record.problem:
            return SheetProgram((), None, dict.fromkeys(sheet.cells, record.problem))
        by_id = {cell.id: cell for cell in sheet.cells}
        problems = {by_id[name]: text for name, text in record.problems.items()}
        if not record.cells:
            return SheetProgram((), None, problems)
        pte = folder / "program.pte"
        artifact = Artifact(
            model=sheet.cells[0].operator,
            variant=sheet.cells[0].data_type,
            folder=folder,
            pte=pte,
            sha256=file_sha256(pte),
            inputs=record.inputs,
            outputs=record.outputs,
            input_files=tuple(folder / f"input_{i}.bin" for i in range(len(record.inputs))),
            reference_files=tuple(
                folder / f"reference_{i}.bin" for i in range(len(record.outputs))
            ),
            weights="random (seed 0)",
            versions=self.versions,
        )
        return SheetProgram(tuple(by_id[name] for name in record.cells), artifact, problems)

    def _export(self, sheet: Sheet, folder: Path) -> None:
        """A sheet that ends the child is recorded, and the next one gets another child."""
        if self._child is None:
            self._child = self._started()
        request = {"cells": [asdict(cell) for cell in sheet.cells], "folder": str(folder)}
        asking, answering = self._child.stdin, self._child.stdout
        if asking is None or answering is None:
            raise RuntimeError("the child has no pipes")
        answer = ""
        with contextlib.suppress(BrokenPipeError):
            asking.write(json.dumps(request) + "\n")
            asking.flush()
            answer = answering.readline()
        if answer.strip() != "done":
            self.close()
            folder.mkdir(parents=True, exist_ok=True)
            text = json.dumps({"problem": "the export ended the process"})
            (folder / _RECORD).write_text(text, "utf-8")

    def _started(self) -> subprocess.Popen[str]:
        self._say("starting to export")
        self.folder.mkdir(parents=True, exist_ok=True)
        paths = [str(Path(name).absolute()) for name in sys.path]
        if self._python_path is not None:
            paths.insert(0, str(self._python_path))
        with (self.folder / "export.log").open("ab") as log:
            return subprocess.Popen(
                [sys.executable, "-c", _BOOTSTRAP, json.dumps(paths)],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=log,
                env=export_environment(),
                text=True,
            )

    def close(self) -> None:
        """End the child, if there is one."""
        if self._child is not None:
            with self._child as child, contextlib.suppress(BrokenPipeError):
                child.kill()
            self._child = None
