"""Kernel matrices as files and as a page, and what changed between two."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from pytest_sme2.profile.kernel_matrix import SCHEMA
from pytest_sme2.report.html import embedded_json
from pytest_sme2.results.evidence import CellAnswer, KernelMatrix
from pytest_sme2.system.files import encode, write_text
from pytest_sme2.system.wording import count


def write_matrix(matrix: KernelMatrix, path: Path) -> None:
    """One line per cell, so that two matrices can be compared with any tool."""
    header = encode(matrix)
    answers = header.pop("answers")
    rows = ",\n".join(json.dumps(answer, sort_keys=True) for answer in answers)
    fields = json.dumps(header, sort_keys=True)[:-1]
    write_text(path, f'{{"schema": {SCHEMA}, "matrix": {fields}, "answers": [\n{rows}\n]}}}}\n')


def matrix_page(matrices: Sequence[KernelMatrix]) -> str:
    """Kernel matrices as a page with filters; the oldest version comes first."""
    data = embedded_json({matrix.executorch: encode(matrix) for matrix in matrices})
    page = Path(__file__).with_name("page.html").read_text(encoding="utf-8")
    return page.replace("@DATA@", data)


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
    pairs = (
        (old.by_cell[answer.cell], answer) for answer in new.answers if answer.cell in old.by_cell
    )
    found = (CellChange(*pair, _difference(*pair, growth)) for pair in pairs)
    return tuple(change for change in found if change.what)


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


def change_lines(before: KernelMatrix, after: KernelMatrix) -> Iterator[str]:
    """What changed between two versions, the most important first."""
    found = changes(before, after)
    both = count(len(before.by_cell.keys() & after.by_cell.keys()), "cell")
    left = len(before.by_cell.keys() ^ after.by_cell.keys())
    alone = f"; {left} are in one alone" if left else ""
    versions = f"ExecuTorch {before.executorch} to {after.executorch}"
    yield f"{versions}: {len(found)} of {both} changed{alone}"
    for change in found:
        old, new = change.before, change.after
        yield f"{change.what:<12}  {new.cell}: {_short(old)} → {_short(new)}"


def _short(answer: CellAnswer) -> str:
    if answer.problem:
        return answer.problem
    executed = "" if answer.instructions is None else f"{answer.instructions:,} instructions"
    return ", ".join(filter(None, (answer.family, answer.kernel, executed)))
