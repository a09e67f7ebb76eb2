"""Exports the programs of the sheets in a child process, and finds those that are made already."""

from __future__ import annotations

import hashlib
import json
import os
import subprocess
import sys
from collections.abc import Iterable, Mapping, Sequence
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
_SAY_EVERY = 10
_REMEDY = "Remove its folder, and make the matrix again."
# The path is set before our first import, so that the child finds the asked-for ExecuTorch.
_BOOTSTRAP = (
    "import json, sys; request = json.load(open(sys.argv[1], encoding='utf-8')); "
    "sys.path[:] = request['sys_path']; "
    "from pytest_sme2.matrix.networks import main; main(sys.argv[1])"
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
        digest = hashlib.sha256(json.dumps(versions, sort_keys=True).encode())
        for name in _CODE:
            digest.update((Path(__file__).parent / name).read_bytes())
        self.folder = cache_folder() / "matrix" / digest.hexdigest()[:16]

    def export(self, wanted: Iterable[Sheet]) -> None:
        """Export what is missing. A sheet that ends the child is recorded, and the next goes on."""
        missing = [sheet for sheet in wanted if not self._record(sheet).is_file()]
        while missing:
            self._say(f"exporting {len(missing)} programs")
            crashed = self._run_child(missing)
            missing = [sheet for sheet in missing if not self._record(sheet).is_file()]
            if crashed is not None:
                text = json.dumps({"problem": "the export ended the process"})
                self._record(crashed).write_text(text, "utf-8")
                missing.remove(crashed)
            elif missing:
                log = self.folder / "export.log"
                raise RuntimeError(f"{missing[0].id} was not exported: see {log}")

    def _record(self, sheet: Sheet) -> Path:
        return self.folder / sheet.id / _RECORD

    def _run_child(self, wanted: Sequence[Sheet]) -> Sheet | None:
        """Export these; the one that ended the child before it was done, if any did."""
        self.folder.mkdir(parents=True, exist_ok=True)
        paths = [str(Path(name).absolute()) for name in sys.path]
        if self._python_path is not None:
            paths.insert(0, str(self._python_path))
        request = {
            "sheets": [[asdict(cell) for cell in sheet.cells] for sheet in wanted],
            "folder": str(self.folder),
            "sys_path": paths,
        }
        request_file = self.folder / f"request-{os.getpid()}.json"
        request_file.write_text(json.dumps(request), "utf-8")
        by_id = {sheet.id: sheet for sheet in wanted}
        begun: Sheet | None = None
        done = 0
        try:
            with (self.folder / "export.log").open("ab") as log:
                child = subprocess.Popen(
                    [sys.executable, "-c", _BOOTSTRAP, str(request_file)],
                    stdin=subprocess.DEVNULL,
                    stdout=subprocess.PIPE,
                    stderr=log,
                    env=export_environment(),
                    text=True,
                )
                with child:
                    for line in child.stdout or ():
                        word, _, name = line.strip().partition(" ")
                        if word == "begin" and name in by_id:
                            begun = by_id[name]
                        elif word == "done" and begun is not None and name == begun.id:
                            begun = None
                            done += 1
                            if done % _SAY_EVERY == 0:
                                self._say(f"exported {done} of {len(wanted)} programs")
        finally:
            request_file.unlink(missing_ok=True)
        return begun

    def program(self, sheet: Sheet) -> SheetProgram:
        """The program of a sheet, and which cells have none, and why."""
        folder = self.folder / sheet.id
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
