"""Exports the programs of the cells in a child process, and finds those that are made already."""

from __future__ import annotations

import hashlib
import json
import os
import subprocess
import sys
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

from pytest_sme2.export.child import export_environment
from pytest_sme2.export.store import package_versions
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
    "import json, sys; request = json.load(open(sys.argv[1], encoding='utf-8')); "
    "sys.path[:] = request['sys_path']; "
    "from pytest_sme2.matrix.networks import main; main(sys.argv[1])"
)


@dataclass(frozen=True)
class _Record:
    """What the child wrote beside a program; ``problem`` where there is none."""

    inputs: tuple[TensorSpec, ...] = ()
    outputs: tuple[TensorSpec, ...] = ()
    problem: str = ""


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

    def export(self, cells: Iterable[Cell]) -> None:
        """Export what is missing. A cell that ends the child is recorded, and the next goes on."""
        missing = [cell for cell in cells if not (self.folder / cell.id / _RECORD).is_file()]
        while missing:
            self._say(f"exporting {len(missing)} programs")
            crashed = self._run_child(missing)
            missing = [cell for cell in missing if not (self.folder / cell.id / _RECORD).is_file()]
            if crashed is not None:
                record = self.folder / crashed.id / _RECORD
                record.write_text(json.dumps({"problem": "the export ended the process"}), "utf-8")
                missing.remove(crashed)
            elif missing:
                raise RuntimeError(f"{missing[0]} was not exported, and nothing says why")

    def _run_child(self, cells: Sequence[Cell]) -> Cell | None:
        """Export these; the one that ended the child before it was done, if any did."""
        self.folder.mkdir(parents=True, exist_ok=True)
        paths = [str(Path(name).absolute()) for name in sys.path]
        if self._python_path is not None:
            paths.insert(0, str(self._python_path))
        request = {
            "cells": [asdict(cell) for cell in cells],
            "folder": str(self.folder),
            "sys_path": paths,
        }
        request_file = self.folder / f"request-{os.getpid()}.json"
        request_file.write_text(json.dumps(request), "utf-8")
        by_id = {cell.id: cell for cell in cells}
        begun: Cell | None = None
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
                            if done % 20 == 0:
                                self._say(f"exported {done} of {len(cells)} programs")
        finally:
            request_file.unlink(missing_ok=True)
        return begun

    def artifact(self, cell: Cell) -> Artifact | str:
        """The program of a cell, or why there is none."""
        folder = self.folder / cell.id
        document = read_json(folder / _RECORD, remedy=_REMEDY)
        record: _Record = decode(document, _Record, folder / _RECORD, remedy=_REMEDY)
        if record.problem:
            return record.problem
        pte = folder / "program.pte"
        return Artifact(
            model=cell.operator,
            variant=cell.data_type,
            folder=folder,
            pte=pte,
            sha256=file_sha256(pte),
            inputs=record.inputs,
            outputs=record.outputs,
            input_files=tuple(folder / f"input_{i}.bin" for i in range(len(record.inputs))),
            reference_files=(folder / "reference_0.bin",),
            weights="random (seed 0)",
            versions=self.versions,
        )
