"""Exports the programs of the sheets in a child process, and finds those that are made already."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path

from pytest_sme2.results.evidence import Cell
from pytest_sme2.results.run import Artifact
from pytest_sme2.system.cache import cache_folder
from pytest_sme2.system.terminal import Say
from tools.many_exports import RECORD, ManyExports, read_record
from tools.matrix.cells import Sheet

_CODE = ("cells.py", "networks.py")


@dataclass(frozen=True)
class SheetProgram:
    cells: tuple[Cell, ...]
    """The cells of its outputs, in their order."""
    artifact: Artifact | None
    problems: Mapping[Cell, str]
    """Of the cells that it does not have."""


class Programs:
    """The exported programs of one wheel, kept in the cache."""

    def __init__(self, versions: dict[str, str], say: Say) -> None:
        """``versions`` are the packages that decide what an export is made of."""
        self.versions = versions
        digest = hashlib.sha256(json.dumps(versions, sort_keys=True).encode())
        for name in _CODE:
            digest.update((Path(__file__).parent / name).read_bytes())
        self.folder = cache_folder() / "matrix" / digest.hexdigest()[:16]
        log = self.folder / "export.log"
        self._exports = ManyExports("tools.matrix.networks", log, say)

    def program(self, sheet: Sheet) -> SheetProgram:
        """The program of a sheet, made now if it is missing; and which cells have none, and why."""
        folder = self.folder / sheet.id
        if not (folder / RECORD).is_file():
            self._exports.export({"cells": [asdict(cell) for cell in sheet.cells]}, folder)
        record = read_record(folder)
        if record.problem:
            return SheetProgram((), None, dict.fromkeys(sheet.cells, record.problem))
        by_id = {cell.id: cell for cell in sheet.cells}
        problems = {by_id[name]: text for name, text in record.problems.items()}
        if not record.cells:
            return SheetProgram((), None, problems)
        first = sheet.cells[0]
        artifact = record.artifact(folder, first.operator, first.data_type, self.versions)
        return SheetProgram(tuple(by_id[name] for name in record.cells), artifact, problems)

    def close(self) -> None:
        self._exports.close()
