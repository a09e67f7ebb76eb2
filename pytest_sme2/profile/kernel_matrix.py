"""Reads kernel matrices: those shipped with the package, or a file that was made here."""

from __future__ import annotations

import functools
import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path

from packaging.version import Version

from pytest_sme2.errors import UsageError
from pytest_sme2.results import Cell, CellAnswer, KernelMatrix
from pytest_sme2.system.files import decode, encode, write_text
from pytest_sme2.system.reading import read_json

SCHEMA = 1
_SHIPPED = Path(__file__).parent / "matrices"
_REMEDY = "Make it again with `python -m tools.matrix` in the source of this project."


@functools.cache
def shipped_versions() -> tuple[str, ...]:
    """The versions of ExecuTorch that the package has a matrix of, oldest first."""
    names = (path.stem.removeprefix("executorch-") for path in _SHIPPED.glob("executorch-*.json"))
    return tuple(sorted(names, key=Version))


@functools.cache
def shipped_matrix(version: str) -> KernelMatrix:
    """The matrix of one version of ExecuTorch."""
    if version not in shipped_versions():
        raise UsageError(
            f"There is no matrix of ExecuTorch {version}. Choose one of: "
            f"{', '.join(shipped_versions())}; or name a file."
        )
    return read_matrix(_SHIPPED / f"executorch-{version}.json")


def read_matrix(path: Path) -> KernelMatrix:
    document = read_json(path, remedy=_REMEDY, error=UsageError, finite=True)
    schema = document.get("schema") if isinstance(document, Mapping) else None
    if schema != SCHEMA:
        raise UsageError(f"{path} has schema {schema!r}, this version reads {SCHEMA}. {_REMEDY}")
    matrix: KernelMatrix = decode(
        document.get("matrix", None),
        KernelMatrix,
        path,
        remedy=_REMEDY,
        error=UsageError,
    )
    return matrix


def write_matrix(matrix: KernelMatrix, path: Path) -> None:
    """One line per cell, so that two matrices can be compared with any tool."""
    header = encode(matrix)
    answers = header.pop("answers")
    rows = ",\n".join(json.dumps(answer, sort_keys=True) for answer in answers)
    fields = json.dumps(header, sort_keys=True)[:-1]
    write_text(path, f'{{"schema": {SCHEMA}, "matrix": {fields}, "answers": [\n{rows}\n]}}}}\n')


def find_answer(matrix: KernelMatrix, cell: Cell) -> CellAnswer | None:
    """The answer to one cell; None where the matrix does not have it."""
    return matrix.by_cell.get(cell)


@dataclass(frozen=True)
class CellChange:
    """A cell whose answer differs between two versions."""

    before: CellAnswer
    after: CellAnswer
    what: str
    """``kernel``, ``family``, ``export`` or ``instructions``: the most important difference."""


def changes(
    old: KernelMatrix, new: KernelMatrix, *, growth: float = 0.01
) -> tuple[CellChange, ...]:
    """The cells that both have, and that do not behave alike; ``growth`` is of instructions."""
    pairs = ((old.by_cell.get(answer.cell), answer) for answer in new.answers)
    found = []
    for before, after in pairs:
        what = "" if before is None else _difference(before, after, growth)
        if before is not None and what:
            found.append(CellChange(before, after, what))
    return tuple(found)


def _difference(before: CellAnswer, after: CellAnswer, growth: float) -> str:
    if bool(before.problem) != bool(after.problem):
        return "export"
    if before.family != after.family:
        return "family"
    if _hidden(before.kernel) != _hidden(after.kernel):
        return "kernel"
    old, new = before.instructions or 0, after.instructions or 0
    return "instructions" if abs(new - old) > growth * old else ""


def _hidden(kernel: str) -> str:
    """The name; for a kernel that is only a place in a library, the library: places move."""
    library, plus, _ = kernel.partition("+0x")
    return library if plus else kernel


def select(
    matrix: KernelMatrix,
    *,
    operators: Iterable[str] = (),
    data_types: Iterable[str] = (),
    family: str = "",
) -> tuple[CellAnswer, ...]:
    """The answers that fit; an empty filter fits all."""
    wanted_operators, wanted_types = set(operators), set(data_types)
    return tuple(
        answer
        for answer in matrix.answers
        if (not wanted_operators or answer.cell.operator in wanted_operators)
        and (not wanted_types or answer.cell.data_type in wanted_types)
        and (not family or answer.family == family)
    )
