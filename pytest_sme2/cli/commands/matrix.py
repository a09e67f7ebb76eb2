"""``sme2 matrix``: which kernel runs each operator in each data type and size."""

from __future__ import annotations

import argparse
from collections.abc import Iterator, Sequence
from pathlib import Path

from pytest_sme2.cli.options import Arguments, show
from pytest_sme2.errors import UsageError
from pytest_sme2.profile.kernel_matrix import (
    changes,
    read_matrix,
    select,
    shipped_matrix,
    shipped_versions,
)
from pytest_sme2.report.text import aligned
from pytest_sme2.results import CellAnswer, KernelMatrix
from pytest_sme2.system.files import encode, write_text
from pytest_sme2.system.wording import count

EXAMPLE = "sme2 matrix --operator 'convolution 1x1' --data-type fp16"
ARGUMENTS: Arguments = {
    "--executorch VERSION|FILE": "the version to show, or a file of your own (default: the newest)",
    "--operator OPERATOR...": "show these alone",
    "--data-type DATA_TYPE...": "show these alone",
    "--family {sme2,neon,portable}": "show what runs there alone",
    "--changes VERSION|FILE": "show what changed since that one instead",
    "--html FILE": "write a page with filters, which needs no network",
}


def run(arguments: argparse.Namespace) -> int:
    matrix = _chosen(arguments.executorch)
    if arguments.html is not None:
        return _write_page(arguments, matrix)
    if arguments.changes is not None:
        before = _chosen(arguments.changes)
        found = [encode(entry) for entry in changes(before, matrix)]
        return show(arguments, found, change_lines(before, matrix))
    answers = select(
        matrix,
        operators=arguments.operator,
        data_types=arguments.data_type,
        family=arguments.family or "",
    )
    if not answers:
        operators = ", ".join(dict.fromkeys(answer.cell.operator for answer in matrix.answers))
        types = ", ".join(dict.fromkeys(answer.cell.data_type for answer in matrix.answers))
        raise UsageError(f"No cell fits. Operators: {operators}. Data types: {types}.")
    return show(arguments, [encode(answer) for answer in answers], _table(matrix, answers))


def _write_page(arguments: argparse.Namespace, matrix: KernelMatrix) -> int:
    from pytest_sme2.report.html import matrix_page

    shown = [matrix]
    if arguments.changes is not None:
        shown.insert(0, _chosen(arguments.changes))
    elif arguments.executorch is None:
        shown = [shipped_matrix(version) for version in shipped_versions()]
    write_text(arguments.html, matrix_page(shown))
    print(arguments.html)
    return 0


def _chosen(value: str | None) -> KernelMatrix:
    if value is None:
        versions = shipped_versions()
        if not versions:
            raise UsageError("This package has no matrix. Name a file with --executorch.")
        return shipped_matrix(versions[-1])
    return read_matrix(Path(value)) if Path(value).is_file() else shipped_matrix(value)


def _table(matrix: KernelMatrix, answers: Sequence[CellAnswer]) -> list[str]:
    layer = ("operator", "data type", "rows", "size")
    titles = (*layer, "runs on", "SME1", "per MAC", "SQNR", "kernel")
    return [
        f"ExecuTorch {matrix.executorch}, torch {matrix.torch}, emulated CPU {matrix.cpu}",
        "per MAC: instructions of the operator for each multiply-accumulate; SQNR: in dB against "
        "eager fp32; SME1: where it runs on a chip without SME2",
        "",
        *aligned([titles, *map(_row, answers)]),
    ]


def _row(answer: CellAnswer) -> tuple[str, ...]:
    cell, each = answer.cell, answer.instructions_per_mac
    return (
        cell.operator,
        cell.data_type,
        str(cell.rows),
        cell.size,
        answer.family or "-",
        answer.sme1 or "-",
        "-" if each is None else f"{each:.3g}",
        "-" if answer.sqnr_db is None else f"{answer.sqnr_db:.1f}",
        answer.problem or answer.kernel,
    )


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
    return f"{answer.family}, {answer.kernel}, {answer.instructions:,} instructions"
